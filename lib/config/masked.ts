/**
 * Masks the secrets that are written in a configuration, where the configuration is shown.
 */
import type { Json } from "./json.ts";
import type { ConfigSecrets } from "./load.ts";

const maskedCopies = new WeakMap<ConfigSecrets, Json>();

/**
 * `shown` with each literal secret masked. Made once: a configuration may be large. Only what has a secret in it is
 * copied.
 */
export function maskedConfig({ shown, secrets }: { readonly shown: Json; readonly secrets: ConfigSecrets }): Json {
  const known = maskedCopies.get(secrets);
  if (known !== undefined) return known;
  const { marked } = secrets;
  const copies = new Map<object, any>();
  const copyOf = (part: any): any => {
    if (typeof part !== "object" || part === null) return undefined;
    if (!copies.has(part)) {
      const made: unknown = Array.isArray(part) ? [...(part as unknown[])] : { ...part };
      copies.set(part, made).set(made as object, made);
    }
    return copies.get(part);
  };
  const copy = marked.length === 0 ? shown : (copyOf(shown) as Json);
  for (const { at, masked } of marked) {
    const last = at.at(-1)!;
    // An alternative schema that did not accept the value may have recorded it: then nothing may be shown at its path.
    let parent: any = copy;
    for (const step of at.slice(0, -1)) {
      const child = copyOf(parent?.[step]);
      if (child !== undefined) parent[step] = child;
      parent = child;
    }
    if (typeof parent?.[last] === "string") parent[last] = masked;
  }
  maskedCopies.set(secrets, copy);
  return copy;
}

/** Those that a copy of the file must not have: the digest of a key tells nothing of the key. */
export function withoutDigests(secrets: ConfigSecrets): ConfigSecrets {
  return {
    ...secrets,
    marked: secrets.marked.filter(({ at, text }) => at.at(-1) !== "key_sha256" || !SHA256.test(text)),
  };
}

const SHA256 = /^[0-9a-f]{64}$/i;

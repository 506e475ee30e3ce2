/**
 * Masks the secrets that are written in a configuration, where the configuration is shown.
 */
import type { Json } from "./json.ts";
import type { ConfigSecrets } from "./load.ts";

const maskedCopies = new WeakMap<ConfigSecrets, Json>();

/** `shown` with each literal secret masked. Copied once: a configuration may be large. */
export function maskedConfig({ shown, secrets }: { readonly shown: Json; readonly secrets: ConfigSecrets }): Json {
  const known = maskedCopies.get(secrets);
  if (known !== undefined) return known;
  const { marked } = secrets;
  const copy = marked.length === 0 ? shown : structuredClone(shown);
  for (const { at, masked } of marked) {
    const last = at.at(-1)!;
    // An alternative schema that did not accept the value may have recorded it: then nothing may be shown at its path.
    const parent = at.slice(0, -1).reduce<any>((found, step) => found?.[step], copy);
    if (typeof parent?.[last] === "string") parent[last] = masked;
  }
  maskedCopies.set(secrets, copy);
  return copy;
}

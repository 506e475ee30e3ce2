/**
 * Keeps the secrets of a configuration out of texts that are shown: those that a reference stands for, and those that
 * are written in it.
 */
import type { Path } from "./json.ts";
import type { ConfigSecrets } from "./load.ts";
import { MASK, UNFILLED } from "./schema_core.ts";

export interface WithSecrets {
  readonly secrets: ConfigSecrets;
}

const concealers = new WeakMap<ConfigSecrets, (text: string) => string>();

/** Conceals the values of references, and each literal secret, in texts that are shown. */
export function concealerOf({ secrets }: WithSecrets): (text: string) => string {
  const known = concealers.get(secrets);
  if (known !== undefined) return known;
  const conceal = concealing(
    new Map([...literals(secrets).map(({ text }) => [text, MASK] as const), ...secrets.sources.resolved]),
  );
  concealers.set(secrets, conceal);
  return conceal;
}

/** Where a secret looks like a template that nobody has filled in. A step for each secret. */
export function* unfilledSecrets({ secrets: { marked, sources } }: WithSecrets): Generator<undefined, readonly Path[]> {
  const found: Path[] = [];
  for (const secret of marked) {
    yield;
    // Before anything is made of it: hardly any looks so.
    if (!UNFILLED.test(secret.text.replaceAll("$${", "${"))) continue;
    if (literals({ marked: [secret], sources }).length > 0) found.push(secret.at);
  }
  return found;
}

/** The secrets that are written in the configuration itself. */
function literals({ marked, sources }: ConfigSecrets): readonly { readonly at: Path; readonly text: string }[] {
  return marked.flatMap(({ at, text }) =>
    text !== "" && sources.references?.hasReference(text) !== true ? [{ at, text: text.replaceAll("$${", "${") }] : [],
  );
}

/** Shorter secrets are concealed only where they are the whole text: "on" occurs in many words. */
const LEAST = 4;

/**
 * `secrets` are replaced by what is shown in their place, the longest first, in any case, also as they are written in
 * JSON. Only whole ones:
 * a text of which the beginning of a secret was concealed would tell whoever wrote it that it is the beginning.
 */
export function concealing(secrets: ReadonlyMap<string, string>): (text: string) => string {
  const shownFor = new Map<string, string>();
  const forms = (value: string) => [value, JSON.stringify(value).slice(1, -1)];
  for (const [value, shown] of secrets) for (const form of forms(value)) shownFor.set(form.toLowerCase(), shown);
  /** By their first characters, as thousands of keys may begin alike: the lengths of the secrets, the longest first. */
  const lengths = new Map<string, Set<number>>();
  for (const secret of [...shownFor.keys()].sort((a, b) => b.length - a.length)) {
    if (secret.length < LEAST) break;
    const start = secret.slice(0, LEAST);
    if (!lengths.has(start)) lengths.set(start, new Set());
    lengths.get(start)!.add(secret.length);
  }
  return (text) => {
    const lower = text.toLowerCase();
    // Letters such as "İ" get longer in lower case: nothing tells then where a secret is.
    if (lower.length !== text.length) return secrets.size === 0 ? text : MASK;
    const whole = shownFor.get(lower);
    if (whole !== undefined) return whole;
    let [result, from] = ["", 0];
    for (let at = 0; at + LEAST <= lower.length; at++) {
      for (const length of lengths.get(lower.slice(at, at + LEAST)) ?? []) {
        const shown = shownFor.get(lower.slice(at, at + length));
        if (shown === undefined) continue;
        result += text.slice(from, at) + shown;
        from = at + length;
        at = from - 1;
        break;
      }
    }
    return result + text.slice(from);
  };
}

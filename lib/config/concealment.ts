/**
 * Conceals the secrets of a configuration in texts that are shown: those that a reference stands for, and those that are written in it.
 */
import { MASK } from "./references.ts";

/** Shorter secrets are concealed only where they are the whole text: "on" occurs in many words. */
const LEAST = 4;

/**
 * `secrets` are replaced by what is shown in their place, the longest first, in any case, also as they are written in JSON. Only whole ones:
 * a text of which the beginning of a secret was concealed would tell whoever wrote it that it is the beginning.
 */
export function concealing(secrets: ReadonlyMap<string, string>): (text: string) => string {
  const whole = new Map<string, string>();
  const byStart = new Map<string, { readonly secret: string; readonly shown: string }[]>();
  const longestFirst = [...secrets].sort(([a], [b]) => b.length - a.length);
  for (const [value, shown] of longestFirst) {
    for (const secret of new Set([value, JSON.stringify(value).slice(1, -1)].map((form) => form.toLowerCase()))) {
      whole.set(secret, shown);
      if (secret.length < LEAST) continue;
      const start = secret.slice(0, LEAST);
      byStart.set(start, [...(byStart.get(start) ?? []), { secret, shown }]);
    }
  }
  return (text) => {
    const lower = text.toLowerCase();
    // Letters such as "İ" get longer in lower case: nothing tells then where a secret is.
    if (lower.length !== text.length) return secrets.size === 0 ? text : MASK;
    const known = whole.get(lower);
    if (known !== undefined) return known;
    let [result, from] = ["", 0];
    for (let at = 0; at + LEAST <= lower.length; at++) {
      const candidates = byStart.get(lower.slice(at, at + LEAST));
      const found = candidates?.find(({ secret }) => lower.startsWith(secret, at));
      if (found === undefined) continue;
      result += text.slice(from, at) + found.shown;
      from = at + found.secret.length;
      at = from - 1;
    }
    return result + text.slice(from);
  };
}

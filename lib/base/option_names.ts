/**
 * Refuses misspelt names among the options that a program passes.
 */
import { suggest } from "./suggest.ts";

/** All names that options may have. */
export type OptionNames<Options> = Readonly<Record<keyof Options, true>>;

/**
 * Throws a `TypeError` unless `given` is an object without other names; a member that is undefined counts as absent.
 * `what` takes the options. `hints`: what to write in place of names that are likely. Types hold back neither
 * JavaScript nor values that were read from elsewhere.
 */
export function checkNames<Options extends object>(
  what: string,
  given: unknown,
  names: OptionNames<Options>,
  hints: ReadonlyMap<string, string> = NO_HINTS,
): asserts given is Options {
  if (typeof given !== "object" || given === null) throw new TypeError(`${what} takes an object with options`);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(names, name)) continue;
    const nearest = suggest(name, Object.keys(names));
    const hint =
      hints.get(name) ??
      (nearest === undefined ? `it has ${Object.keys(names).join(", ")}` : `did you mean "${nearest}"?`);
    throw new TypeError(`${what} has no option "${name}": ${hint}`);
  }
}

const NO_HINTS: ReadonlyMap<string, string> = new Map();

/**
 * Types of configured conditions on a request: `conditions.ts` decides whether it fulfils them.
 */
import type { HeaderList } from "./headers.ts";

/** The exact value; a pattern that has to match somewhere in it; true: present; null: absent. */
export type PlainCondition = string | null | true | { readonly matches: string };
/** `not`: holds exactly when the other one does not, so also of a name that is absent, unless that is `null`. */
export type Condition = PlainCondition | { readonly not: PlainCondition };
type ByName = Readonly<Record<string, Condition>>;

/** All of them have to hold. Of several values of one name, one that fits is enough. */
export interface Conditions {
  /** Names in any case (RFC 9110 §5.1). */
  readonly headers: ByName;
  /** Names and values percent-decoded, "+" as a space; an escape that is broken stands for itself. */
  readonly query: ByName;
  readonly cookies: ByName;
  readonly scheme?: Scheme | { readonly not: Scheme };
}

export type Scheme = "http" | "https";

/** `query` as `readTarget` returns it: with "?", or "". */
export type Holds = (headers: HeaderList, query: string, scheme: Scheme) => boolean;

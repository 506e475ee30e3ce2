/**
 * Schemas of what a text of a request or a reply is compared with: the exact text, a pattern, or null for none; for
 * headers by their names.
 */
import { FIELD_VALUE, TOKEN } from "../base/http_grammar.ts";
import { examplePattern, linearPattern } from "../base/linear_pattern.ts";
import * as s from "./whole_schema.ts";
import { define } from "./schema_core.ts";

/** A pattern that has to match somewhere in the text; see `linearPattern`. */
export interface Matches {
  readonly matches: string;
}

/** Whether an expected value is a pattern, and not a text, a number, null or JSON. */
export function isMatches(value: unknown): value is Matches {
  if (typeof value !== "object" || value === null) return false;
  return Object.keys(value).length === 1 && typeof (value as Partial<Matches>).matches === "string";
}

/** Not masked where the configuration is displayed, but messages do not repeat the text. */
export const SECRET = { secret: (text: string) => text } as const;

export const NULL: s.Schema<null, null> = define({
  expects: "null",
  kinds: ["null"],
  check: () => null,
  jsonSchema: () => ({ type: "null" }),
});

/** Of texts of these characters, by default of all: a pattern that matches none of them is an error. */
export function matches(alphabet?: string, references?: "none"): s.Schema<Matches, Matches> {
  return {
    ...s.object({
      matches: s.string({
        hint: "a regular expression without lookaround and back references",
        ...(references && { references }),
        describe: "A regular expression that has to match somewhere in the text.",
        check(source) {
          const compiled = linearPattern(source);
          if (typeof compiled === "string") return `it ${compiled}`;
          return examplePattern(source, alphabet) === null ? "it matches no text that can stand here" : undefined;
        },
      }),
    }),
    expects: '{"matches": pattern}',
  };
}

export const MATCHES = matches();

export const HEADER_VALUE = s.string({
  hint: "a text that a header can carry",
  check: (text) => (FIELD_VALUE.test(text) ? undefined : ""),
  ...SECRET,
});

type ByName<T> = Readonly<Record<string, T>>;

/** Undefined if the name is valid, else what is wrong with it. */
type NameProblem = (name: string, context: s.CheckContext) => string | undefined;

/**
 * Values by name; of names that `fold` makes equal one may occur. A name that is no token is not repeated: it may
 * contain a secret.
 */
export function byName<S extends s.AnySchema>(
  value: S,
  describe: string,
  problemOf: NameProblem,
  fold = (name: string) => name,
): s.Schema<ByName<s.Infer<S>>, ByName<s.InputOf<S>>> {
  const values = s.record(value, { describe });
  return {
    ...values,
    check(node, at, context) {
      const before = context.issues.length;
      const seen = new Set<string>();
      for (const [name, { keyOffset }] of node.kind === "object" ? node.members : []) {
        const folded = fold(name);
        const message = problemOf(name, context) ?? (seen.has(folded) ? "occurs twice, in different cases" : undefined);
        if (message !== undefined) s.reportAt(context, TOKEN.test(name) ? [...at, name] : at, keyOffset, message);
        seen.add(folded);
      }
      return context.issues.length > before ? s.INVALID : values.check(node, at, context);
    },
  };
}

/** Values by the name of the header. "Authorization: Basic c2VjcmV0" is no name, but a secret. */
export function byHeader<S extends s.AnySchema>(value: S, describe: string, problemOf: NameProblem = () => undefined) {
  const headerProblem: NameProblem = (name, context) => (TOKEN.test(name) ? problemOf(name, context) : NO_HEADER_NAME);
  return byName(value, describe, headerProblem, (name) => name.toLowerCase());
}

const NO_HEADER_NAME = 'has a key that is not the name of a header: write "Name": "value"';

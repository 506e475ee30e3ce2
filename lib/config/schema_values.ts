/**
 * Schemas of single values: texts, numbers, true or false, and literals.
 */
import { suggest } from "../base/suggest.ts";
import type { Path } from "./json.ts";
import {
  conceal,
  countText,
  define,
  MASK,
  mismatch,
  report,
  type AcceptText,
  type CheckContext,
  type Described,
  type Schema,
} from "./schema_core.ts";

export interface StringOptions extends Described {
  readonly min?: number;
  readonly max?: number;
  /** Without flags, so that JSON Schema can carry it. */
  readonly pattern?: RegExp;
  /** Completes "expected …": "a host name or IP address". */
  readonly hint?: string;
  /** Undefined if the text is valid, else a remedy (may be empty). */
  readonly check?: (text: string, context: CheckContext) => string | undefined;
  /** Output in lower case; checked as written. */
  readonly lowerCase?: boolean;
  /**
   * Whether the text is a secret: no message repeats it, and a masked display shows only its references, or what the
   * function returns for the text at this path.
   * Default false.
   */
  readonly secret?: boolean | ((text: string, at: Path) => string);
  /**
   * "value": also where no reference is resolved (see `Placeholders`), the value in force is used. "none": the text
   * names something, and references are errors. Default: as any text.
   */
  readonly references?: "value" | "address" | "none";
}

/** A string, in which references are resolved. A message shows the reference, never the secret. */
export function string(options: StringOptions = {}): Schema<string, string> {
  const { min = 0, max = Infinity, pattern, check, lowerCase = false, describe, secret = false, references } = options;
  const rules = {
    ...(min > 0 && { minLength: min }),
    ...(max < Infinity && { maxLength: max }),
    ...(pattern && { pattern: pattern.source }),
  };
  const use = references === "none" ? "name" : secret === true ? "secret" : (references ?? "text");
  const schema: Schema<string, string> = define({
    expects: options.hint ?? lengthText(min, max),
    describe,
    kinds: ["string"],
    secret: secret !== false,
    check(node, at, context) {
      const { references: reader } = context.sources;
      const accept: AcceptText = (text, refuse) => {
        const fits = text.length >= min && text.length <= max && (pattern === undefined || pattern.test(text));
        const remedy = fits ? check?.(text, context) : "";
        if (remedy === undefined) return lowerCase ? text.toLowerCase() : text;
        // A remedy may quote the text.
        return refuse(schema.secret ? "" : remedy);
      };
      const mask = (text: string) =>
        typeof secret === "function" ? secret(text, at) : (reader?.maskLiterals(text) ?? (text && MASK));
      if (secret !== false) conceal(node, at, context, mask);
      if (!node.value.includes("${"))
        return accept(node.value, (remedy) => mismatch(schema, node, at, context, remedy));
      return (
        reader?.readText(node, at, use, context, schema, accept) ??
        report(context, at, node, "has ${, and what reads references has not been loaded")
      );
    },
    jsonSchema: () => ({
      type: "string",
      ...(secret === true && { writeOnly: true }),
      ...(Object.keys(rules).length > 0 &&
        (references === "none" ? rules : { anyOf: [rules, { pattern: "\\$\\{(env|file):" }] })),
    }),
  });
  return schema;
}

function lengthText(min: number, max: number): string {
  if (max === Infinity && min <= 1) return min === 1 ? "a non-empty string" : "a string";
  return `a string of ${countText(min, max, "character")}`;
}

export interface RangeOptions extends Described {
  readonly min?: number;
  readonly max?: number;
}

export function integer(options: RangeOptions = {}): Schema<number, number> {
  return numeric("integer", Number.isSafeInteger, options);
}

export function number(options: RangeOptions = {}): Schema<number, number> {
  return numeric("number", Number.isFinite, options);
}

/**
 * Of a whole: 0–100. A quotient of integers is the same floating-point number as its decimal form, so the test of the
 * decimals is exact.
 */
export function percent(options: Described = {}): Schema<number, number> {
  const fits = (value: number) => value === Math.round(value * 100) / 100;
  return numeric("number", fits, { min: 0, max: 100, ...options }, " with at most two decimals");
}

function numeric(
  type: "integer" | "number",
  fits: (value: number) => boolean,
  options: RangeOptions,
  form = "",
): Schema<number, number> {
  const { min = -Infinity, max = Infinity, describe } = options;
  const schema: Schema<number, number> = define({
    expects: `${type === "integer" ? "an integer" : "a number"}${rangeText(min, max)}${form}`,
    describe,
    kinds: ["number"],
    check(node, at, context) {
      const { value } = node;
      return fits(value) && value >= min && value <= max ? value : mismatch(schema, node, at, context);
    },
    jsonSchema: () => ({ type, ...(min > -Infinity && { minimum: min }), ...(max < Infinity && { maximum: max }) }),
  });
  return schema;
}

function rangeText(min: number, max: number): string {
  if (min === -Infinity) return max === Infinity ? "" : ` ≤ ${max}`;
  return max === Infinity || max === Number.MAX_SAFE_INTEGER ? ` ≥ ${min}` : ` ${min}–${max}`;
}

export function boolean(options: Described = {}): Schema<boolean, boolean> {
  return define({
    expects: "true or false",
    describe: options.describe,
    kinds: ["boolean"],
    check: ({ value }) => value,
    jsonSchema: () => ({ type: "boolean" }),
  });
}

/** One of a few literals. They are keywords: references are not resolved in them. */
export function oneOf<const T extends readonly (string | number)[]>(
  literals: T,
  options: Described & { readonly hint?: string } = {},
): Schema<T[number], T[number]> {
  const quoted = literals.map((literal) => JSON.stringify(literal));
  const schema: Schema<T[number], T[number]> = define({
    expects:
      options.hint ?? (quoted.length === 1 ? quoted[0]! : `${quoted.slice(0, -1).join(", ")} or ${quoted.at(-1)}`),
    describe: options.describe,
    kinds: ["string", "number"],
    check(node, at, context) {
      const { value } = node;
      if (literals.includes(value)) return value;
      const nearest = typeof value === "string" ? suggest(value, literals.map(String)) : undefined;
      return mismatch(schema, node, at, context, nearest && `did you mean "${nearest}"?`);
    },
    jsonSchema: () => ({ enum: literals }),
  });
  return schema;
}

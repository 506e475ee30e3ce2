/**
 * Reads the keywords of one schema object, and reports those whose value has the wrong form.
 */
import { linearPattern, type LinearPattern } from "./linear_pattern.ts";
import type { Check } from "./run.ts";
import { described, isObject, type Path } from "./values.ts";

export interface Problem {
  /** In the schema. */
  readonly at: Path;
  readonly message: string;
  /** The keyword itself is wrong, not its value. */
  readonly isAtKey?: boolean;
}

interface Compiler {
  readonly report: (at: Path, message: string) => void;
  /** `isSameValue`: the subschema applies to the value of this schema, not to a part of it. */
  readonly compile: (subschema: unknown, at: Path, isSameValue: boolean) => Check;
}

/** Each method returns undefined (or nothing in a list) for a keyword that is absent or wrong. */
export class SchemaReader {
  readonly #schema: Readonly<Record<string, unknown>>;
  readonly #at: Path;
  readonly #compiler: Compiler;

  constructor(schema: Readonly<Record<string, unknown>>, at: Path, compiler: Compiler) {
    this.#schema = schema;
    this.#at = at;
    this.#compiler = compiler;
  }

  value(keyword: string): unknown {
    return this.#schema[keyword];
  }

  text(keyword: string): string | undefined {
    return this.#checked(keyword, "a string", (value) => typeof value === "string");
  }

  number(keyword: string): number | undefined {
    return this.#checked(keyword, "a number", Number.isFinite);
  }

  count(keyword: string): number | undefined {
    return this.#checked(keyword, "an integer ≥ 0", (value) => Number.isSafeInteger(value) && (value as number) >= 0);
  }

  boolean(keyword: string): boolean | undefined {
    return this.#checked(keyword, "true or false", (value) => typeof value === "boolean");
  }

  names(...path: readonly string[]): readonly string[] {
    const value = path.reduce<any>((found, step) => found?.[step], this.#schema);
    if (value === undefined || (Array.isArray(value) && value.every((name) => typeof name === "string"))) return value ?? [];
    return this.expected("an array of names", ...path) ?? [];
  }

  object(keyword: string, expected: string): readonly (readonly [name: string, value: unknown])[] {
    return Object.entries(this.#checked<object>(keyword, expected, isObject) ?? {});
  }

  pattern(source: string, ...at: Path): LinearPattern | undefined {
    const pattern = linearPattern(source);
    return typeof pattern === "string" ? this.report(at, `the pattern ${pattern}`) : pattern;
  }

  /** The subschema under a keyword. */
  subschema(keyword: string, appliesTo: "same value" | "part"): Check | undefined {
    return this.value(keyword) === undefined ? undefined : this.#compile([keyword], appliesTo);
  }

  subschemas(keyword: string, appliesTo: "same value" | "part"): readonly Check[] {
    const list = this.#checked<unknown[]>(keyword, "an array with at least one schema", (value) => Array.isArray(value) && value.length > 0);
    return list?.map((_item, i) => this.#compile([keyword, i], appliesTo)) ?? [];
  }

  /** Subschemas by name, for parts of the value. */
  namedSubschemas(keyword: string): readonly (readonly [name: string, check: Check])[] {
    return this.object(keyword, "an object of schemas").map(([name]) => [name, this.#compile([keyword, name], "part")]);
  }

  expected(expected: string, ...path: Path): undefined {
    this.report(path, `expected ${expected}, found ${described(path.reduce<any>((found, step) => found[step], this.#schema))}`);
  }

  report(path: Path, message: string): undefined {
    this.#compiler.report([...this.#at, ...path], message);
  }

  #checked<T>(keyword: string, expected: string, fits: (value: unknown) => boolean): T | undefined {
    const value = this.value(keyword);
    return value === undefined || fits(value) ? (value as T | undefined) : this.expected(expected, keyword);
  }

  #compile(path: Path, appliesTo: "same value" | "part"): Check {
    const subschema = path.reduce<any>((found, step) => found[step], this.#schema);
    return this.#compiler.compile(subschema, [...this.#at, ...path], appliesTo === "same value");
  }
}

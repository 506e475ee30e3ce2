/**
 * JSON Schema, draft 2020-12: compiles a schema once into a function that reports all violations of a value. Unknown
 * keywords are errors.
 *
 * Clients choose the values, so the time a check takes is bounded: patterns never backtrack
 * (`lib/base/linear_pattern.ts`), and each run has a budget of steps that `$ref` and choices multiplied cannot exceed.
 * Long checks pause, so that the event loop can serve other requests.
 */
import { suggest } from "../base/suggest.ts";
import { KEYWORDS, type Subject } from "./keywords.ts";
import { propertyTypes, type TextTypes } from "./property_types.ts";
import type { Check, Done, Run } from "./run.ts";
import { definitionPath, described, isObject, pointerStep, valueAt, type InstancePath } from "./values.ts";

export { readJson } from "./read_json.ts";
export { andThen, eachOf, resumed, Run, TooMuchWork, Work, type Done } from "./run.ts";
export type { TextTypes };

export interface CompiledSchema {
  /**
   * Adds the violations of the value to `run`; a promise if it had to pause. Throws, or rejects with, `TooMuchWork`.
   */
  readonly check: (value: unknown, run: Run) => Done;
  /** The types that the schema allows for a property: values of a query or header arrive as text. */
  readonly typesOf: (property: string) => TextTypes;
}

export interface Problem {
  /** In the schema. */
  readonly at: InstancePath;
  readonly message: string;
  /** The keyword itself is invalid, not its value. */
  readonly isAtKey?: boolean;
}

/** Compiles a schema, given as `JSON.parse` returns it, or returns all its errors. */
export function compileJsonSchema(root: unknown): CompiledSchema | readonly Problem[] {
  const compiler = new Compiler(root);
  const check = compiler.compile();
  if (compiler.problems.length > 0) return compiler.problems;
  return { check: (value, run) => check(value, "", run), typesOf: propertyTypes(root) };
}

class Compiler {
  readonly problems: Problem[] = [];
  readonly #root: unknown;
  readonly #definitions = new Map<string, { check: Check }>();
  /** References followed without a step into the value: a cycle of them would never end. */
  readonly #edges = new Map<string, Set<string>>();

  constructor(root: unknown) {
    this.#root = root;
  }

  compile(): Check {
    const check = this.#definition([]);
    if (isObject(this.#root) && this.#root.$defs !== undefined) {
      // Errors are reported in unused definitions, too.
      if (isObject(this.#root.$defs))
        for (const name of Object.keys(this.#root.$defs)) this.#definition(["$defs", name]);
      else this.#report(["$defs"], `expected an object of schemas, found ${described(this.#root.$defs)}`);
    }
    const circular = [...this.#edges.keys()].find((reference) => this.#leadsTo(reference, reference, new Set()));
    if (circular !== undefined)
      this.#report(
        [],
        `"$ref" leads in a circle: ${circular} refers to itself before it comes to anything within the value`,
      );
    return check;
  }

  #leadsTo(from: string, to: string, seen: Set<string>): boolean {
    for (const next of this.#edges.get(from) ?? []) {
      if (next === to) return true;
      if (seen.has(next)) continue;
      seen.add(next);
      if (this.#leadsTo(next, to, seen)) return true;
    }
    return false;
  }

  /** Compiles the root or a definition once; it may refer to itself. */
  #definition(path: InstancePath): Check {
    const name = nameOf(path);
    let definition = this.#definitions.get(name);
    if (definition === undefined) {
      definition = { check: PASS };
      this.#definitions.set(name, definition);
      this.#edges.set(name, new Set());
      definition.check = this.#schema(valueAt(this.#root, path), path, name);
    }
    const found = definition;
    return (value, pointer, run) => found.check(value, pointer, run);
  }

  /**
   * `sameValue` is the definition being compiled, as long as its subschemas apply to the same value; null deeper in the
   * value.
   */
  #schema(given: unknown, at: InstancePath, sameValue: string | null): Check {
    if (given === true) return PASS;
    if (given === false) return (_value, pointer, run) => run.add(pointer, "is not allowed");
    if (!isObject(given)) {
      this.#report(at, `expected a schema: an object, true or false, found ${described(given)}`);
      return PASS;
    }
    const valid: Record<string, unknown> = {};
    const subject: Subject = {
      schema: valid,
      report: (path, message) => this.#report([...at, ...path], message),
      expected: (path, expected) => {
        this.#report(
          [...at, ...path],
          `expected ${expected}, found ${described(path.reduce<any>((found, step) => found[step], given))}`,
        );
        return false;
      },
      compile: (path, appliesTo) =>
        this.#schema(
          path.reduce<any>((found, step) => found[step], given),
          [...at, ...path],
          appliesTo === "part" ? null : sameValue,
        ),
    };
    this.#checkNames(given, at);
    const checks: Check[] = [];
    const reference = given.$ref === undefined ? undefined : this.#reference(given.$ref, subject, sameValue);
    if (reference !== undefined) checks.push(reference);
    for (const [keyword, { isValid }] of Object.entries(KEYWORDS)) {
      const value = given[keyword];
      if (value !== undefined && isValid(value, [keyword], subject)) valid[keyword] = value;
    }
    for (const [keyword, value] of Object.entries(valid)) {
      const check = KEYWORDS[keyword]!.check?.(value, subject, keyword);
      if (check !== undefined) checks.push(check);
    }
    return (value, pointer, run) => {
      run.work.spendOn(value);
      return run.work.isDue
        ? run.work.pause().then(() => inTurn(checks, value, pointer, run, 0))
        : inTurn(checks, value, pointer, run, 0);
    };
  }

  #checkNames(schema: object, at: InstancePath): void {
    for (const [keyword, value] of Object.entries(schema)) {
      const report = (message: string) => void this.problems.push({ at: [...at, keyword], message, isAtKey: true });
      if (!CONSTRAINTS.includes(keyword) && !ANNOTATIONS.includes(keyword)) {
        const nearest = suggest(keyword, CONSTRAINTS);
        report(
          `is not a known ` +
            `keyword${nearest === undefined ? ` (known: ${CONSTRAINTS.join(", ")})` : `; did you mean "${nearest}"?`}`,
        );
      } else if (keyword === "$defs" && at.length > 0) report("is allowed only at the top of a schema");
      else if (keyword === "$schema" && !DRAFT.test(String(value))) report("has to name draft 2020-12");
    }
  }

  #reference(given: unknown, subject: Subject, sameValue: string | null): Check | undefined {
    const path = typeof given === "string" ? definitionPath(given) : null;
    if (path === null || valueAt(this.#root, path) === undefined) {
      subject.report(["$ref"], `"$ref" leads nowhere: write "#" or "#/$defs/NAME" with a name that is there`);
      return undefined;
    }
    if (sameValue !== null) this.#edges.get(sameValue)!.add(nameOf(path));
    return this.#definition(path);
  }

  #report(at: InstancePath, message: string): void {
    this.problems.push({ at, message });
  }
}

function nameOf(path: InstancePath): string {
  return path.length === 0 ? "#" : `#/$defs/${pointerStep(String(path[1]))}`;
}

const CONSTRAINTS = ["$ref", ...Object.keys(KEYWORDS)];
/** Keywords that do not constrain values. */
const ANNOTATIONS = [
  "$schema",
  "$comment",
  "$defs",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
];
const DRAFT = /^https:\/\/json-schema\.org\/draft\/2020-12\/schema#?$/;

const PASS: Check = (_value, _pointer, run) => run.step();

function inTurn(checks: readonly Check[], value: unknown, pointer: string, run: Run, from: number): Done {
  for (let i = from; i < checks.length && !run.isFull; i++) {
    // A check that cannot pause itself is followed by a pause.
    const done = checks[i]!(value, pointer, run) ?? (run.work.isDue ? run.work.pause() : undefined);
    if (done !== undefined) return done.then(() => inTurn(checks, value, pointer, run, i + 1));
  }
}

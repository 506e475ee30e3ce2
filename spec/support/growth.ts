/**
 * Compares the cost of work for a small and a large input by counting its steps, which are the same on every machine
 * and at any load: blocks of code that V8 executes, steps of a backtracking engine for each regular expression, and the
 * characters and elements that built-in functions read, move or make.
 *
 * Not counted: what an operator copies, such as the flattening of a text that was joined with `+`.
 */
import { Session } from "node:inspector";
import { setFlagsFromString } from "node:v8";
import { onTestFinished, vi } from "vitest";
import { regexpSteps } from "./regexp_steps.ts";

/** What `growth` may give for linear work: 8, with room for the number of digits in a size, or a logarithm. */
export const LINEAR = 10;

/**
 * Loads modules so that `growth` can count their blocks: V8 counts those of functions only that it compiles meanwhile.
 * For one test; in it the modules and all that they import are new, other than those that its file imports.
 */
export async function counted<Modules>(load: () => Promise<Modules>): Promise<Modules> {
  const session = new Session();
  session.connect();
  // V8 calls back before `post` returns, since it is in this thread.
  profiler = (method, parameters) => {
    let answer: unknown;
    session.post(`Profiler.${method}`, parameters, (error, result) => {
      if (error !== null) throw new Error(error.message);
      answer = result;
    });
    return answer as Coverage;
  };
  // Optimized code does not count the functions that are inlined into it.
  for (const tier of OPTIMIZERS) setFlagsFromString(`--no-${tier}`);
  profiler("enable");
  profiler("startPreciseCoverage", { callCount: true, detailed: true });
  onTestFinished(() => {
    session.disconnect();
    profiler = null;
    for (const tier of OPTIMIZERS) setFlagsFromString(`--${tier}`);
    vi.resetModules();
  });
  vi.resetModules();
  return load();
}

const OPTIMIZERS = Number(process.versions.node.split(".")[0]) < 22 ? ["opt"] : ["opt", "maglev"];

interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly { readonly ranges: readonly { readonly count: number }[] }[];
  }[];
}

let profiler: ((method: string, parameters?: object) => Coverage) | null = null;

/** How many times as many steps `work` takes for an input eight times as large: 8 if linear, 64 if quadratic. */
export function growth(work: (size: number) => void, size: number): number {
  // What is made when first wanted is there.
  work(size);
  const small = steps(() => work(size));
  return steps(() => work(size * 8)) / small;
}

/** The steps of work that is done when it returns. */
function steps(work: () => void): number {
  const end = beginCounting();
  try {
    work();
  } finally {
    end();
  }
  return total();
}

/**
 * The blocks of work that waits; what it does in built-in functions is not counted, since others use them meanwhile.
 */
export async function blocksOf(work: () => Promise<void>): Promise<number> {
  blocks();
  await work();
  inBuiltIns = 0;
  return total();
}

/** The steps in built-in functions. */
let inBuiltIns = 0;

function beginCounting(): () => void {
  blocks();
  const undo = COSTS.flatMap(([owner, cost, names]) => names.map((name) => replaced(owner, name, cost)));
  inBuiltIns = 0;
  return () => {
    for (const each of undo) each();
  };
}

function total(): number {
  const executed = blocks();
  if (executed === 0) throw new Error("no code was executed that was loaded with `counted`");
  return executed + inBuiltIns;
}

/** How often blocks of `lib` were executed since the last call. */
function blocks(): number {
  if (profiler === null) throw new Error("growth counts in modules that the test loads with `counted`");
  let sum = 0;
  for (const { url, functions } of profiler("takePreciseCoverage").result) {
    if (!COUNTED.test(url)) continue;
    for (const { ranges } of functions) for (const { count } of ranges) sum += count;
  }
  return sum;
}

const COUNTED = /^(?!.*\/node_modules\/).*\/(?:lib\/|support\/growth_planted)/;

type Cost = (self: never, parameters: never, result: never) => number;

interface Long {
  readonly length: number;
}

const whole = (self: Long) => self.length;
const made = (_self: unknown, _parameters: unknown, result: Long) => result.length;
const parameter = (_self: unknown, [text]: readonly [Long]) => text.length;
const searched = (self: Long, [, from]: readonly [unknown, number?], found: number) =>
  found < 0 ? Math.max(0, self.length - (from ?? 0)) : found - (from ?? 0) + 1;
const searchedBackwards = (self: Long, [, from]: readonly [unknown, number?], found: number) =>
  Math.min(self.length, from ?? self.length) - found;
const filled = (self: Long, [, from, to]: readonly [unknown, number?, number?]) => (to ?? self.length) - (from ?? 0);
const matched = (self: RegExp, [text]: readonly [string]) => regexpSteps(self, text);

/** The prototype of all typed arrays. */
const TYPED = Object.getPrototypeOf(Uint8Array.prototype) as object;

/**
 * The cost of each built-in function whose time is not constant; those that call a function are counted by its blocks.
 */
const COSTS: readonly (readonly [owner: object, cost: Cost, names: readonly PropertyKey[]])[] = [
  [RegExp.prototype, matched, ["exec"]],
  [String.prototype, searched, ["indexOf"]],
  [String.prototype, searchedBackwards, ["lastIndexOf"]],
  [String.prototype, whole, ["includes", "split", "replace", "replaceAll", "normalize", "localeCompare"]],
  [String.prototype, made, ["slice", "substring", "trim", "trimStart", "trimEnd", "toLowerCase", "toUpperCase"]],
  [String.prototype, made, ["concat", "repeat", "padStart", "padEnd"]],
  [Array.prototype, searched, ["indexOf"]],
  [Array.prototype, searchedBackwards, ["lastIndexOf"]],
  [Array.prototype, whole, ["includes", "shift", "unshift", "splice", "reverse", "sort", Symbol.iterator]],
  [Array.prototype, filled, ["fill"]],
  [Array.prototype, made, ["join", "concat", "slice", "flat"]],
  [TYPED, made, ["slice"]],
  [TYPED, parameter, ["set"]],
  [TYPED, filled, ["fill"]],
  [Buffer, made, ["concat"]],
  [Buffer.prototype, made, ["toString", "latin1Slice", "utf8Slice"]],
  [Buffer.prototype, whole, ["copy", "indexOf", "includes", "equals"]],
  [Object, made, ["keys", "values", "entries"]],
  [JSON, made, ["stringify"]],
  [JSON, parameter, ["parse"]],
];

/** Found out before the work: it can change an array, or the place where a search goes on. */
const EARLY: readonly Cost[] = [matched, whole];

const NOTHING = undefined as never;

/** While a cost is found out, which uses the same functions. */
let accounting = false;

/** Puts a function that counts in the place of a built-in one. Returns what puts it back. */
function replaced(owner: object, name: PropertyKey, cost: Cost): () => void {
  const before = Object.getOwnPropertyDescriptor(owner, name)!;
  const original = before.value as (...parameters: unknown[]) => unknown;
  const isEarly = EARLY.includes(cost);
  const costOf: Cost = (...known) => {
    accounting = true;
    try {
      return cost(...known);
    } finally {
      accounting = false;
    }
  };
  const value = function (this: never, ...parameters: never[]): unknown {
    if (accounting) return Reflect.apply(original, this, parameters);
    const early = isEarly ? costOf(this, parameters as never, NOTHING) : null;
    const result = Reflect.apply(original, this, parameters);
    inBuiltIns += 1 + (early ?? costOf(this, parameters as never, (result ?? "") as never));
    return result;
  };
  Object.defineProperty(owner, name, { ...before, value });
  return () => void Object.defineProperty(owner, name, before);
}

/**
 * Keeps a process to the code that it started with: a module that is imported later runs only if its SHA-256 is that
 * of the start, also in threads. What is hashed is what runs. `build/build.ts` makes the manifest.
 */
import { hash } from "node:crypto";
import { readFileSync } from "node:fs";
import * as nodeModule from "node:module";
import { fileURLToPath } from "node:url";
import { Fault } from "./errors.ts";

type ResolveHook = nodeModule.ResolveHook;
type LoadHook = nodeModule.LoadHook;
/** In Node since 22.15, and not in the types of Node 20. */
type RegisterHooks = (hooks: { readonly resolve: ResolveHook; readonly load: LoadHook }) => void;
const { registerHooks } = nodeModule as { readonly registerHooks?: RegisterHooks };

/** SHA-256 in hexadecimal digits, by the path below `dist/`: "lib/base/own_code.js". */
export type Sums = Readonly<Record<string, string>>;

export const REPLACED = "the program's files have been replaced since the start: restart it";

/** Below `dist/`. */
export const MANIFEST = "lib/modules.json";
const FOLDER = new URL("../../", import.meta.url).href;

/** Of the start. Null: this is the program as its sources, which change while somebody works on them. */
const SUMS = import.meta.url.endsWith(".ts") ? null : readManifest();

/** A sentence if it cannot be read, as in a bundle of a program that embeds the gateway. */
function readManifest(): Sums | string {
  const file = new URL(MANIFEST, FOLDER);
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Sums;
  } catch {
    return `${fileURLToPath(file)} cannot be read: install the program again`;
  }
}

/** Why `holdToStart` cannot hold anything; null: it can. */
export function manifestProblem(): string | null {
  return typeof SUMS === "string" ? SUMS : null;
}

/** Of the process, as hooks of imports are. */
const state = {
  sums: null as Sums | null,
  /** A thread of hooks is begun with the first import that needs it. */
  isHooked: false,
  isReplaced: false,
};

/**
 * From now on the imports of this process are checked. Programs that embed the gateway do not call it: imports are
 * theirs.
 */
export function holdToStart(): void {
  if (SUMS === null || typeof SUMS === "string") return;
  state.sums = SUMS;
  // Node 20, and 22 before 22.15, run hooks in a thread, which most gateways never need.
  if (registerHooks !== undefined) hook(SUMS);
}

/** The same in a thread. `sums`: those of the process. */
export function holdThread(sums: Sums): void {
  state.sums = sums;
  hook(sums);
}

function hook(sums: Sums): void {
  state.isHooked = true;
  if (registerHooks === undefined) nodeModule.register(import.meta.url, { data: sums });
  else registerHooks({ resolve, load });
}

/** In the thread of hooks. */
export function initialize(sums: Sums): void {
  state.sums = sums;
}

/** A file that is gone is resolved all the same, so that `load` says what has happened to it. */
export const resolve: ResolveHook = (specifier, context, next) => {
  const isOwn = specifier.startsWith(".") && context.parentURL?.startsWith(FOLDER) === true;
  const url = isOwn ? new URL(specifier, context.parentURL).href : specifier;
  return sumOf(url) === undefined ? next(specifier, context) : { url, format: "module", shortCircuit: true };
};

/** In the thread of hooks `next` gives a promise. */
export const load: LoadHook = (url, context, next) => {
  const sum = sumOf(url);
  if (sum === undefined) return next(url, context);
  const checked = (loaded: nodeModule.LoadFnOutput) => {
    if (!hasSum(loaded.source, sum)) refuse();
    return loaded;
  };
  try {
    const loaded: unknown = next(url, context);
    if (loaded instanceof Promise) return loaded.then(checked, refuse);
    return checked(loaded as nodeModule.LoadFnOutput);
  } catch {
    return refuse(); // It is gone, or may not be read.
  }
};

function refuse(): never {
  state.isReplaced = true;
  throw new Error(REPLACED);
}

function hasSum(source: nodeModule.ModuleSource | undefined, sum: string | undefined): boolean {
  return source !== undefined && hash("sha256", source as Buffer) === sum;
}

/** Undefined: it is no module of the program. */
function sumOf(url: string): string | undefined {
  return url.startsWith(FOLDER) ? state.sums?.[url.slice(FOLDER.length)] : undefined;
}

/** What `load` imports. Throws a `Fault` where the files of the program have been replaced since it started. */
export async function importedLater<T>(load: () => Promise<T>): Promise<T> {
  if (state.sums !== null && !state.isHooked) hookInThread(state.sums);
  try {
    return await load();
  } catch (error) {
    throw asReplaced(error) ?? error;
  }
}

/** Where Node's permission model forbids that thread, all modules are compared before each import. */
function hookInThread(sums: Sums): void {
  check(OF_HOOKS, sums);
  try {
    hook(sums);
  } catch {
    state.isHooked = false;
    check(Object.keys(sums), sums);
  }
}

function isAsAtStart(path: string, sum: string | undefined): boolean {
  try {
    return hasSum(readFileSync(new URL(path, FOLDER)), sum);
  } catch {
    return false;
  }
}

function replaced(): Fault {
  state.isReplaced = true;
  return new Fault("overloaded", REPLACED);
}

/** For the error of a module that was not imported, here or in a thread. Null: it is another error. */
export function asReplaced(error: unknown): Fault | null {
  return error instanceof Error && error.message.includes(REPLACED) ? replaced() : null;
}

/** Whether a module that was to be imported has been replaced since the start. */
export function isProgramReplaced(): boolean {
  return state.isReplaced;
}

/** What checks the imports of a thread; nothing else checks these files there. */
const OF_HOOKS = ["lib/base/errors.js", "lib/base/own_code.js"];
const FIRST = "lib/base/thread_code.js";

function check(paths: readonly string[], sums: Sums): void {
  if (!paths.every((path) => isAsAtStart(path, sums[path]))) throw replaced();
}

/** For `workerData` of a thread that begins with `thread_code.ts`. */
export interface ThreadCheck {
  readonly sums: Sums;
  /** The URL of the module that the thread runs. */
  readonly program: string;
}

/**
 * The first module of a thread that runs `program`, and what to add to its `workerData`: its imports are checked from
 * the first one on. Throws a `Fault` where the program's files have been replaced.
 */
export function checkedThread(program: URL): { readonly first: URL; readonly held: ThreadCheck | null } {
  const { sums } = state;
  if (sums === null) return { first: program, held: null };
  check([...OF_HOOKS, FIRST], sums);
  return { first: new URL(FIRST, FOLDER), held: { sums, program: program.href } };
}

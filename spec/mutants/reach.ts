/**
 * Which specs reach which function of lib: one run of the suite over a copy in which every function says that it was
 * called, also in the programs and threads that specs start. Kept below node_modules until a source changes.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse, walk, type TreeNode } from "./changes.ts";
import { ProjectCopy, REACHED_FOLDER } from "./project_copy.ts";
import { runSpecs } from "./spec_run.ts";

export interface Reach {
  /** Of one file in the order of their beginnings, so that of two that hold a place the inner one comes later. */
  readonly functions: readonly { readonly file: string; readonly start: number; readonly end: number }[];
  readonly specs: readonly SpecReach[];
  /** They fail in a copy, or beside the calls that say what was reached, and so say nothing of a change. */
  readonly leftOut: readonly string[];
}

export interface SpecReach {
  readonly spec: string;
  /** How long it took; of a file that runs in two projects, in both. */
  readonly milliseconds: number;
  /** Indices into `functions`, in ascending order. */
  readonly functions: readonly number[];
}

/** The first of what a program or thread loads. Without rights to write it stays silent. */
const COLLECTOR = (folder: string) => `import { writeFileSync } from "node:fs";
const reached = new Set<number>();
(globalThis as { __reached?: (index: number) => void }).__reached = (index) => void reached.add(index);
process.on("exit", () => {
  const name = [process.ppid, process.pid, process.hrtime.bigint()].join("-");
  try {
    writeFileSync(${JSON.stringify(`${folder}/`)} + name, [...reached].join(" "));
  } catch {}
});
export {};
`;

/** `files` are all that may be changed; `specs` are words for vitest, none for all. */
export async function reachOf(project: string, files: readonly string[], specs: readonly string[]): Promise<Reach> {
  const cached = join(project, "node_modules/.cache/mutants", `${sumOf(project, files, specs)}.json`);
  try {
    return JSON.parse(readFileSync(cached, "utf8")) as Reach;
  } catch {
    const reach = await measure(project, files, specs);
    mkdirSync(join(cached, ".."), { recursive: true });
    writeFileSync(cached, JSON.stringify(reach));
    return reach;
  }
}

async function measure(project: string, files: readonly string[], specs: readonly string[]): Promise<Reach> {
  const copy = new ProjectCopy(project);
  try {
    const functions: { file: string; start: number; end: number }[] = [];
    for (const file of files) copy.write(file, withCalls(file, copy.read(file), functions));
    const folder = join(copy.folder, REACHED_FOLDER);
    mkdirSync(folder);
    copy.write("lib/base/reached.ts", COLLECTOR(folder));
    copy.write("bin/edge-gateway.ts", firstOf(copy.read("bin/edge-gateway.ts"), "../lib/base/reached.ts"));
    copy.write("lib/cluster/worker.ts", firstOf(copy.read("lib/cluster/worker.ts"), "../base/reached.ts"));
    copy.build();
    const { failed, ran } = await runSpecs(copy.folder, specs, { config: "spec/mutants/vitest.config.ts" });
    if (ran.length === 0) throw new Error("no spec has run");
    const leftOut = failed.map(({ spec }) => spec);
    return { functions, specs: collected(folder).filter(({ spec }) => !leftOut.includes(spec)), leftOut };
  } finally {
    copy.remove();
  }
}

/** What `collect.ts` has written. */
function collected(folder: string): SpecReach[] {
  const bySpec = new Map<string, { milliseconds: number; readonly functions: Set<number> }>();
  for (const name of readdirSync(folder).filter((name) => name.endsWith(".json"))) {
    const { spec, milliseconds, functions } = JSON.parse(readFileSync(join(folder, name), "utf8")) as SpecReach;
    const all = bySpec.get(spec) ?? { milliseconds: 0, functions: new Set() };
    bySpec.set(spec, all);
    all.milliseconds += milliseconds;
    for (const index of functions) all.functions.add(index);
  }
  return [...bySpec].map(([spec, { milliseconds, functions }]) => {
    return { spec, milliseconds, functions: [...functions].sort((one, other) => one - other) };
  });
}

/** The text, with a call at the begin of each function. */
function withCalls(file: string, text: string, functions: { file: string; start: number; end: number }[]): string {
  const inserted: { at: number; text: string }[] = [];
  walk(parse(file, text), (node) => {
    const body = node.body as TreeNode | null | undefined;
    if (!isFunction(node) || !body) return;
    const call = `(globalThis as any).__reached?.(${functions.length})`;
    functions.push({ file, start: node.start, end: node.end });
    if (body.type === "BlockStatement") inserted.push({ at: body.start + 1, text: `${call};` });
    else inserted.push({ at: body.start, text: `(${call}, ` }, { at: body.end, text: ")" });
  });
  let result = text;
  // From the last one on; of those at one place the one of the outer function goes before.
  for (const { at, text: piece } of inserted.sort((one, other) => other.at - one.at)) {
    result = result.slice(0, at) + piece + result.slice(at);
  }
  return result;
}

function isFunction({ type }: TreeNode): boolean {
  return type === "FunctionDeclaration" || type === "FunctionExpression" || type === "ArrowFunctionExpression";
}

/** Behind a line for the system that runs it, before any import. */
function firstOf(text: string, path: string): string {
  const at = text.startsWith("#!") ? text.indexOf("\n") + 1 : 0;
  return `${text.slice(0, at)}import ${JSON.stringify(path)};\n${text.slice(at)}`;
}

/**
 * The specs that reach a place, nearest first: those that reach least besides. Of a place outside of functions, those
 * that reach any function of its file.
 */
export function specsOf({ functions, specs }: Reach, file: string, start: number): SpecReach[] {
  const inFile = functions.map((each, index) => ({ ...each, index })).filter((each) => each.file === file);
  const around = inFile.filter((each) => each.start <= start && start < each.end);
  const wanted = new Set((around.length > 0 ? around.slice(-1) : inFile).map(({ index }) => index));
  return specs
    .filter((each) => each.functions.some((index) => wanted.has(index)))
    .sort((one, other) => one.functions.length - other.functions.length || (one.spec < other.spec ? -1 : 1));
}

function sumOf(project: string, files: readonly string[], specs: readonly string[]): string {
  const hash = createHash("sha256").update(JSON.stringify([files, specs]));
  for (const file of [
    ...files,
    ...readdirSync(join(project, "spec"), { recursive: true, encoding: "utf8" })
      .filter((path) => path.endsWith(".ts") && !path.includes("node_modules"))
      .map((path) => join("spec", path))
      .sort(),
  ]) {
    hash.update(readFileSync(join(project, file)));
  }
  return hash.digest("hex").slice(0, 16);
}

/**
 * `npm run mutants -- [--seed N] [--count N] [--files GLOB] [--specs WORD,…]`: makes small changes to
 * lib, one at a time, and runs the specs that reach them. A change that none of them tells is printed: either a promise
 * to users has no spec, or code does nothing. Exit status 0 where all were told, 1 where not, 2 where the words are
 * wrong. Takes the time of the suite, once for each state of the sources, and then some seconds for each change.
 */
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { createFilter } from "vite";
import { filesOf } from "../../build/files.ts";
import { messageOf } from "../../lib/base/errors.ts";
import { random } from "../support/random.ts";
import { changesOf, type Change } from "./changes.ts";
import { reasonOf } from "./equivalent.ts";
import { ProjectCopy } from "./project_copy.ts";
import { reachOf, specsOf, type Reach } from "./reach.ts";
import { runSpecs } from "./spec_run.ts";

const PROJECT = join(import.meta.dirname, "../..");
/** Runs of vitest end sooner with few files, and most changes are told by the nearest ones. */
const FIRST_SPECS = 6;
/** Of a run of vitest without specs. */
const START_MS = 12_000;
/** A run that takes so many times as long as it took without a change has no end. */
const SLACK = 5;

interface Options {
  readonly seed: number;
  readonly count: number;
  readonly files: string;
  /** Words for vitest: only these are run. */
  readonly specs: readonly string[];
}

function optionsOf(words: string[]): Options {
  const { values } = parseArgs({
    args: words,
    options: {
      seed: { type: "string", default: "1" },
      count: { type: "string", default: "300" },
      files: { type: "string", default: "lib/**/*.ts" },
      specs: { type: "string", default: "" },
    },
  });
  const wholeNumber = (name: "seed" | "count") => {
    if (!/^\d{1,9}$/.test(values[name])) throw new Error(`--${name} takes a whole number, not "${values[name]}"`);
    return Number(values[name]);
  };
  return {
    seed: wholeNumber("seed"),
    count: wholeNumber("count"),
    files: values.files,
    specs: values.specs.split(",").filter(Boolean),
  };
}

type Outcome =
  | { readonly kind: "told"; readonly by: string }
  | { readonly kind: "untold"; readonly specs: number }
  | { readonly kind: "same"; readonly reason: string }
  | { readonly kind: "broken" };

async function outcomeOf(change: Change, copy: ProjectCopy, reach: Reach): Promise<Outcome> {
  const text = readFileSync(join(PROJECT, change.file), "utf8");
  const reason = reasonOf(change, text);
  if (reason !== null) return { kind: "same", reason };
  const changed = text.slice(0, change.start) + change.after + text.slice(change.end);
  if (!(await copy.change(change.file, changed))) return { kind: "broken" };
  const specs = specsOf(reach, change.file, change.start);
  for (const some of [specs.slice(0, FIRST_SPECS), specs.slice(FIRST_SPECS)]) {
    if (some.length === 0) break;
    const limit = SLACK * (START_MS + some.reduce((sum, { milliseconds }) => sum + milliseconds, 0));
    const words = some.map(({ spec }) => spec);
    const { failed, isCutOff } = await runSpecs(copy.folder, words, { isBailing: true, limit });
    if (isCutOff) return { kind: "told", by: `no end within ${Math.round(limit / 1000)} s` };
    if (failed.length > 0) return { kind: "told", by: `${failed[0]!.spec}: ${failed[0]!.test}` };
  }
  return { kind: "untold", specs: specs.length };
}

async function run({ seed, count, files: glob, specs }: Options): Promise<boolean> {
  const all = filesBelow("lib/**/*.ts");
  const files = filesBelow(glob).filter((file) => all.includes(file));
  if (files.length === 0) throw new Error(`no file of lib matches "${glob}"`);
  const changes = files.flatMap((file) => changesOf(file, readFileSync(join(PROJECT, file), "utf8")));
  console.log(`${changes.length} changes are possible in ${files.length} files; seed ${seed}`);
  const reach = await reachOf(PROJECT, all, specs);
  for (const spec of reach.leftOut) console.log(`left out, since it fails in a copy: ${spec}`);
  const copy = new ProjectCopy(PROJECT);
  const counts = { told: 0, untold: 0, same: 0, broken: 0 };
  try {
    copy.build();
    for (const change of shuffled(changes, seed)) {
      if (counts.told + counts.untold + counts.same >= count) break;
      const outcome = await outcomeOf(change, copy, reach);
      counts[outcome.kind] += 1;
      const what = `${change.file}:${change.line}  ${oneLine(change.before)} → ${oneLine(change.after)}`;
      if (outcome.kind === "told") console.log(`told      ${what}  (${outcome.by})`);
      if (outcome.kind === "untold") console.log(`SURVIVED  ${what}  (${outcome.specs} files with specs reach it)`);
      if (outcome.kind === "same") console.log(`same      ${what}  (${outcome.reason})`);
    }
  } finally {
    copy.remove();
  }
  const { told, untold, same, broken } = counts;
  const share = told + untold === 0 ? 100 : (100 * told) / (told + untold);
  console.log(
    `${told} of ${told + untold} changes were told (${share.toFixed(1)} %), ${same} make no difference; ` +
      `${broken} more did not compile`,
  );
  return untold === 0;
}

/** Without the pages, which run in browsers. */
function filesBelow(glob: string): string[] {
  const isMeant = createFilter(glob, "lib/manager/assets/**", { resolve: PROJECT });
  return filesOf(join(PROJECT, "lib"))
    .filter((path) => path.endsWith(".ts") && isMeant(path))
    .map((path) => relative(PROJECT, path))
    .sort();
}

function shuffled(changes: readonly Change[], seed: number): Change[] {
  const { int } = random(seed);
  const result = [...changes];
  for (let index = result.length - 1; index > 0; index--) {
    const other = int(0, index);
    [result[index], result[other]] = [result[other]!, result[index]!];
  }
  return result;
}

function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

// So that copies and runs end as well.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
try {
  process.exitCode = (await run(optionsOf(process.argv.slice(2)))) ? 0 : 1;
} catch (error) {
  console.error(`mutants: ${messageOf(error)}`);
  process.exitCode = 2;
}

/**
 * The code that one small GET with a key and a rate limit runs through stays short, and `ARCHITECTURE.md` describes it
 * as it is.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import type { CalledFunction, Way } from "./support/way.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const MAX_FILES = 24;
const MAX_LOOK_UPS = 6;
const MAX_LINES = 2_000;

let way: Way;

beforeAll(() => {
  const tsx = fileURLToPath(new URL("../node_modules/tsx/dist/cli.mjs", import.meta.url));
  way = JSON.parse(
    execFileSync(process.execPath, [tsx, "spec/support/way.ts", "--json"], { cwd: ROOT, encoding: "utf8" }),
  ) as Way;
}, 60_000);

describe("one small GET with a key and a rate limit", () => {
  it(`runs through at most ${MAX_FILES} files and ${MAX_LINES} lines of lib`, () => {
    const lines = Object.values(way.files).reduce((sum, each) => sum + each, 0);
    expect(way.calls.length).toBeGreaterThan(50);
    expect(Object.keys(way.files).length, Object.keys(way.files).join("\n")).toBeLessThanOrEqual(MAX_FILES);
    expect(lines).toBeLessThanOrEqual(MAX_LINES);
  });

  it(`has at most ${MAX_LOOK_UPS} look-ups: calls where the caller does not say whose code runs`, () => {
    expect(way.lookUps["Handler"]!.length).toBeGreaterThan(3);
    expect(Object.keys(way.lookUps).length, JSON.stringify(way.lookUps, null, 2)).toBeLessThanOrEqual(MAX_LOOK_UPS);
  });

  it("calls the functions that ARCHITECTURE.md names for it, in that order", () => {
    const steps = stepsOf(readFileSync(`${ROOT}ARCHITECTURE.md`, "utf8"));
    expect(steps.length).toBeGreaterThan(20);
    let last = -1;
    for (const { file, name } of steps) {
      const at = way.calls.findIndex((called, i) => i > last && called.file === file && nameOf(called) === name);
      expect(at, `${file} ${name}, after ${last < 0 ? "the start" : nameOf(way.calls[last]!)}`).toBeGreaterThan(last);
      last = at;
    }
  });
});

/** The rows `| … | `lib/…ts` | `name` | …` of the section "One GET, call by call". */
function stepsOf(document: string): { readonly file: string; readonly name: string }[] {
  const section = document.split(/^## /m).find((part) => part.startsWith("One GET, call by call")) ?? "";
  return [...section.matchAll(/^\|[^|]*\| `(lib\/[\w/]+\.ts)` \| `(#?\w*)` \|/gm)].map(([, file, name]) => ({
    file: file!,
    name: name!,
  }));
}

/** Without "get", which V8 puts before getters. */
function nameOf({ name }: CalledFunction): string {
  return name.replace(/^get /, "");
}

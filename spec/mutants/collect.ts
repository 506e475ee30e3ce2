/** Of a run that measures what specs reach (`reach.ts`): a setup file, which runs before each file with specs. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, expect } from "vitest";
import { REACHED_FOLDER } from "./project_copy.ts";

const folder = join(process.cwd(), REACHED_FOLDER);
const since = performance.now();
const reached = new Set<number>();
(globalThis as { __reached?: (index: number) => void }).__reached = (index) => void reached.add(index);

afterAll(() => {
  const spec = relative(process.cwd(), expect.getState().testPath!);
  mkdirSync(folder, { recursive: true });
  // What programs have left that this process started, and that have ended.
  for (const name of readdirSync(folder)) {
    if (!name.startsWith(`${process.pid}-`) || name.endsWith(".json")) continue;
    const path = join(folder, name);
    for (const index of readFileSync(path, "utf8").split(" ")) if (index !== "") reached.add(Number(index));
    rmSync(path);
  }
  const path = join(folder, `${process.pid}-${process.hrtime.bigint()}.json`);
  writeFileSync(
    path,
    JSON.stringify({ spec, milliseconds: Math.round(performance.now() - since), functions: [...reached] }),
  );
});

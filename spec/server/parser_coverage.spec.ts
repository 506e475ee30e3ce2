/** The tables of cases take every branch of the code that reads requests and writes the heads of replies. */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { SourceMap, type SourceMapPayload } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it, onTestFinished } from "vitest";

const FILES = [
  "lib/server/request_head.ts",
  "lib/server/request_head.ts",
  "lib/http/body_reader.ts",
  "lib/http/headers.ts",
  "lib/server/client_reply.ts",
];
/** Of the files that do more than that: the functions that write the heads of replies. */
const FUNCTIONS: Readonly<Record<string, readonly string[]>> = {
  "lib/http/headers.ts": ["isHost", "trimmed", "isBlank"],
  "lib/server/client_reply.ts": ["replyText", "lastChunk", "linesOf"],
};
const ROOT = new URL("../../", import.meta.url);
const CHILD = fileURLToPath(new URL("./parser_coverage.child.ts", import.meta.url));
const LOADER = new URL("node_modules/tsx/dist/loader.mjs", ROOT).href;

/** As V8 writes it with `NODE_V8_COVERAGE`: offsets are those of the code that ran, which the map leads back from. */
interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly { readonly functionName: string; readonly ranges: readonly Range[] }[];
  }[];
  readonly "source-map-cache": Readonly<
    Record<string, { readonly lineLengths: readonly number[]; readonly data: SourceMapPayload }>
  >;
}

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

async function recorded(): Promise<Coverage[]> {
  const folder = await mkdtemp(join(tmpdir(), "coverage-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await promisify(execFile)(process.execPath, ["--import", LOADER, CHILD], {
    env: { ...process.env, NODE_V8_COVERAGE: folder, NODE_OPTIONS: "" },
  });
  const files = await readdir(folder);
  return Promise.all(files.map(async (name) => JSON.parse(await readFile(join(folder, name), "utf8")) as Coverage));
}

/** `file:line` and its code, for each block of `file` that never ran. */
async function neverRun(coverages: readonly Coverage[], file: string): Promise<{ blocks: number; missed: string[] }> {
  const url = new URL(file, ROOT).href;
  const coverage = coverages.find(({ result }) => result.some((script) => script.url === url))!;
  const lines = (await readFile(new URL(url), "utf8")).split("\n");
  const { lineLengths, data } = coverage["source-map-cache"][url]!;
  const map = new SourceMap(data);
  const place = (offset: number) => {
    let line = 0;
    while (offset > lineLengths[line]!) offset -= lineLengths[line++]! + 1;
    const { originalLine, originalColumn } = map.findEntry(line, offset) as {
      originalLine: number;
      originalColumn: number;
    };
    return { line: originalLine, column: originalColumn };
  };
  const { functions } = coverage.result.find((script) => script.url === url)!;
  const counted = functions.filter(({ functionName }) => FUNCTIONS[file]?.includes(functionName) ?? true);
  expect(counted.length).toBeGreaterThanOrEqual(FUNCTIONS[file]?.length ?? 1);
  const ranges = counted.flatMap((each) => each.ranges);
  const missed = ranges
    .filter(({ count }) => count === 0)
    .map(({ startOffset }) => {
      const { line, column } = place(startOffset);
      return `${file}:${line + 1}: ${lines[line]!.slice(column)}`;
    });
  return { blocks: ranges.length, missed };
}

it(
  "the cases of request_parser, framing, body_reader and client_reply take every branch of the request " +
    "parser and the reply writer",
  { timeout: 60_000 },
  async () => {
    const coverages = await recorded();
    const found = await Promise.all(FILES.map((file) => neverRun(coverages, file)));
    expect(found.flatMap(({ missed }) => missed)).toEqual([]);
    // Blocks were counted, not whole functions alone.
    for (const { blocks } of found) expect(blocks).toBeGreaterThan(10);
  },
);

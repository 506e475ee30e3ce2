/** One run of vitest, and what came of it. */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

export interface SpecRun {
  /** Paths of the files that have run, below the folder. */
  readonly ran: readonly string[];
  /** Those with a test, or a hook, that failed, and its name. */
  readonly failed: readonly { readonly spec: string; readonly test: string }[];
  /** It was ended, since the time was up. */
  readonly isCutOff: boolean;
}

export interface SpecRunOptions {
  readonly config?: string;
  /** Ends at the first failure. */
  readonly isBailing?: boolean;
  /** In milliseconds; without it, the run takes as long as it takes. */
  readonly limit?: number;
}

interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/** `words` are paths or parts of paths of specs; none for all. Rejects where vitest leaves no report. */
export async function runSpecs(
  folder: string,
  words: readonly string[],
  { config = "spec/vitest.config.ts", isBailing = false, limit }: SpecRunOptions = {},
): Promise<SpecRun> {
  const reports = mkdtempSync(join(tmpdir(), "edge-gateway-mutants-"));
  const output = join(reports, "run.json");
  try {
    const isCutOff = await ended(
      folder,
      [
        ...["node_modules/vitest/vitest.mjs", "run", "--config", config, ...words],
        ...["--reporter=json", `--outputFile.json=${output}`, ...(isBailing ? ["--bail=1"] : [])],
      ],
      limit,
    );
    if (isCutOff) return { ran: [], failed: [], isCutOff };
    const { testResults } = JSON.parse(readFileSync(output, "utf8")) as Report;
    const failed = testResults.flatMap(({ name, status, assertionResults }) => {
      if (status !== "failed") return [];
      const test = assertionResults.find((each) => each.status === "failed")?.fullName ?? "the file itself";
      return [{ spec: relative(folder, name), test }];
    });
    return { ran: testResults.map(({ name }) => relative(folder, name)), failed, isCutOff };
  } finally {
    rmSync(reports, { recursive: true, force: true });
  }
}

/** Whether it was ended from here. In a process group of its own, so that nothing that it started stays. */
async function ended(folder: string, words: readonly string[], limit: number | undefined): Promise<boolean> {
  const child = spawn(process.execPath, words, { cwd: folder, stdio: "ignore", detached: true });
  const end = () => process.kill(-child.pid!, "SIGKILL");
  process.once("exit", end);
  let isCutOff = false;
  const timer =
    limit === undefined
      ? undefined
      : setTimeout(() => {
          isCutOff = true;
          end();
        }, limit);
  await new Promise((resolve, reject) => child.once("exit", resolve).once("error", reject));
  clearTimeout(timer);
  process.off("exit", end);
  return isCutOff;
}

/**
 * Runs one benchmark by name: `npm run bench -- soak 60`. Exit code 1 when it does not hold what it promises.
 * Benchmarks take minutes and want a quiet machine: they are no part of the test run, nor of the package.
 */
import { accessLog } from "./access_log.ts";
import { chain } from "./chain.ts";
import { failover } from "./failover.ts";
import { limiter } from "./limiter.ts";
import { metrics } from "./metrics.ts";
import { overload } from "./overload.ts";
import { peers } from "./peers.ts";
import { profile } from "./profile.ts";
import { reload } from "./reload.ts";
import { router } from "./router.ts";
import { soak } from "./soak.ts";
import { start } from "./start.ts";

const BENCHMARKS: Readonly<Record<string, (words: readonly string[]) => Promise<boolean>>> = {
  ...{ access_log: accessLog, chain, failover, limiter, metrics, overload, peers, profile, reload, router, soak, start },
};

const [name = "", ...words] = process.argv.slice(2);
const run = BENCHMARKS[name];
if (run === undefined) {
  console.error(`usage: npm run bench -- ${Object.keys(BENCHMARKS).join("|")} [SECONDS or REQUESTS]`);
  process.exitCode = 2;
} else {
  process.exitCode = (await run(words)) ? 0 : 1;
}

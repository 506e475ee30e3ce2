/**
 * Stops one of three upstreams under a steady load of GETs, and measures the lost requests and the time until it gets
 * none. With retries none may be lost.
 */
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { openLoop, pause, percentiles, printTable, secondsOf, until } from "./load.ts";
import { withProcesses } from "./processes.ts";

const PER_SECOND = 1_000;
/** No ejection ends within the benchmark. */
const EJECT_MS = 600_000;

interface Case {
  readonly title: string;
  readonly signal: "SIGKILL" | "SIGSTOP";
  readonly retries?: NonNullable<AnyConfigInput["services"][number]["retries"]>;
}

const CASES: readonly Case[] = [
  { title: "killed, no retries", signal: "SIGKILL" },
  { title: "killed, retries", signal: "SIGKILL", retries: {} },
  { title: "hung, retries, per_try_ms 250", signal: "SIGSTOP", retries: { per_try_ms: 250 } },
];

/**
 * Takes the seconds of each case as its first word, 10 by default. Prints its figures; true when nothing was lost with
 * retries.
 */
export async function failover(words: readonly string[]): Promise<boolean> {
  const seconds = secondsOf(words, 10);
  const rows = [];
  let fine = true;
  for (const each of CASES) {
    const { asked, failed, ejectedAfter, before, after } = await withProcesses(({ upstream, gateway }) =>
      one(each, seconds, upstream, gateway),
    );
    if (Number.isNaN(ejectedAfter) || (each.retries !== undefined && failed.length > 0)) fine = false;
    const lost = failed.length === 0 ? "0" : `${failed.length} (${[...new Set(failed)].join(", ")})`;
    rows.push([each.title, asked, lost, Number.isNaN(ejectedAfter) ? "never" : `${ejectedAfter} ms`, before, after]);
  }
  console.log(
    `one of three upstreams goes half-way through ${seconds} s of ${PER_SECOND} GET/s; max_failures is the default\n`,
  );
  printTable(["case", "requests", "failed", "ejected after", "p50 / p99 ms before", "p50 / p99 ms after"], rows);
  return fine;
}

type Start = Parameters<Parameters<typeof withProcesses>[0]>[0];

async function one(
  { signal, retries }: Case,
  seconds: number,
  upstream: Start["upstream"],
  gatewayOf: Start["gateway"],
) {
  const upstreams = await Promise.all([upstream(), upstream(), upstream()]);
  const gateway = await gatewayOf({
    global: {},
    services: [
      {
        name: "s",
        base_path: "/",
        upstreams: upstreams.map(({ port }) => ({ host: "127.0.0.1", port })),
        routes: [{ path: "/{rest*}" }],
        health: { passive: { eject_ms: EJECT_MS } },
        ...(retries === undefined ? {} : { retries }),
      },
    ],
  });
  await warmUp(gateway.port);
  const load = openLoop(gateway.port, "/x", PER_SECOND);
  await pause((seconds / 2) * 1000);
  const goneAt = performance.now();
  const goneWall = Date.now();
  upstreams[1]!.signal(signal);
  const ejection = () => gateway.lines.find(({ message }) => String(message).startsWith("upstream ejected"));
  await until(() => ejection() !== undefined, (seconds / 2) * 1000);
  await pause(Math.max(0, (seconds / 2) * 1000 - (performance.now() - goneAt)));
  await load.stop();
  const { outcomes } = load;
  const line = ejection();
  return {
    asked: outcomes.length,
    failed: outcomes.map(({ said }) => said).filter((said) => said !== "200"),
    ejectedAfter: line === undefined ? NaN : Date.parse(String(line.time)) - goneWall,
    before: percentiles(outcomes.filter(({ due }) => due < goneAt)),
    after: percentiles(outcomes.filter(({ due }) => due >= goneAt)),
  };
}

/** The first requests include compilation and connecting, so they are not measured. */
async function warmUp(port: number): Promise<void> {
  const load = openLoop(port, "/x", PER_SECOND / 2);
  await pause(1_500);
  await load.stop();
}

/**
 * Measures callers: reading a file of 100,000, a reload of it beside traffic, and what a request costs with the keys of
 * all of them in place of one key.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { CallerReader } from "../../lib/config/callers.ts";
import { Call, Exchange } from "../../lib/http/exchange.ts";
import type { Handler } from "../../lib/http/handler.ts";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { keyAuth } from "../../lib/plugins/key_auth.ts";
import { CallerRegistry } from "../../lib/plugins/callers.ts";
import { brief, median, verdictTable, type Verdict } from "./figures.ts";
import { loadConfig } from "../support/schema.ts";
import { madeUpTools } from "../support/exercise.ts";

const CALLERS = 100_000;
const MAX_LOAD_MS = 2_000;
const MAX_MORE_NS = 1_000;
/** Of a reload: reading the bytes, comparing and joining them. */
const MAX_BLOCKED_MS = 100;
const REQUESTS = 200_000;

/** Takes the number of rounds, 5 by default. Prints its figures; true when the targets are met. */
export async function callers([given = "5"]: readonly string[]): Promise<boolean> {
  const rounds = Number(given);
  if (!(Number.isInteger(rounds) && rounds >= 1 && rounds <= 100)) throw new RangeError("there are 1 to 100 rounds");
  const folder = mkdtempSync(join(tmpdir(), "callers-"));
  try {
    const text = (salt: string) =>
      JSON.stringify(
        Array.from({ length: CALLERS }, (_, i) => ({
          id: `caller-${i}`,
          groups: [`group-${i % 10}`],
          keys: [{ key: `${salt}-key-of-caller-${i}` }],
        })),
      );
    const loads = [];
    for (let round = 0; round < rounds; round++) loads.push(loadMs(text(`load-${round}`)));
    const [quiet, reloads] = await reloading(join(folder, "callers.json"), text, rounds);
    const [one, all, first] = lookUps(text("some"), rounds);
    const [loadedMs, blockedMs] = [median(loads), median(reloads)];
    console.log(
      `${CALLERS} callers, medians of ${rounds}; Node ${process.versions.node}; ` +
        `the event loop without a reload: ${brief(quiet)} ms at most\n`,
    );
    const verdicts: Verdict[] = [
      {
        what: "reading the file, ms",
        figure: brief(loadedMs),
        target: `< ${MAX_LOAD_MS}`,
        met: loadedMs < MAX_LOAD_MS,
      },
      {
        what: "event loop blocked by a reload at most, ms",
        figure: brief(blockedMs),
        target: `< ${MAX_BLOCKED_MS}`,
        met: blockedMs < MAX_BLOCKED_MS,
      },
      { what: "a request with one key, ns", figure: brief(one), target: "", met: true },
      {
        what: "a request with the keys of all callers, ns",
        figure: brief(all),
        target: `< ${brief(one + MAX_MORE_NS)}`,
        met: all < one + MAX_MORE_NS,
      },
      { what: "the first request of each caller, ns", figure: brief(first), target: "", met: true },
    ];
    console.log(verdictTable(verdicts));
    return verdicts.every(({ met }) => met === true);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function read(text: string) {
  const result = loadConfig(
    { value: { services: [], caller_files: ["/callers.json"] } },
    { kinds: [], environment: {}, readFile: () => Buffer.from(text), callers: new CallerReader() },
  );
  if (!result.ok) throw new Error(result.issues[0]!.message);
  return result.callerLists!;
}

function loadMs(text: string): number {
  const start = performance.now();
  read(text);
  return performance.now() - start;
}

/** The longest time that the event loop was blocked, without a reload and by each of them. */
async function reloading(
  file: string,
  text: (salt: string) => string,
  rounds: number,
): Promise<readonly [number, readonly number[]]> {
  writeFileSync(file, text("first"));
  const config: ConfigInput = {
    services: [],
    caller_files: [file],
    global: { plugins: [{ name: "key_auth", config: { callers: true } }] },
  };
  const gateway = createGateway({ config });
  const blockedBy = async (run: () => Promise<unknown>) => {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    await run();
    delay.disable();
    return delay.max / 1e6;
  };
  const quiet = await blockedBy(() => new Promise((resolve) => setTimeout(resolve, 200)));
  const blocked = [];
  for (let round = 0; round < rounds; round++) {
    writeFileSync(file, text(`round-${round}`));
    await new Promise((resolve) => setTimeout(resolve, 50));
    blocked.push(await blockedBy(() => gateway.reload()));
  }
  await gateway.close(0);
  return [quiet, blocked];
}

/** In nanoseconds: with one key, with the keys of all callers, and each of these for the first time. */
function lookUps(text: string, rounds: number): readonly [number, number, number] {
  const tools = { ...madeUpTools(), callers: new CallerRegistry(read(text)) };
  const reply = { status: 200, headers: [], body: null };
  const handlerOf = (config: object): Handler =>
    keyAuth.create({ hideCredentials: false, ...config } as never, tools)(() => reply);
  const [single, first] = [handlerOf({ key: "some-key-of-caller-7" }), handlerOf({ callers: true })];
  const everyOne = Array.from({ length: CALLERS }, (_, i) => exchange(`some-key-of-caller-${(i * 7919) % CALLERS}`));
  const nanoseconds = (handler: Handler, exchanges: readonly Exchange[], requests = REQUESTS) => {
    const start = process.hrtime.bigint();
    for (let i = 0; i < requests; i++)
      if ((handler(exchanges[i % exchanges.length]!) as typeof reply).status !== 200)
        throw new Error("a key is not known");
    return Number(process.hrtime.bigint() - start) / requests;
  };
  const unseen = nanoseconds(first, everyOne, CALLERS);
  const [ones, all]: number[][] = [[], []];
  for (let round = 0; round < rounds; round++) {
    ones!.push(nanoseconds(single, [exchange("some-key-of-caller-7")]));
    all!.push(nanoseconds(first, everyOne));
  }
  return [median(ones!), median(all!), unseen];
}

function exchange(key: string): Exchange {
  return new Exchange({
    call: new Call({
      id: "0b2ce3c5-5d45-4dff-9a19-598eadbdf4e0",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    }),
    ...{
      method: "GET",
      target: "/a/b",
      httpVersion: "1.1",
      scheme: "http",
      authority: "shop.example.com",
      path: "/a/b",
      upstreamPath: "/b",
      query: "",
      headers: ["apiKey", key],
    },
    ...{
      params: {},
      clientAddress: "192.0.2.1",
      service: { name: "a", basePath: "/a" },
      route: { name: "b", path: "/b" },
      identity: null,
      claims: null,
      groups: [],
      body: null,
    },
    ...{ trailers: () => [], upgrade: null },
  });
}

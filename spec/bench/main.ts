/**
 * Runs one benchmark by name: `npm run bench -- soak 60`. Exit status 1 when a target is missed. Benchmarks take
 * minutes and need a quiet machine, so they belong neither to the tests nor to the package.
 */
type Benchmark = (words: readonly string[]) => Promise<boolean>;

/** Each with its arguments; loaded on demand, because some import half the gateway. */
const BENCHMARKS: Readonly<Record<string, readonly [load: () => Promise<Benchmark>, words: string]>> = {
  access_log: [async () => (await import("./access_log.ts")).accessLog, ""],
  audit: [async () => (await import("./audit.ts")).audit, ""],
  callers: [async () => (await import("./callers.ts")).callers, "[ROUNDS]"],
  chain: [async () => (await import("./chain.ts")).chain, "[REQUESTS]"],
  counters: [async () => (await import("./counters.ts")).counters, ""],
  failover: [async () => (await import("./failover.ts")).failover, "[SECONDS]"],
  growth: [
    async () => (await import("./growth.ts")).growth,
    "[N,…] [--only NAME,…] [--shapes routes,upstreams,callers]",
  ],
  http1_fuzz: [async () => (await import("./http1_fuzz.ts")).http1Fuzz, "[CASES] [SEED]"],
  limiter: [async () => (await import("./limiter.ts")).limiter, "[ROUNDS]"],
  memory: [async () => (await import("./memory.ts")).memory, "[rest,connections,load] [--nodes PATH,…]"],
  metrics: [async () => (await import("./metrics.ts")).metrics, ""],
  otlp: [async () => (await import("./otlp.ts")).otlp, "[BATCHES]"],
  overlaps: [async () => (await import("./overlaps.ts")).overlaps, ""],
  overload: [async () => (await import("./overload.ts")).overload, "[SECONDS]"],
  peers: [
    async () => (await import("./peers.ts")).peers,
    "[SCENARIO,…] [--rounds N] [--seconds N] [--only NAME,…] [--help]",
  ],
  profile: [
    async () => (await import("./profile.ts")).profile,
    "[SCENARIO] [--seconds N] [--top N] [--of NAME] [--help]",
  ],
  reload: [async () => (await import("./reload.ts")).reload, "[SECONDS]"],
  router: [async () => (await import("./router.ts")).router, "[ROUNDS]"],
  scale: [async () => (await import("./scale.ts")).scale, "[TURNS]"],
  soak: [async () => (await import("./soak.ts")).soak, "[SECONDS]"],
  start: [async () => (await import("./start.ts")).start, "[STARTS]"],
  tests: [async () => (await import("./tests.ts")).tests, "[ROUNDS]"],
  trace: [async () => (await import("./trace.ts")).trace, "[REQUESTS]"],
};

const [name = "", ...words] = process.argv.slice(2);
const benchmark = Object.hasOwn(BENCHMARKS, name) ? BENCHMARKS[name] : undefined;
if (benchmark === undefined) {
  const lines = Object.entries(BENCHMARKS).map(([each, [, takes]]) => `  ${each} ${takes}`.trimEnd());
  console.error(`usage: npm run bench -- NAME …\n${lines.join("\n")}`);
  process.exitCode = 2;
} else {
  const run = await benchmark[0]();
  process.exitCode = (await run(words)) ? 0 : 1;
}

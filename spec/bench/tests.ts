/**
 * Measures a run of the tests of a configuration: a thousand tests of ten thousand routes, whose plugins are of common
 * kinds, and how long it keeps the event loop from other work.
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { runTests } from "../../lib/proof/run_tests.ts";
import type { ConfigInput } from "../../lib/index.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { brief, median, verdictTable, type Verdict } from "./figures.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

const SERVICES = 100;
const ROUTES = 100;
const TESTS = 1_000;
const MAX_MS = 2_000;
/** A slice of ten milliseconds, and the table of ten thousand routes. */
const MAX_BLOCKED_MS = 250;

/** Takes the number of rounds, 5 by default. Prints its figures; true when the targets are met. */
export async function tests([given = "5"]: readonly string[]): Promise<boolean> {
  const rounds = Number(given);
  if (!(Number.isInteger(rounds) && rounds >= 1 && rounds <= 100)) throw new RangeError("there are 1 to 100 rounds");
  const loaded = loadConfig({ value: configuration() }, { kinds: builtinPlugins, environment: {}, checkRoutes });
  if (!loaded.ok)
    throw new Error(
      loaded.issues
        .slice(0, 3)
        .map(({ message }) => message)
        .join("; "),
    );
  const times: number[] = [];
  const blocked: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const start = performance.now();
    const { failed, tests: results } = await runTests(loaded);
    times.push(performance.now() - start);
    delay.disable();
    blocked.push(delay.max / 1e6);
    const wrong = results.find(({ passed }) => !passed);
    if (failed > 0)
      throw new Error(`${failed} tests failed, the first: ${wrong!.name}: ${wrong!.differences.join("; ")}`);
  }
  const [ms, blockedMs] = [median(times), median(blocked)];
  console.log(
    `${TESTS} tests in a configuration of ${SERVICES * ROUTES} routes, medians of ${rounds}; ` +
      `Node ${process.versions.node}\n`,
  );
  const verdicts: Verdict[] = [
    { what: "all tests, ms", figure: brief(ms), target: `< ${MAX_MS}`, met: ms < MAX_MS },
    {
      what: "event loop blocked at most, ms",
      figure: brief(blockedMs),
      target: `< ${MAX_BLOCKED_MS}`,
      met: blockedMs < MAX_BLOCKED_MS,
    },
  ];
  console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met === true);
}

/**
 * Each service has a guard and a limit, each route adds headers; a test sends two requests, every second test without
 * the key.
 */
function configuration(): ConfigInput {
  const plugins = (service: number) => [
    { name: "cors", config: { allow_origins: ["https://shop.example.com"] } },
    { name: "key_auth", config: { keys: [{ id: "web", key: `a-key-of-service-${service}` }] } },
    { name: "rate_limit", config: { limit_min: 100, limit_by: "credential" } },
  ];
  return {
    services: Array.from({ length: SERVICES }, (_, service) => ({
      name: `s${service}`,
      base_path: `/s${service}`,
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      plugins: plugins(service),
      routes: Array.from({ length: ROUTES }, (_, route) => ({
        name: `r${route}`,
        path: `/r${route}/{id}`,
        plugins: [{ name: "request_headers", config: { set: { "X-Route": `r${route}` } } }],
      })),
    })),
    tests: Array.from({ length: TESTS }, (_, i) => {
      const [service, route] = [i % SERVICES, (i * 7) % ROUTES];
      const isAllowed = i % 2 === 0;
      return {
        name: `test ${i}`,
        request: {
          url: `/s${service}/r${route}/42?x=1`,
          times: 2,
          ...(isAllowed && { headers: { apiKey: `a-key-of-service-${service}` } }),
        },
        expect: isAllowed
          ? {
              status: 200,
              route: `r${route}`,
              upstream_path: `/r${route}/42?x=1`,
              upstream_headers: { "X-Route": `r${route}` },
            }
          : { code: "key_missing" },
      };
    }),
  };
}

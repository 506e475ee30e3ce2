/**
 * Measures what the size of the route table costs a whole request: gateways that differ in their number of routes,
 * asked in turns.
 */
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { random } from "../support/random.ts";
import { brief, markdown, median } from "./figures.ts";
import { pause } from "./load.ts";
import { backend, competitors } from "./peers/competitors.ts";
import { faultOf, fullLoad } from "./peers/gauge.ts";
import { costsOf, freePort, MEASURED, OTHERS, withMachine } from "./peers/machine.ts";
import { SCENARIOS, type Scenario } from "./peers/scenarios.ts";

const TURNS = 7;
const READY_MS = 15_000;

/** Prints a table. Resolves with the processor time of a request in microseconds, for each number of routes. */
export async function wholeRequests(counts: readonly number[]): Promise<readonly number[]> {
  return withMachine(async (machine) => {
    const backendPort = await freePort();
    machine.start(backend({ folder: mkdtempSync(join(machine.folder, "backend-")), port: backendPort }), OTHERS);
    const ours = competitors().find(({ name }) => name === "ours")!;
    const gateways = [];
    for (const count of counts) {
      const scenario = scenarioOf(count);
      const port = await freePort();
      const running = machine.start(
        ours.command(scenario, { folder: mkdtempSync(join(machine.folder, "gateway-")), port, backendPort }),
        MEASURED,
      );
      const deadline = performance.now() + READY_MS;
      for (let fault: string | null = ""; fault !== null; await pause(50)) {
        fault = await faultOf(ours, scenario, port).catch((error: Error) => error.message);
        if (fault !== null && (running.over() || performance.now() > deadline))
          throw new Error(`${fault}: ${running.errors()}`);
      }
      gateways.push({ scenario, port, running, micros: [] as number[] });
    }
    for (let turn = 0; turn <= TURNS; turn++) {
      for (const { scenario, port, running, micros } of gateways) {
        const before = costsOf(running.pid).cpuMicros;
        const { requests, failures } = await fullLoad(machine, scenario, port, 1);
        if (failures > 0) throw new Error(`${failures} requests failed`);
        // The first turn warms up.
        if (turn > 0) micros.push((costsOf(running.pid).cpuMicros - before) / requests);
      }
    }
    const figures = gateways.map(({ micros }) => median(micros));
    console.log(`whole requests: GET, 200 bytes, each of the routes at random; medians of ${TURNS} turns of 1 s\n`);
    console.log(
      `${markdown(
        ["routes", "CPU µs of a request", "of those with 10"],
        counts.map((count, i) => [count, brief(figures[i]), brief(figures[i]! / figures[0]!)]),
      )}\n`,
    );
    return figures;
  });
}

/** One path of each route, in an order that no cache foresees. */
function scenarioOf(routes: number): Scenario {
  const dice = random(9);
  const paths = Array.from({ length: routes }, (_none, i) => ({ path: `/r${i}/42`, at: dice.next() }));
  return {
    ...SCENARIOS.find(({ name }) => name === "routes")!,
    name: `routes-${routes}`,
    routes,
    paths: paths.sort((a, b) => a.at - b.at).map(({ path }) => path),
  };
}

/**
 * Measures a gateway at max_requests_in_flight: a refusal must cost less than a millisecond, and refusals must not slow
 * accepted requests down.
 */
import http from "node:http";
import { openLoop, pause, percentile, percentiles, printTable, request, secondsOf, type Outcome } from "./load.ts";
import { withProcesses, type Child } from "./processes.ts";

const MOST = 50;
/** The accepted requests that end and are sent again. */
const WORKING = 20;
const SHED_PER_SECOND = 1_000;
const MAX_SHED_MICROS = 1_000;
/** Room for the work of clients and upstream, which share the machine with the gateway. */
const MAX_ADDED_P50_MS = 5;
const MAX_ADDED_P99_MS = 50;

/** Takes the seconds of each phase as its first word, 5 by default. Prints its figures; true when the promise holds. */
export async function overload(words: readonly string[]): Promise<boolean> {
  const seconds = secondsOf(words, 5);
  return withProcesses(async ({ upstream, gateway: gatewayOf }) => {
    const origin = await upstream();
    const gateway = await gatewayOf({
      global: { limits: { max_requests_in_flight: MOST, max_client_share: 1 } },
      services: [
        {
          name: "s",
          base_path: "/",
          upstreams: [{ host: "127.0.0.1", port: origin.port }],
          routes: [{ path: "/{rest*}" }],
          timeouts: { response_ms: 600_000 },
        },
      ],
    });
    const release = await occupied(gateway.port, MOST - WORKING, origin);
    // The first requests and refusals include compilation and connecting, so they are not measured.
    const stopWarming = working(gateway.port);
    const warming = openLoop(gateway.port, "/slow", SHED_PER_SECOND);
    await pause(2_000);
    await warming.stop();
    await stopWarming();

    const stopQuiet = working(gateway.port);
    await pause(seconds * 1000);
    const quiet = await stopQuiet();

    const stopBusy = working(gateway.port);
    await pause(100);
    const flood = openLoop(gateway.port, "/slow", SHED_PER_SECOND);
    await pause(seconds * 1000);
    await flood.stop();
    const busy = await stopBusy();
    const refused = flood.outcomes.filter(({ said }) => said === "503").length;

    const releaseRest = await occupied(gateway.port, WORKING, origin);
    const cost = await costOfShedding(gateway, seconds);
    releaseRest();
    release();

    const wrong =
      [...quiet, ...busy, ...flood.outcomes].filter(({ said }) => said !== "200" && said !== "503").length + cost.wrong;
    console.log(
      `max_requests_in_flight ${MOST}; the upstream takes 20 ms; ${SHED_PER_SECOND} more requests per second, ` +
        `${refused} of ${flood.outcomes.length} of them refused\n`,
    );
    printTable(
      ["figure", "value"],
      [
        ["accepted, alone: p50 / p99 ms", `${percentiles(quiet)} (${quiet.length} requests)`],
        ["accepted, beside the refused: p50 / p99 ms", `${percentiles(busy)} (${busy.length} requests)`],
        ["processor time of the gateway for one refusal", `${cost.micros.toFixed(0)} us (${cost.requests} refusals)`],
        ["other answers", wrong],
      ],
    );
    const addedMost = percentile(busy, 0.99) - percentile(quiet, 0.99);
    const added = percentile(busy, 0.5) - percentile(quiet, 0.5);
    return (
      wrong === 0 &&
      refused > 0 &&
      cost.micros < MAX_SHED_MICROS &&
      added < MAX_ADDED_P50_MS &&
      addedMost < MAX_ADDED_P99_MS
    );
  });
}

/** Sends requests that stay unanswered until the returned function is called. */
async function occupied(port: number, requests: number, origin: Child): Promise<() => void> {
  const before = (await origin.figures()).requests;
  const asked = Array.from({ length: requests }, () =>
    http.get({ host: "127.0.0.1", port, path: "/hang", agent: false }).on("error", () => {}),
  );
  for (let tries = 0; tries < 100 && (await origin.figures()).requests < before + requests; tries++) await pause(20);
  return () => asked.forEach((each) => each.destroy());
}

/** Closed-loop clients for the remaining capacity; refused requests do not count and are sent again. */
function working(port: number): () => Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  let going = true;
  const loops = Array.from({ length: WORKING }, async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    while (going) {
      const due = performance.now();
      const said = await request(port, "/slow", agent);
      if (said === "503") await pause(1);
      else outcomes.push({ due, ms: performance.now() - due, said });
    }
    agent.destroy();
  });
  return async () => {
    going = false;
    await Promise.all(loops);
    return outcomes;
  };
}

/** The gateway is full: a few kept connections get only refusals. */
async function costOfShedding(
  gateway: Child,
  seconds: number,
): Promise<{ micros: number; requests: number; wrong: number }> {
  const before = await gateway.figures();
  let requests = 0;
  let wrong = 0;
  let going = true;
  const loops = Array.from({ length: 8 }, async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    while (going) {
      if ((await request(gateway.port, "/slow", agent)) === "503") requests++;
      else wrong++;
    }
    agent.destroy();
  });
  await pause(seconds * 1000);
  going = false;
  await Promise.all(loops);
  const after = await gateway.figures();
  return { micros: (after.cpuMicros - before.cpuMicros) / requests, requests, wrong };
}

/**
 * Measures the processor time of traces for each request, through a whole gateway without sockets: off, on and not
 * sampled, on and sampled.
 */
import http from "node:http";
import type { AddressInfo } from "node:net";
import { createGateway, type Gateway, type TracingSettings } from "../../lib/index.ts";
import { answering, answers } from "./answering.ts";
import { printTable } from "./load.ts";

const ROUNDS = 9;
/**
 * What a request may cost more, on a busy machine too, with a trace that is not recorded and with one that is (a
 * request, a plugin), in nanoseconds.
 */
const MAX_NS = { unsampled: 3_000, sampled: 50_000 };

/** Takes the requests of a round, 20000 by default. Prints a table; true when the bounds hold. */
export async function trace([given = "20000"]: readonly string[]): Promise<boolean> {
  const requests = Number(given);
  if (!(requests >= 1_000)) throw new RangeError("a round has a thousand requests at least");
  const collector = http.createServer((request, response) => request.resume().on("end", () => response.end("{}")));
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(collector.address() as AddressInfo).port}/v1/traces`;
  const rows = [
    { title: "off", gateway: gatewayWith(), rounds: [] as number[] },
    { title: "on, not recorded", gateway: gatewayWith({ url, sampler: "always_off" }), rounds: [] as number[] },
    { title: "on, recorded", gateway: gatewayWith({ url, sampler: "always_on" }), rounds: [] as number[] },
  ];
  // In turn, so that a moment in which the machine is busy hits all of them; the first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { gateway, rounds } of rows) {
      const ns = await nanoseconds(gateway, requests);
      if (round > 0) rounds.push(ns);
    }
  }
  const dropped = /edge_gateway_trace_spans_dropped_total (\d+)/.exec(rows[2]!.gateway.metrics())?.[1];
  for (const { gateway } of rows) await gateway.close(0);
  collector.close();
  const [off, unsampled, sampled] = rows.map(
    ({ rounds }) => [...rounds].sort((a, b) => a - b)[rounds.length >> 1]!,
  ) as [number, number, number];
  const added = { unsampled: unsampled - off, sampled: sampled - off };
  printTable(
    ["figure", "ns a request", "added"],
    rows.map(({ title }, i) => [
      title,
      Math.round([off, unsampled, sampled][i]!),
      Math.round([0, added.unsampled, added.sampled][i]!),
    ]),
  );
  console.log(`spans dropped: ${dropped}; medians of ${ROUNDS} rounds`);
  return added.unsampled < MAX_NS.unsampled && added.sampled < MAX_NS.sampled;
}

function gatewayWith(tracing?: TracingSettings): Gateway {
  return createGateway({
    config: { services: [answering] },
    plugins: [answers],
    ...(tracing === undefined ? {} : { tracing }),
  });
}

/** Processor time, with what goes on in the background. */
async function nanoseconds(gateway: Gateway, requests: number): Promise<number> {
  const before = process.cpuUsage();
  for (let i = 0; i < requests; i++) {
    await gateway.inject({ url: "/items/42?size=large", headers: HEADERS });
    if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1e3) / requests;
}

const HEADERS = [
  "Host",
  "shop.example",
  "User-Agent",
  "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
  "Accept",
  "*/*",
];

/** What holds for limits with `cost.reserve`, wherever they are counted. */
import type { ServerResponse } from "node:http";
import { expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";

const LIMITS = [
  { name: "quota", config: { limit: 1_000, per: "month", limit_by: "all" } },
  { name: "rate_limit", config: { limit_hour: 1_000, limit_by: "all" } },
] as const;

/** Serves the plugins before the upstream; resolves with the ports of gateways that count together. */
type Serve = (upstream: number, plugins: readonly object[]) => Promise<readonly number[]>;

export function countingReserves(prepare: () => Promise<Serve>): void {
  it.each(LIMITS)("$name admits no more at once than what is left has room for", async ({ name, config }) => {
    const serve = await prepare();
    const waiting: ServerResponse[] = [];
    const upstream = await backend((_request, response) => void waiting.push(response));
    const cost = { response_header: "X-Cost", reserve: 400 };
    const ports = await serve(upstream.port, [{ name, config: { ...config, cost } }]);
    const path = "/a/x";
    const atOnce = (times: number) =>
      Array.from({ length: times }, (_, i) => ask(ports[i % ports.length]!, { path }).then(({ status }) => status));
    const all = atOnce(10);
    const refused: number[] = [];
    for (const each of all) void each.then((status) => refused.push(status));
    // 0, 400 and 800 of 1,000 are held; the last one may overdraw.
    await eventually(() => waiting.length === 3 && refused.length === 7, "three to be admitted");
    expect(refused).toEqual(Array(7).fill(429));
    for (const response of waiting.splice(0)) response.writeHead(200, { "X-Cost": "100" }).end();
    await Promise.all(all);
    // Booked a moment after the client has its reply: 300, besides which two can hold 400.
    const admitted = async () => {
      const asked = ask(ports[0]!, { path });
      await Promise.race([asked, eventually(() => waiting.length > 0)]);
      for (const response of waiting.splice(0)) response.writeHead(200, { "X-Cost": "100" }).end();
      return (await asked).status;
    };
    for (const end = Date.now() + 10_000; (await admitted()) !== 200 && Date.now() < end;);
    const left = async () => {
      const asked = ask(ports[0]!, { path });
      await eventually(() => waiting.length > 0);
      waiting.pop()!.writeHead(200, { "X-Cost": "0" }).end();
      return Number(/;r=(\d+)/.exec(String((await asked).headers.ratelimit))![1]);
    };
    let seen = NaN;
    // What is left besides the reserve of the request itself.
    for (const end = Date.now() + 10_000; seen !== 200 && Date.now() < end;) seen = await left();
    expect(seen).toBe(200);
  });

  it.each(LIMITS)("a client of $name that leaves pays at least the reserve, and holds it no longer", async (limit) => {
    const serve = await prepare();
    const upstream = await backend((request, response) => {
      if (request.url === "/free") return void response.writeHead(200, { "X-Cost": "0" }).end();
      response.writeHead(200, { "X-Cost": request.url!.slice(1) }).write("begun");
    });
    const cost = { response_header: "X-Cost", reserve: 300, default: 7 };
    const { name, config } = limit;
    const [port] = (await serve(upstream.port, [{ name, config: { ...config, cost } }])) as [number];
    const used = async (expected: number) => {
      let seen = NaN;
      for (const end = Date.now() + 10_000; seen !== expected && Date.now() < end;) {
        const { headers } = await ask(port, { path: "/a/free" });
        seen = 1_000 - 300 - Number(/;r=(\d+)/.exec(String(headers.ratelimit))![1]);
      }
      expect(seen).toBe(expected);
    };
    for (const [stated, expected] of [
      ["20", 300],
      ["310", 610],
    ] as const) {
      const connection = await connect(port);
      connection.send(`GET /a/${stated} HTTP/1.1\r\nHost: a\r\n\r\n`);
      await connection.until("begun");
      connection.socket.destroy();
      await used(expected);
    }
  });
}

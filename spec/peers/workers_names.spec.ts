/** The built gateway with workers, each of which follows the addresses of a name, which a name server has. */
import { once } from "node:events";
import http, { type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { closedLoop } from "../journeys/harness.ts";
import { dnsServer } from "../support/dns_server.ts";
import { oneService } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";
import { soon } from "./browser.ts";
import { withWorkers } from "./workers.ts";

const HOST = "orders.test";

interface Health {
  readonly services: readonly [{ readonly upstreams: readonly { readonly id: string; readonly state: string }[] }];
}

/** A server at all addresses of this machine. */
async function everywhere(answer: RequestListener): Promise<number> {
  const server = http.createServer(answer).listen(0, "0.0.0.0");
  await once(server, "listening");
  onTestFinished(() => void (server.closeAllConnections(), server.close()));
  return (server.address() as AddressInfo).port;
}

/** In each thread, the system's resolver gives what a name server says: its configuration is the machine's. */
function resolvingBy(port: number): { readonly NODE_OPTIONS: string } {
  const preload = fileWith(
    `import dns from "node:dns";
    dns.promises.lookup = async (host) => {
      const resolver = new dns.promises.Resolver();
      resolver.setServers(["127.0.0.1:${port}"]);
      return (await resolver.resolve4(host)).map((address) => ({ address, family: 4 }));
    };`,
    "dns.mjs",
  );
  return { NODE_OPTIONS: `--import=${preload}` };
}

it("follows them without a failed request, and a failed check in the main thread counts for all", async () => {
  const dns = await dnsServer();
  const [a, b] = ["127.0.0.11", "127.0.0.12"] as const;
  let isFailing = false;
  const answered = { [a]: 0, [b]: 0 } as Record<string, number>;
  const port = await everywhere(({ url, socket: { localAddress } }, response) => {
    if (url === "/healthz") return void response.writeHead(isFailing && localAddress === a ? 500 : 200).end();
    answered[localAddress!]!++;
    response.end(localAddress);
  });
  dns.answers.set(HOST, { a: [a] });
  const health = { enabled: true, path: "/healthz", interval_ms: 100, unhealthy_threshold: 1, healthy_threshold: 1 };
  const config = oneService([], { upstreams: [{ id: "u", host: HOST, port }], health }, { dns_ttl_ms: 100 });
  const running = await withWorkers(config, { environment: resolvingBy(dns.port) });
  const upstreams = async () =>
    (JSON.parse(await running.admin("/gateway/health")) as Health).services[0].upstreams.map(
      ({ id, state }) => `${id} ${state}`,
    );
  await soon(upstreams).toEqual(["u healthy"]);
  const load = closedLoop(running.port, 8);
  await load.more(50);
  dns.answers.set(HOST, { a: [b, a] });
  await soon(upstreams).toEqual([`u/${a}:${port} healthy`, `u/${b}:${port} healthy`]);
  await eventually(() => answered[b]! > 50);
  isFailing = true;
  await soon(upstreams).toEqual([`u/${a}:${port} unhealthy`, `u/${b}:${port} healthy`]);
  const before = answered[a]!;
  await load.more(200);
  // Those that were on their way.
  expect(answered[a]! - before).toBeLessThanOrEqual(16);
  isFailing = false;
  dns.answers.set(HOST, { a: [b] });
  await soon(upstreams).toEqual([`u/${b}:${port} healthy`]);
  await load.more(100);
  await load.stop();
  expect(load.lost).toEqual([]);
});

it("a thousand, of which a hundred a second are others, cost no request", { timeout: 60_000 }, async () => {
  const dns = await dnsServer();
  const port = await everywhere((_request, response) => void response.end("ok"));
  const addresses = (from: number) =>
    Array.from({ length: 1000 }, (_none, i) => `127.0.${1 + ((from + i) >> 8)}.${(from + i) & 255}`);
  dns.answers.set(HOST, { a: addresses(0) });
  const config = oneService([], { upstreams: [{ id: "u", host: HOST, port }] }, { dns_ttl_ms: 100 });
  const running = await withWorkers(config, { environment: resolvingBy(dns.port) });
  const ids = async () =>
    (JSON.parse(await running.admin("/gateway/health")) as Health).services[0].upstreams.map(({ id }) => id);
  await soon(async () => (await ids()).length).toBe(1000);
  const load = closedLoop(running.port, 8);
  for (let tenth = 1; tenth <= 50; tenth++) {
    dns.answers.set(HOST, { a: addresses(tenth * 10) });
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await soon(async () => (await ids()).includes(`u/${addresses(500).at(-1)}:${port}`)).toBe(true);
  await load.more(200);
  await load.stop();
  expect(load.lost).toEqual([]);
  expect(load.requests).toBeGreaterThan(250);
});

/** The built gateway with workers, each of which follows an SRV record of the system's name server. */
import { expect, it } from "vitest";
import { dnsServer } from "../support/dns_server.ts";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { closedLoop } from "../journeys/harness.ts";
import { soon } from "./browser.ts";
import { withWorkers } from "./workers.ts";

const RECORD = "_http._tcp.orders.test";

interface Health {
  readonly services: readonly [{ readonly upstreams: readonly { readonly id: string; readonly state: string }[] }];
}

it("follows its targets without a failed request, and a failed check in the main thread counts for all", async () => {
  const dns = await dnsServer();
  let isFailing = false;
  const answered = { a: 0, b: 0 };
  const [a, b] = await Promise.all(
    (["a", "b"] as const).map((id) =>
      backend((request, response) => {
        if (request.url === "/healthz") return void response.writeHead(isFailing && id === "a" ? 500 : 200).end();
        answered[id]++;
        response.end(id);
      }),
    ),
  );
  const target = ({ port }: { readonly port: number }) => ({ name: "localhost", port });
  dns.answers.set(RECORD, [target(a!)]);
  // The name servers of each thread of the process.
  const preload = fileWith(`import dns from "node:dns"; dns.setServers(["127.0.0.1:${dns.port}"]);`, "dns.mjs");
  const health = { enabled: true, path: "/healthz", interval_ms: 100, unhealthy_threshold: 1, healthy_threshold: 1 };
  const config = oneService([], { upstreams: [{ id: "u", srv: RECORD }], health }, { dns_ttl_ms: 100 });
  const running = await withWorkers(config, { environment: { NODE_OPTIONS: `--import=${preload}` } });
  const upstreams = async () =>
    (JSON.parse(await running.admin("/gateway/health")) as Health).services[0].upstreams.map(
      ({ id, state }) => `${id} ${state}`,
    );
  expect((await ask(running.port, { path: "/a/x" })).body.toString()).toBe("a");
  const load = closedLoop(running.port, 8);
  await load.more(50);
  dns.answers.set(RECORD, [target(a!), target(b!)]);
  await soon(upstreams).toEqual(
    [`u/localhost:${a!.port} healthy`, `u/localhost:${b!.port} healthy`].sort((x, y) => (x < y ? -1 : 1)),
  );
  await eventually(() => answered.b > 50);
  isFailing = true;
  await soon(async () => (await upstreams()).filter((each) => each.endsWith(" unhealthy")).length).toBe(1);
  const before = answered.a;
  await load.more(200);
  // Those that were on their way.
  expect(answered.a - before).toBeLessThanOrEqual(16);
  isFailing = false;
  dns.answers.set(RECORD, [target(b!)]);
  await soon(upstreams).toEqual([`u/localhost:${b!.port} healthy`]);
  await load.more(100);
  dns.answers.set(RECORD, [target(a!)]);
  await soon(async () => (await ask(running.port, { path: "/a/x" })).body.toString()).toBe("a");
  await load.more(100);
  await load.stop();
  expect(load.lost).toEqual([]);
});

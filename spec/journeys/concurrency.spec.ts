/** The plugin kind `concurrency` in a whole gateway: however a request ends, its place is free again. */
import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Open, h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, get, statusesIn } from "./harness.ts";

const ONE = { name: "concurrency", config: { max_in_flight: 1 } };
const UPGRADE = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/** A gateway whose upstream answers `/ok` and `/…/ok`, and holds all other requests until the test answers them. */
async function holding(plugins: readonly object[] = [ONE], more: object = {}) {
  const held: ServerResponse[] = [];
  const upstream = await backend((request, response) => {
    if (/\/ok(?:\?|$)/.test(request.url!)) response.end("ok");
    else held.push(response);
  });
  const { gateway, port } = await running(oneService(upstream.port, { plugins } as never, { h2c: true }), more);
  const status = async () => (await ask(port, { path: "/a/ok" })).status;
  const isFree = () => eventually(() => gateway.status.inFlight === 0, "the request to be over");
  /** One request that the upstream holds. */
  const one = async () => {
    const [connection, before] = [await client(port), held.length];
    connection.send(get());
    await eventually(() => held.length === before + 1, "the request to reach the upstream");
    expect(await status()).toBe(429);
    return { connection, response: held.at(-1)! };
  };
  return { gateway, upstream, port, held, one, status, isFree };
}

describe("a request that counts for concurrency", () => {
  it("leaves one more with 429 until it was answered", async () => {
    const { one, port, status, isFree } = await holding();
    const { connection, response } = await one();
    const refused = await client(port);
    refused.send(get("/a/x", "Connection: close"));
    expect(codeIn(await refused.closed())).toBe("concurrency_limited");
    response.end("done");
    await connection.until("done");
    await isFree();
    expect([await status(), await status()]).toEqual([200, 200]);
  });

  it.each<[string, (response: ServerResponse) => void, string]>([
    ["its upstream breaks off before the response", (response) => response.destroy(), "502"],
    [
      "its upstream breaks off in the middle",
      (response) => void (response.write("begun"), setImmediate(() => response.destroy())),
      "begun",
    ],
    ["it was answered with an error", (response) => void response.writeHead(500).end("failed"), "failed"],
  ])("gives its place back when %s", async (_how, end, seen) => {
    const { one, status, isFree } = await holding();
    const { connection, response } = await one();
    end(response);
    await connection.until(seen);
    await isFree();
    expect(await status()).toBe(200);
  });

  it.each<[string, boolean]>([
    ["before the response", false],
    ["in the middle of the response", true],
  ])("gives its place back when its client leaves %s", async (_when, isBegun) => {
    const { one, status, isFree } = await holding();
    const { connection, response } = await one();
    if (isBegun) {
      response.write("begun");
      await connection.until("begun");
    }
    connection.socket.destroy();
    await isFree();
    expect(await status()).toBe(200);
  });

  it(
    "gives its place back when its client resets the stream of HTTP/2, " + "and when a further one is refused there",
    async () => {
      const { held, port, status, isFree } = await holding();
      const session = h2Session(port);
      const first = h2Open(session, {}, true);
      await eventually(() => held.length === 1, "the request to reach the upstream");
      expect((await h2Open(session, {}, true).reply).status).toBe(429);
      first.stream.close(8);
      await first.reply;
      await isFree();
      expect(await status()).toBe(200);
    },
  );

  it("gives its place back when a plugin behind it, or before it, throws", async () => {
    const thrower = definePlugin({
      name: "thrower",
      schema: schema.object({}),
      create: () => (next) => (exchange) => {
        if (exchange.query === "?throws") throw new Error("thrown by the test");
        const reply = next(exchange);
        if (exchange.query === "?rejects")
          return Promise.resolve(reply).then(() => Promise.reject(new Error("thrown by the test")));
        return reply;
      },
    });
    for (const plugins of [
      [{ name: "thrower" }, ONE],
      [ONE, { name: "thrower" }],
    ]) {
      const { port, status, isFree } = await holding(plugins, { plugins: [thrower] });
      for (const query of ["throws", "rejects"]) {
        expect((await ask(port, { path: `/a/ok?${query}` })).status).toBe(500);
        await isFree();
        expect(await status()).toBe(200);
      }
    }
  });

  it(
    "is the only one of its client, when several come over one connection, " + "and others have places of their own",
    async () => {
      const by = { name: "concurrency", config: { max_in_flight: 1, limit_by: "header:X-Tenant" } };
      const { held, port } = await holding([by]);
      const connection = await client(port);
      connection.send(get("/a/x", "X-Tenant: one") + get("/a/ok", "X-Tenant: one", "Connection: close"));
      await eventually(() => held.length === 1, "the request to reach the upstream");
      expect((await ask(port, { path: "/a/ok", headers: { "X-Tenant": "one" } })).status).toBe(429);
      expect((await ask(port, { path: "/a/ok", headers: { "X-Tenant": "two" } })).status).toBe(200);
      held[0]!.end("done");
      // The second one is read when the first was answered.
      expect(statusesIn(await connection.closed())).toEqual([200, 200]);
    },
  );

  it.each(["the client", "the upstream"])("counts as long as its WebSocket is open, until %s ends it", async (side) => {
    const upstream = await byteBackend(
      (socket) =>
        void socket.once(
          "data",
          (chunk) =>
            void socket.write(
              String(chunk).includes("websocket") ? SWITCHED : "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            ),
        ),
    );
    const { gateway, port } = await running(oneService(upstream.port, { plugins: [ONE] }));
    const socket = await client(port);
    socket.send(get("/a/x", ...UPGRADE));
    await socket.until("101 ");
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
    if (side === "the client") socket.socket.destroy();
    else for (const each of upstream.sockets) each.destroy();
    await eventually(() => gateway.status.inFlight === 0, "the tunnel to end");
    await eventually(() => upstream.sockets.size === 0, "the upstream's side to end");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("keeps its place over a reload, whose limit counts it", async () => {
    const { gateway, upstream, one, status, isFree } = await holding();
    const { connection, response } = await one();
    await gateway.reload(
      oneService(
        upstream.port,
        { plugins: [{ name: "concurrency", config: { max_in_flight: 2 } }] },
        { h2c: true },
      ) as never,
    );
    expect(await status()).toBe(200);
    await gateway.reload(oneService(upstream.port, { plugins: [ONE] }, { h2c: true }) as never);
    expect(await status()).toBe(429);
    response.end("done");
    await connection.until("done");
    await isFree();
    expect(await status()).toBe(200);
  });
});

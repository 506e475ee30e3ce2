import { once } from "node:events";
import http, { type IncomingMessage, type RequestListener } from "node:http";
import type { Duplex } from "node:stream";
import { describe, expect, it } from "vitest";
import { createGateway, type Gateway, type GatewayOptions } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { hosted, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, get, statusesIn } from "./harness.ts";

const websocket = (path: string) =>
  get(
    path,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
  );
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/** An upstream that switches to a WebSocket and echoes. */
const echo = () =>
  byteBackend((socket) => void socket.once("data", () => (socket.write(SWITCHED), socket.pipe(socket))));

function gatewayFor(
  port: number,
  options: Partial<GatewayOptions> = {},
  parts: Parameters<typeof oneService>[1] = {},
): Gateway {
  return createGateway({ config: oneService(port, parts), ...options });
}

/** The host's own answer, which says what it was asked for. */
const own: RequestListener = (request, response) => void response.end(`own ${request.url}`);

/** The host's own protocol: answers an upgrade, then echoes what came behind its head and all else. */
const ownUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nX-Own: ${request.url}\r\n\r\n`);
  socket.write(head);
  socket.pipe(socket);
};

describe("a gateway in a host's own server", () => {
  it("handler passes a request that no route takes to next, untouched, and answers 404 without next", async () => {
    const upstream = await backend((_request, response, body) => response.end(`upstream ${body.toString()}`));
    const gateway = gatewayFor(upstream.port, {}, { routes: [{ path: "/x", methods: ["GET"] }] });
    const port = await hosted(
      gateway,
      http.createServer((request, response) => gateway.handler(request, response, () => own(request, response))),
    );
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("upstream ");
    expect((await ask(port, { path: "/b?q=%2e", method: "POST", body: "kept" })).body.toString()).toBe("own /b?q=%2e");
    // The path is the gateway's, for another method; and a path that can be read in two ways is nobody else's.
    expect((await ask(port, { path: "/a/x", method: "PUT" })).status).toBe(405);
    expect((await ask(port, { path: "/b/../a/x" })).status).toBe(400);
    const alone = await hosted(gateway, http.createServer(gateway.handler));
    expect((await ask(alone, { path: "/b" })).status).toBe(404);
  });

  it(
    "matches says whether a route takes a request, by path, " + "host and conditions, and whatever its method",
    async () => {
      const gateway = gatewayFor(
        9,
        {},
        {
          hosts: ["gw.example"],
          routes: [
            { path: "/x", methods: ["GET"] },
            { path: "/y", match: { headers: { "X-Beta": "1" } } },
          ],
        },
      );
      const seen: boolean[] = [];
      const port = await hosted(
        gateway,
        http.createServer((request, response) => (seen.push(gateway.matches(request)), own(request, response))),
      );
      const at = (path: string, headers: Record<string, string> = {}, method = "GET") =>
        ask(port, { path, method, headers: { Host: "gw.example", ...headers } });
      for (const path of ["/a/x", "/a/x/?q", "/a/z", "/"]) await at(path);
      await at("/a/x", {}, "DELETE");
      await at("/a/x", { Host: "other.example" });
      await at("/a/y", { "X-Beta": "1" });
      await at("/a/y", { "X-Beta": "2" });
      expect(seen).toEqual([true, true, false, false, true, false, true, false]);
    },
  );

  it(
    "upgrade passes an upgrade that no route takes to next with every byte, " + "and serves those that a route takes",
    async () => {
      const gateway = gatewayFor((await echo()).port);
      const host = http
        .createServer(gateway.handler)
        .on("upgrade", (request, socket, head) =>
          gateway.upgrade(request, socket, head, () => ownUpgrade(request, socket, head)),
        );
      const port = await hosted(gateway, host);
      const foreign = await client(port);
      foreign.send(websocket("/own") + "early");
      expect(await foreign.until("early")).toBe("HTTP/1.1 101 Switching Protocols\r\nX-Own: /own\r\n\r\nearly");
      foreign.send("late");
      await foreign.until("late");
      const ours = await client(port);
      ours.send(websocket("/a/socket") + "early");
      expect(await ours.until("early")).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nearly$/);
    },
  );

  it(
    "upgrade leaves an upgrade that no route takes to the other listeners of the " + "host, and its bytes in place",
    async () => {
      const gateway = gatewayFor((await echo()).port);
      const host = http.createServer(gateway.handler).on("upgrade", gateway.upgrade);
      host.on("upgrade", (request, socket, head) => void (request.url === "/own" && ownUpgrade(request, socket, head)));
      const port = await hosted(gateway, host);
      const foreign = await client(port);
      foreign.send(websocket("/own") + "early");
      expect(await foreign.until("early")).toBe("HTTP/1.1 101 Switching Protocols\r\nX-Own: /own\r\n\r\nearly");
      const ours = await client(port);
      ours.send(websocket("/a/socket"));
      expect(statusesIn(await ours.until("\r\n\r\n"))).toEqual([101]);
    },
  );

  it(
    "upgrade answers 404 for an upgrade that neither a route nor another listener of the host " +
      "has answered in 10 seconds",
    async () => {
      const clock = manualClock();
      const gateway = gatewayFor(9, { clock });
      const host = http.createServer(gateway.handler).on("upgrade", gateway.upgrade);
      const port = await hosted(gateway, host);
      const alone = await client(port);
      alone.send(websocket("/own"));
      expect(statusesIn(await alone.until("\r\n\r\n"))).toEqual([404]);
      host.on("upgrade", () => {});
      const asked = once(host, "upgrade");
      const waiting = await client(port);
      waiting.send(websocket("/own"));
      await asked;
      clock.advance(9_999);
      expect(waiting.text()).toBe("");
      clock.advance(1);
      expect(statusesIn(await waiting.until("\r\n\r\n"))).toEqual([404]);
    },
  );

  it("a prefix that a framework cuts off counts: routes and X-Forwarded-Prefix have it", async () => {
    const upstream = await backend();
    const gateway = gatewayFor(upstream.port, {}, { base_path: "/gw/a" });
    // As Express and Connect do for app.use("/gw", gateway.handler).
    const host = http.createServer((request, response) => {
      const rest = request.url!.slice("/gw".length);
      Object.assign(request, { originalUrl: request.url, url: rest.startsWith("/") ? rest : `/${rest}` });
      gateway.handler(request, response, () => own(request, response));
    });
    const port = await hosted(gateway, host);
    expect((await ask(port, { path: "/gw/a/x?q" })).status).toBe(200);
    expect((await ask(port, { path: "/gw/a?q" })).status).toBe(200);
    expect(upstream.seen.map(({ url }) => url)).toEqual(["/x?q", "/?q"]);
    expect(upstream.seen[0]!.headers.join()).toContain("X-Forwarded-Prefix,/gw/a");
    expect((await ask(port, { path: "/gw/b" })).body.toString()).toBe("own /b");
  });

  it("a target that the host has rewritten counts as the host wrote it", async () => {
    const upstream = await backend();
    const gateway = gatewayFor(upstream.port);
    const port = await hosted(
      gateway,
      http.createServer((request, response) =>
        gateway.handler(Object.assign(request, { originalUrl: request.url, url: "/a/new" }), response),
      ),
    );
    expect((await ask(port, { path: "/old" })).status).toBe(200);
    expect(upstream.seen[0]!.url).toBe("/new");
  });

  it("a body that the host has read before gets 400 with the cause", async () => {
    const upstream = await backend();
    const gateway = gatewayFor(upstream.port);
    const parsing = http.createServer(async (request, response) => {
      if (request.method === "POST") await request.toArray();
      gateway.handler(request, response);
    });
    const port = await hosted(gateway, parsing);
    const refused = await ask(port, { path: "/a/x", method: "POST", body: "read" });
    expect([refused.status, (JSON.parse(refused.body.toString()) as { detail: string }).detail]).toEqual([
      400,
      expect.stringContaining("has read the request body before the gateway"),
    ]);
    expect(codeIn(refused.body.toString())).toBe("bad_request");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });
});

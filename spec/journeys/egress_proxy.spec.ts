/** `global.egress_proxy`: what the gateway sends goes through a proxy that answers CONNECT. */
import { once } from "node:events";
import http2 from "node:http2";
import https from "node:https";
import net, { type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { pem } from "../cli/pem.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { collector } from "../support/collector.ts";
import { connectProxy, strangeProxy } from "../support/connect_proxy.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { byteBackend, client, get, recordedLog } from "./harness.ts";

const codeOf = ({ body }: { readonly body: Buffer | string }) => (JSON.parse(String(body)) as { code: string }).code;
const NAME = "orders.internal";
/** A look-up would be a leak. */
const lookup = (host: string): never => {
  throw new Error(`${host} was looked up`);
};
const through = (proxy: number, more: object = {}) => ({
  egress_proxy: { url: `http://ada:p%40ss@127.0.0.1:${proxy}`, ...more },
});

/** One service whose upstream only the proxy finds. */
function named(port: number, global: AnyConfigInput["global"], parts: object = {}): AnyConfigInput {
  return oneService(port, { upstreams: [{ host: NAME, port }], ...parts }, global);
}

/** The port of a server that answers everything with 200. */
async function answering(server: https.Server | http2.Http2Server | http2.Http2SecureServer): Promise<number> {
  const sessions = new Set<http2.Http2Session>();
  server.on("session", (session) => sessions.add(session));
  server.on("request", (_request, response: { end(text: string): void }) => response.end("ok"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const session of sessions) session.destroy();
    if (server instanceof https.Server) server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const upgrade = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const switched =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

describe("an upstream behind an egress proxy", () => {
  it(
    "gets requests over HTTP/1.1 through one CONNECT for each connection, " + "and its name is not looked up here",
    async () => {
      const [origin, proxy] = [
        await backend((_request, response, body) => void response.end(body)),
        await connectProxy(),
      ];
      const { port } = await running(named(origin.port, through(proxy.port)), { lookup });
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect((await ask(port, { path: "/a/y" })).status).toBe(200);
      expect(proxy.asked).toEqual([`${NAME}:${origin.port}`]);
      expect(proxy.authorizations).toEqual([`Basic ${Buffer.from("ada:p@ss").toString("base64")}`]);
      expect(origin.seen[0]!.headers).toContain(`${NAME}:${origin.port}`);
      expect(origin.seen[0]!.headers.join()).not.toMatch(/proxy/i);
    },
  );

  it("gets and sends large bodies whole", async () => {
    const [origin, proxy] = [
      await backend((_request, response, body) => void response.end(body)),
      await connectProxy(),
    ];
    const { port } = await running(named(origin.port, through(proxy.port)), { lookup });
    const body = Buffer.alloc(3_000_000, "0123456789");
    const answer = await ask(port, { method: "POST", path: "/a/x", body });
    expect([answer.status, answer.body.length]).toEqual([200, body.length]);
    expect(Buffer.from(answer.body).equals(body)).toBe(true);
  });

  it.each(["https", "h2", "h2c"] as const)("is reached with %s", async (protocol) => {
    const identity = { cert: SERVER.cert, key: SERVER.key };
    const server = {
      https: () => https.createServer(identity),
      h2: () => http2.createSecureServer(identity),
      h2c: () => http2.createServer(),
    };
    const [to, proxy] = [await answering(server[protocol]()), await connectProxy()];
    const tls = protocol === "h2c" ? {} : { tls: { ca: pem({ ca: CA.cert }).ca, servername: "localhost" } };
    const { port } = await running(named(to, through(proxy.port), { protocol, ...tls }), { lookup });
    for (const path of ["/a/x", "/a/y"]) expect((await ask(port, { path })).status).toBe(200);
    expect(proxy.asked).toEqual([`${NAME}:${to}`]);
  });

  it("is verified over TLS by its own name, whatever the proxy is", async () => {
    const to = await answering(https.createServer({ cert: SERVER.cert, key: SERVER.key }));
    const proxy = await connectProxy();
    const parts = { protocol: "https", tls: { ca: pem({ ca: CA.cert }).ca } };
    const { port } = await running(named(to, through(proxy.port), parts), { lookup });
    expect(codeOf(await ask(port, { path: "/a/x" }))).toBe("upstream_connect_failed");
  });

  it.each(["h2", "h2c"] as const)(
    "is known to live by what arrives, so that another connection is not opened after a while, with %s",
    async (protocol) => {
      const server =
        protocol === "h2c" ? http2.createServer() : http2.createSecureServer({ cert: SERVER.cert, key: SERVER.key });
      const [to, proxy, clock] = [await answering(server), await connectProxy(), manualClock()];
      const tls = protocol === "h2c" ? {} : { tls: { ca: pem({ ca: CA.cert }).ca, servername: "localhost" } };
      const { port } = await running(named(to, through(proxy.port), { protocol, ...tls }), { lookup, clock });
      for (let i = 0; i < 4; i++) {
        expect((await ask(port, { path: "/a/x" })).status).toBe(200);
        clock.advance(4000);
      }
      expect(proxy.asked).toHaveLength(1);
    },
  );

  it("gets WebSockets", async () => {
    const upstream = await byteBackend((socket) => {
      let isOpen = false;
      socket.on("data", (chunk: Buffer) => {
        socket.write(isOpen ? chunk.toString("latin1").toUpperCase() : switched);
        isOpen = true;
      });
    });
    const proxy = await connectProxy();
    const { port } = await running(named(upstream.port, through(proxy.port)), { lookup });
    const connection = await client(port);
    connection.send(get("/a/chat", ...upgrade));
    await connection.until("\r\n\r\n");
    connection.send("hello");
    await connection.until("HELLO");
    expect(proxy.asked).toEqual([`${NAME}:${upstream.port}`]);
  });

  it("is checked through the proxy", async () => {
    const [origin, proxy, clock] = [await backend(), await connectProxy(), manualClock()];
    const health = { enabled: true, path: "/up", interval_ms: 1000, healthy_threshold: 1 };
    await running(named(origin.port, through(proxy.port), { health }), { lookup, clock });
    clock.advance(1000);
    await eventually(() => origin.seen.length === 1);
    expect(origin.seen[0]!.url).toBe("/up");
    expect(proxy.asked).toEqual([`${NAME}:${origin.port}`]);
  });

  it("may be sent to by a proxy that is reached over TLS, with the CA that is named", async () => {
    const identity = { cert: SERVER.cert, key: SERVER.key };
    const [origin, proxy] = [await backend(), await connectProxy(identity)];
    const to = await answering(https.createServer(identity));
    const ca = pem({ ca: CA.cert }).ca!;
    const by = (tls: object) => ({ egress_proxy: { url: `https://127.0.0.1:${proxy.port}`, ...tls } });
    const plain = await running(named(origin.port, by({ tls: { ca } })), { lookup });
    expect((await ask(plain.port, { path: "/a/x" })).status).toBe(200);
    const parts = { protocol: "https", tls: { ca, servername: "localhost" } };
    const secure = await running(named(to, by({ tls: { ca } }), parts), { lookup });
    expect((await ask(secure.port, { path: "/a/x" })).status).toBe(200);
    const unknown = await running(named(origin.port, by({})), { lookup });
    expect(codeOf(await ask(unknown.port, { path: "/a/x" }))).toBe("upstream_connect_failed");
    expect(proxy.asked).toEqual([`${NAME}:${origin.port}`, `${NAME}:${to}`]);
  });

  it.each([
    ["an exact name", { host: "localhost" }, ["LOCALHOST."]],
    ["a name below a domain", { host: "a.localhost" }, [".localhost"]],
    ["an address", { host: "127.0.0.1" }, ["127.0.0.1"]],
    ["a range", { host: "127.0.0.1" }, ["10.0.0.0/8", "127.0.0.0/8"]],
  ])("is connected to directly where except has %s", async (_what, to, except) => {
    const [origin, proxy] = [await backend(), await connectProxy()];
    const config = oneService(
      origin.port,
      { upstreams: [{ ...to, port: origin.port }] },
      through(proxy.port, { except }),
    );
    const local = async () => [{ address: "127.0.0.1", family: 4 }];
    const { port } = await running(config, { lookup: local });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(proxy.asked).toEqual([]);
  });

  it.each([
    ["another name", "localhost", ["ocalhost", "localhost.example"]],
    ["what a domain itself is called", "localhost", [".localhost"]],
    ["the address of a name", "localhost", ["127.0.0.0/8"]],
    ["nothing, also for loopback", "127.0.0.1", []],
  ])("is reached through the proxy where except has %s", async (_what, host, except) => {
    const [origin, proxy] = [await backend(), await connectProxy()];
    const config = oneService(
      origin.port,
      { upstreams: [{ host, port: origin.port }] },
      through(proxy.port, { except }),
    );
    const { port } = await running(config, { lookup });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(proxy.asked).toEqual([`${host}:${origin.port}`]);
  });

  it("gets new connections through the other proxy after a reload, and none is kept of the former", async () => {
    const [origin, first, second] = [await backend(), await connectProxy(), await connectProxy()];
    const { gateway, port } = await running(named(origin.port, through(first.port)), { lookup });
    await ask(port, { path: "/a/x" });
    await gateway.reload(named(origin.port, through(second.port)));
    await ask(port, { path: "/a/x" });
    expect([first.asked.length, second.asked.length]).toEqual([1, 1]);
    await eventually(() => first.sockets.size === 0);
    // Another setting keeps them.
    await gateway.reload(named(origin.port, { ...through(second.port), limits: { max_headers: 100 } }));
    await ask(port, { path: "/a/x" });
    expect(second.asked).toHaveLength(1);
    await gateway.reload(named(origin.port, { egress_proxy: { url: `http://ada:other@127.0.0.1:${second.port}` } }));
    await ask(port, { path: "/a/x" });
    expect(second.asked).toHaveLength(2);
  });
});

describe("a proxy that does not lead there", () => {
  const answer = async (serve: (socket: Socket) => void, parts: object = {}) => {
    const { log, lines } = recordedLog();
    let requests = "";
    const accessLog = (text: string) => void (requests += text);
    const proxy = await strangeProxy(serve);
    const { port } = await running(named(1, through(proxy), parts), { lookup, log, accessLog });
    const { status, body } = await ask(port, { path: "/a/x" });
    await eventually(() => requests !== "");
    return { status, code: codeOf({ body }), body: String(body), log: JSON.stringify(lines) + requests };
  };

  it.each([403, 407, 502, 503])(
    "a refusal with %d is upstream_connect_failed, with its status in the log",
    async (refusal) => {
      const text = "the inside of the proxy";
      const found = await answer((socket) =>
        socket.end(`HTTP/1.1 ${refusal} No\r\nContent-Length: ${text.length}\r\n\r\n${text}`),
      );
      expect(found).toMatchObject({ status: 502, code: "upstream_connect_failed" });
      expect(found.body).not.toContain("inside");
      expect(found.log).toContain(`the proxy refused the connection with status ${refusal}`);
      expect(found.log).not.toContain("p@ss");
    },
  );

  it.each<readonly [string, (socket: Socket) => void, string]>([
    ["garbage", (socket) => socket.write("SSH-2.0-OpenSSH_9.6\r\n"), "the proxy's answer is not HTTP"],
    ["garbage that begins as HTTP does", (socket) => socket.write("HTTP/1.1 OK\r\n\r\n"), "is not HTTP"],
    ["a reply of HTTP/2", (socket) => socket.write("HTTP/2 200\r\n\r\n"), "is not HTTP"],
    ["a switch of protocols", (socket) => socket.write("HTTP/1.1 101 Yes\r\n\r\n"), "is not HTTP"],
    [
      "a head of 20 KB",
      (socket) => socket.write(`HTTP/1.1 200 OK\r\nX: ${"x".repeat(20_000)}\r\n\r\n`),
      "has more than 16384 bytes",
    ],
    [
      "interim answers without an end",
      (socket) => socket.write(`HTTP/1.1 103 Early Hints\r\nX: ${"x".repeat(2000)}\r\n\r\n`.repeat(10)),
      "16384",
    ],
    ["an interim answer alone", (socket) => socket.end("HTTP/1.1 103 Early Hints\r\n\r\n"), "before it answered"],
    ["garbage behind an interim answer", (socket) => socket.write("HTTP/1.1 100 Continue\r\n\r\nSSH"), "is not HTTP"],
    ["a head without an end", (socket) => socket.write(`HTTP/1.1 200 OK\r\nX: ${"x".repeat(20_000)}`), "16384"],
    ["nothing", (socket) => socket.end(), "closed the connection before it answered"],
    ["half a head", (socket) => socket.end("HTTP/1.1 200 OK\r\nX"), "closed the connection before it answered"],
    ["a reset", (socket) => socket.resetAndDestroy(), "ECONNRESET"],
  ])("%s is upstream_connect_failed, over HTTP/1.1, TLS and HTTP/2", async (_what, serve, why) => {
    for (const protocol of ["http", "https", "h2", "h2c"]) {
      const found = await answer(serve, { protocol });
      expect([found.status, found.code], protocol).toEqual([502, "upstream_connect_failed"]);
      expect(found.log, protocol).toContain(why);
    }
  });

  it.each(["http", "https", "h2c"])(
    "silence, or a head that trickles, is 504 after connect_ms, with %s",
    async (protocol) => {
      for (const begin of ["", "HTTP/1.1 200"]) {
        const clock = manualClock();
        const asked: Socket[] = [];
        const proxy = await strangeProxy((socket) => {
          asked.push(socket);
          socket.write(begin);
        });
        const { port } = await running(named(1, through(proxy), { protocol }), { lookup, clock });
        const answer = ask(port, { path: "/a/x" });
        await eventually(() => asked.length === 1);
        clock.advance(3000);
        expect([(await answer).status, codeOf(await answer)]).toEqual([504, "upstream_timeout"]);
        await eventually(() => asked[0]!.destroyed || asked[0]!.readableEnded);
      }
    },
  );

  it.each(["in one piece", "byte by byte"])("interim answers before the last one are skipped, %s", async (how) => {
    const origin = await backend();
    const proxy = await strangeProxy((socket) => {
      const onwards = net.connect(origin.port, "127.0.0.1");
      onTestFinished(() => void onwards.destroy());
      const hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
      const head = `HTTP/1.1 100 Continue\r\n\r\n${hints}HTTP/1.1 200 OK\r\n\r\n`;
      socket.setNoDelay(true);
      for (const piece of how === "byte by byte" ? head : [head]) socket.write(piece);
      socket.pipe(onwards).pipe(socket);
    });
    const { port } = await running(named(origin.port, through(proxy)), { lookup });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("one that cannot be reached is upstream_connect_failed", async () => {
    const { port } = await running(named(1, through(await closedPort())), { lookup });
    expect(codeOf(await ask(port, { path: "/a/x" }))).toBe("upstream_connect_failed");
  });

  it(
    "what the upstream sends together with the proxy's answer reaches the gateway, " + "whatever length that states",
    async () => {
      const to = await answering(http2.createServer());
      const proxy = await strangeProxy((socket) => {
        const onwards = net.connect(to, "127.0.0.1");
        onTestFinished(() => void onwards.destroy());
        onwards.on("error", () => socket.destroy());
        socket.write("HTTP/1.1 200 ");
        // A server of HTTP/2 sends its SETTINGS first: in one piece with the end of the proxy's head.
        onwards.once("data", (first: Buffer) => {
          socket.write(Buffer.concat([Buffer.from("OK\r\nContent-Length: 5\r\n\r\n"), first]));
          socket.pipe(onwards).pipe(socket);
        });
      });
      const { port } = await running(named(to, through(proxy), { protocol: "h2c" }), { lookup });
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    },
  );
});

describe("what the gateway asks itself", () => {
  it("plugins ask through the proxy, over HTTP and HTTPS", async () => {
    const [origin, proxy] = [await backend(), await connectProxy()];
    const secure = await answering(https.createServer({ cert: SERVER.cert, key: SERVER.key }));
    const tls = { ca: pem({ ca: CA.cert }).ca, servername: "localhost" };
    const plugins = [
      { name: "forward_auth", config: { url: `http://auth.internal:${origin.port}/check`, timeout_ms: 60_000 } },
      { name: "forward_auth", config: { url: `https://auth.internal:${secure}/check`, timeout_ms: 60_000, tls } },
    ];
    const { port } = await running(named(origin.port, through(proxy.port), { plugins }), { lookup });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(proxy.asked).toEqual([`auth.internal:${origin.port}`, `auth.internal:${secure}`, `${NAME}:${origin.port}`]);
  });

  it("a server that the proxy refuses is one that a plugin cannot reach", async () => {
    const origin = await backend();
    const proxy = await strangeProxy((socket) => socket.end("HTTP/1.1 403 No\r\n\r\n"));
    const plugins = [{ name: "forward_auth", config: { url: "http://auth.internal/check", timeout_ms: 60_000 } }];
    const { port } = await running(oneService(origin.port, { plugins }, through(proxy, { except: ["127.0.0.1"] })), {
      lookup,
    });
    expect(codeOf(await ask(port, { path: "/a/x" }))).toBe("auth_unavailable");
  });

  it("traces go through the proxy of the configuration in force", async () => {
    const [origin, first, second, traces] = [
      await backend(),
      await connectProxy(),
      await connectProxy(),
      await collector(),
    ];
    const by = (proxy: number) => oneService(origin.port, {}, through(proxy, { except: ["127.0.0.1"] }));
    const url = `http://collector.internal:${traces.port}/v1/traces`;
    const clock = manualClock();
    const { gateway, port } = await running(by(first.port), { lookup, clock, tracing: { url } });
    await ask(port, { path: "/a/x" });
    clock.advance(1000);
    await eventually(() => traces.exports.length === 1);
    await gateway.reload(by(second.port));
    await ask(port, { path: "/a/x" });
    clock.advance(1000);
    await eventually(() => traces.exports.length === 2);
    expect([first.asked, second.asked]).toEqual([
      [`collector.internal:${traces.port}`],
      [`collector.internal:${traces.port}`],
    ]);
  });
});

import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import net, { type AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { describe, expect, it } from "vitest";
import { ConfigError, createGateway } from "../../lib/index.ts";
import { pem } from "../cli/pem.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { connectProxy } from "../support/connect_proxy.ts";
import { behindHeaders } from "../support/proxy_header.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, get, statusesIn } from "./harness.ts";

const TRUSTED = { trusted_proxies: ["127.0.0.0/8"] };

/** A backend that reads a header from each connection, and serves HTTP or HTTPS behind it. */
async function listening(scheme: "http" | "https" = "http", answer?: http.RequestListener) {
  const listener: http.RequestListener =
    answer ?? ((request, response) => void response.end(String(request.headers["x-forwarded-for"])));
  const server =
    scheme === "http"
      ? http.createServer(listener)
      : https.createServer({ cert: SERVER.cert, key: SERVER.key }, listener);
  server.on("upgrade", (_request, socket) => {
    socket.on("error", () => {});
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  });
  const resumed: boolean[] = [];
  server.on("secureConnection", (socket: TLSSocket) => void resumed.push(socket.isSessionReused()));
  return { ...(await behindHeaders(server)), resumed };
}

const from = (address: string) => ({ path: "/a/x", headers: { "X-Forwarded-For": address } });
const addresses = (connections: readonly { readonly address: string | null }[]) =>
  connections.map(({ address }) => address);

describe("connections to upstreams of a service with proxy_protocol", () => {
  it.each([
    ["v1", "http"],
    ["v2", "http"],
    ["v1", "https"],
    ["v2", "https"],
  ] as const)("%s, %s begin with the client's address, and serve its requests alone", async (version, protocol) => {
    const { port, connections } = await listening(protocol);
    const tls = protocol === "https" && { tls: { ca: pem({ ca: CA.cert }).ca!, servername: "localhost" } };
    const gateway = await running(oneService(port, { protocol, proxy_protocol: version, ...tls }, TRUSTED));
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::1"]) {
      const reply = await ask(gateway.port, from(address));
      expect([reply.status, reply.body.toString()]).toEqual([200, `${address}, 127.0.0.1`]);
    }
    expect(addresses(connections)).toEqual(["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    if (version === "v1")
      expect(connections.map(({ header }) => header)).toEqual([
        `PROXY TCP4 192.0.2.1 127.0.0.1 0 ${port}\r\n`,
        `PROXY TCP4 192.0.2.2 127.0.0.1 0 ${port}\r\n`,
        `PROXY TCP6 2001:db8::1 ::ffff:127.0.0.1 0 ${port}\r\n`,
      ]);
  });

  it("a connection that is not used is closed for one of another client where the pool is full", async () => {
    const { port, connections } = await listening();
    const gateway = await running(oneService(port, { proxy_protocol: "v1", pool: { max_connections: 2 } }, TRUSTED));
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.2", "192.0.2.1"])
      expect((await ask(gateway.port, from(address))).status).toBe(200);
    expect(addresses(connections)).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"]);
    await eventually(() => connections.filter(({ socket }) => !socket.destroyed).length === 2);
  });

  it("a stale connection of one client costs no other client its own", async () => {
    let resets = 0;
    const { port, connections } = await listening("http", (request, response) => {
      if (request.url!.endsWith("/stale") && resets++ === 0) return void request.socket.resetAndDestroy();
      response.end("ok");
    });
    const gateway = await running(oneService(port, { proxy_protocol: "v2" }, TRUSTED));
    const three = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    for (const address of three) expect((await ask(gateway.port, from(address))).status).toBe(200);
    expect((await ask(gateway.port, { ...from("192.0.2.1"), path: "/a/stale" })).status).toBe(200);
    for (const address of three) expect((await ask(gateway.port, from(address))).status).toBe(200);
    expect(addresses(connections)).toEqual([...three, "192.0.2.1"]);
  });

  it("each has a header: those of requests at the same time, of WebSockets, of another try, of a name", async () => {
    let requests = 0;
    const { port, connections } = await listening("http", (request, response) => {
      if (request.url!.endsWith("/again") && ++requests === 1) return void request.socket.destroy();
      response.end("ok");
    });
    const config = oneService(
      port,
      {
        proxy_protocol: "v2",
        upstreams: ["localhost", "127.0.0.1"].map((host) => ({ host, port })),
        retries: { attempts: 1 },
      },
      TRUSTED,
    );
    const gateway = await running(config);
    await Promise.all([ask(gateway.port, from("192.0.2.1")), ask(gateway.port, from("192.0.2.1"))]);
    expect(addresses(connections)).toEqual(["192.0.2.1", "192.0.2.1"]);
    expect((await ask(gateway.port, { ...from("192.0.2.2"), path: "/a/again" })).status).toBe(200);
    expect(addresses(connections).slice(2)).toEqual(["192.0.2.2", "192.0.2.2"]);
    const socket = await client(gateway.port);
    socket.send(
      get(
        "/a/x",
        "X-Forwarded-For: 192.0.2.3",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      ),
    );
    expect(statusesIn(await socket.until("\r\n\r\n"))).toEqual([101]);
    expect(addresses(connections).slice(4)).toEqual(["192.0.2.3"]);
  });

  it("over TLS to a name go to the address that answers, and resume the session of another client", async () => {
    // The server listens on 127.0.0.1 alone, and ::1 refuses.
    const { port, connections, resumed } = await listening("https");
    const tls = { ca: pem({ ca: CA.cert }).ca!, servername: "localhost" };
    const health = { enabled: true, path: "/", interval_ms: 100 };
    const service = {
      protocol: "https",
      proxy_protocol: "v2",
      upstreams: [{ host: "localhost", port }],
      tls,
      health,
    } as const;
    const lookup = async () => [
      { address: "::1", family: 6 },
      { address: "127.0.0.1", family: 4 },
    ];
    const gateway = await running(oneService(port, service, TRUSTED), { lookup } as never);
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"])
      expect((await ask(gateway.port, from(address))).body.toString()).toBe(`${address}, 127.0.0.1`);
    const asked = () => addresses(connections).filter((address) => address !== null);
    // Its addresses are used in turn.
    expect(asked()).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"]);
    expect(resumed).toContain(true);
    await eventually(() => gateway.gateway.health.services[0]!.upstreams[0]!.state === "healthy");
  });

  it.each([
    ["v1", "http"],
    ["v2", "http"],
    ["v2", "https"],
  ] as const)("copies of a mirror with proxy_protocol have the client's, too: %s, %s", async (version, scheme) => {
    const upstream = await listening();
    const copies: string[] = [];
    const mirrored = await listening(scheme, (request, response) => {
      copies.push(String(request.headers["x-forwarded-for"]));
      response.end();
    });
    const tls = scheme === "https" ? { tls: { ca: pem({ ca: CA.cert }).ca! } } : {};
    const url = `${scheme}://localhost:${mirrored.port}`;
    const plugins = [{ name: "mirror", config: { url, proxy_protocol: version, ...tls } }];
    const gateway = await running(oneService(upstream.port, { proxy_protocol: "v2", plugins }, TRUSTED));
    for (const address of ["192.0.2.1", "192.0.2.2", "192.0.2.1"]) {
      const { length } = copies;
      expect((await ask(gateway.port, from(address))).status).toBe(200);
      await eventually(() => copies.length > length);
    }
    expect(copies).toEqual(["192.0.2.1, 127.0.0.1", "192.0.2.2, 127.0.0.1", "192.0.2.1, 127.0.0.1"]);
    expect(addresses(mirrored.connections)).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.1"]);
    await eventually(() => mirrored.connections.every(({ socket }) => socket.destroyed));
  });

  it("behind a proxy of the gateway's own have the client's address, too", async () => {
    const { port, connections } = await listening();
    const proxy = await connectProxy();
    const global = { ...TRUSTED, egress_proxy: { url: `http://127.0.0.1:${proxy.port}` } };
    for (const [version, host] of [
      ["v1", "127.0.0.1"],
      ["v2", "localhost"],
    ] as const) {
      const gateway = await running(oneService(port, { proxy_protocol: version, upstreams: [{ host, port }] }, global));
      for (const address of ["192.0.2.1", "2001:db8::2"])
        expect((await ask(gateway.port, from(address))).status).toBe(200);
    }
    expect(addresses(connections)).toEqual(["192.0.2.1", "2001:db8::2", "192.0.2.1", "2001:db8::2"]);
    const mirrored = await listening();
    const config = { url: `http://localhost:${mirrored.port}`, proxy_protocol: "v2" };
    const copying = { proxy_protocol: "v1", plugins: [{ name: "mirror", config }] } as const;
    const gateway = await running(oneService(port, copying, global));
    expect((await ask(gateway.port, from("192.0.2.3"))).status).toBe(200);
    await eventually(() => mirrored.connections.length > 0);
    expect(addresses(mirrored.connections)).toEqual(["192.0.2.3"]);
  });

  it.each([
    ["v1", "PROXY UNKNOWN\r\n"],
    ["v2", "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"],
  ] as const)("%s: those of health checks are the gateway's own", async (version, header) => {
    const clock = manualClock();
    const { port, connections } = await listening();
    const health = { enabled: true, path: "/", interval_ms: 1_000 };
    await running(oneService(port, { proxy_protocol: version, health }, TRUSTED), { clock });
    clock.advance(1_000);
    await eventually(() => connections.length > 0);
    expect(connections[0]!.header).toBe(header);
  });

  it("a reload that changes the version, or ends it, opens others", async () => {
    const { port, connections } = await listening();
    const config = (version: "v1" | "v2") => oneService(port, { proxy_protocol: version }, TRUSTED);
    const { gateway, port: at } = await running(config("v1"));
    await ask(at, from("192.0.2.1"));
    await gateway.reload(config("v2"));
    await ask(at, from("192.0.2.1"));
    expect(connections.map(({ header }) => header.slice(0, 5))).toEqual(["PROXY", "\r\n\r\n\0"]);
    await eventually(() => connections[0]!.socket.destroyed);
  });

  it(
    "one that cannot be opened, or whose certificate is wrong, " + "is the upstream's fault, and nothing is left",
    async () => {
      const { port, connections } = await listening("https");
      const wrong = await running(oneService(port, { protocol: "https", proxy_protocol: "v2" }, TRUSTED));
      expect((await ask(wrong.port, from("192.0.2.1"))).status).toBe(502);
      await eventually(() => connections.length === 1 && connections[0]!.socket.destroyed);
      const closed = net.createServer().listen(0, "127.0.0.1");
      await once(closed, "listening");
      const { port: nobody } = closed.address() as AddressInfo;
      await new Promise((done) => closed.close(done));
      for (const protocol of ["http", "https"] as const) {
        const gateway = await running(oneService(nobody, { protocol, proxy_protocol: "v2" }, TRUSTED));
        expect((await ask(gateway.port, from("192.0.2.1"))).status).toBe(502);
      }
    },
  );

  it.each(["h2", "h2c"] as const)("cannot be those of %s, which many clients share", (protocol) => {
    const make = () => createGateway({ config: oneService(9, { protocol, proxy_protocol: "v1" }) });
    expect(make).toThrow(ConfigError);
    expect(make).toThrow(/services\[0\]\.proxy_protocol +is for protocol "http" and "https"/);
  });
});

import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ConfigInput, GatewayOptions } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { h2Open, h2Session } from "../support/h2_client.ts";
import { v2 } from "../support/proxy_header.ts";
import { together } from "../support/following.ts";
import { connect, eventually, overSocket, type RawConnection } from "../support/raw_client.ts";
import { oneService, running } from "../support/gateway.ts";
import { backend, client, get, recordedLog, statusesIn } from "./harness.ts";

const TRUSTED = ["127.0.0.1/32", "198.51.100.0/24"];
const PROXY = "127.0.0.1";
const OTHER = "127.0.0.9";
const V1 = "PROXY TCP4 192.0.2.1 203.0.113.7 51234 443\r\n";
const V2 = v2(0x21, 0x11, Buffer.from([192, 0, 2, 2, 203, 0, 113, 7, 200, 30, 1, 187]));
const LOCAL = v2(0x20, 0);

type Mode = "accept" | "require";

async function behind(mode: Mode, global: ConfigInput["global"] = {}, options: Partial<GatewayOptions> = {}) {
  const origin = await backend();
  const logged: { client_ip: string }[] = [];
  const recorded = recordedLog();
  const all = { trusted_proxies: TRUSTED, proxy_protocol: mode, ...global };
  const made = await running(oneService(origin.port, {}, all), {
    log: recorded.log,
    accessLog: (line) =>
      void logged.push(
        ...line
          .trim()
          .split("\n")
          .map((each) => JSON.parse(each) as (typeof logged)[0]),
      ),
    ...options,
  });
  const forwarded = () => origin.seen.map(({ headers }) => headers[headers.indexOf("X-Forwarded-For") + 1]);
  return { ...made, origin, logged, forwarded, refusals: () => recorded.lines.map(({ message }) => message) };
}

const last = get("/a/x", "Connection: close");

/** What a connection that begins with `begin` gets. */
async function got(port: number, begin: string | Buffer, from = PROXY): Promise<number[]> {
  const connection = await connect(port, from).catch(() => null);
  // Reset before the client knows that it was accepted.
  if (connection === null) return [];
  connection.send(begin);
  connection.send(last);
  return statusesIn(await connection.closed());
}

describe("connections behind a proxy that tells by the PROXY protocol whose they are", () => {
  it.each(["accept", "require"] as const)(
    "with %s requests are of the client of the header, to upstreams and in the access log",
    async (mode) => {
      const { port, forwarded, logged } = await behind(mode);
      expect(await got(port, V1)).toEqual([200]);
      expect(await got(port, V2)).toEqual([200]);
      expect(forwarded()).toEqual(["192.0.2.1", "192.0.2.2"]);
      await eventually(() => logged.length === 2);
      expect(logged.map(({ client_ip: ip }) => ip)).toEqual(["192.0.2.1", "192.0.2.2"]);
    },
  );

  it("a header is read whatever its pieces are, and all requests of the connection are the client's", async () => {
    const { port, forwarded } = await behind("require");
    for (const header of [Buffer.from(V1), V2]) {
      const connection = await client(port);
      for (const byte of header)
        await new Promise<void>((sent) => connection.socket.write(Buffer.from([byte]), () => setImmediate(sent)));
      connection.send(get() + get());
      connection.send(last);
      expect(statusesIn(await connection.closed())).toEqual([200, 200, 200]);
    }
    expect(forwarded()).toEqual([...Array(3).fill("192.0.2.1"), ...Array(3).fill("192.0.2.2")]);
  });

  it("connections of the proxy itself are its own: its checks", async () => {
    const { port, forwarded } = await behind("require");
    for (const header of ["PROXY UNKNOWN\r\n", LOCAL]) expect(await got(port, header)).toEqual([200]);
    expect(forwarded()).toEqual([PROXY, PROXY]);
  });

  it("headers of the request count where the client of the header is a trusted proxy, and only there", async () => {
    const { port, forwarded } = await behind("require");
    const told = get("/a/x", "X-Forwarded-For: 203.0.113.50", "Connection: close");
    for (const [header, chain] of [
      ["PROXY TCP4 198.51.100.4 203.0.113.7 1 2\r\n", "203.0.113.50, 198.51.100.4"],
      [V1, "192.0.2.1"],
    ] as const) {
      const connection = await client(port);
      connection.send(header + told);
      expect(statusesIn(await connection.closed())).toEqual([200]);
      expect(forwarded().at(-1)).toBe(chain);
    }
  });

  it("acl and rate_limit go by the client of the header, and so does what is logged of a refusal", async () => {
    const origin = await backend();
    const logged: string[] = [];
    const plugins = [
      { name: "acl", config: { blacklist: ["192.0.2.66"] } },
      { name: "rate_limit", config: { limit_hour: 2 } },
    ];
    const global = { trusted_proxies: TRUSTED, proxy_protocol: "require" } as const;
    const { port } = await running(oneService(origin.port, { plugins }, global), {
      accessLog: (lines) => void logged.push(...lines.trim().split("\n")),
    });
    const from = (address: string) => got(port, `PROXY TCP4 ${address} 203.0.113.7 1 2\r\n`);
    expect(await from("192.0.2.66")).toEqual([403]);
    expect([await from("192.0.2.1"), await from("192.0.2.1"), await from("192.0.2.1")]).toEqual([[200], [200], [429]]);
    expect(await from("192.0.2.2")).toEqual([200]);
    await eventually(() => logged.length === 5);
    const seen = logged.map((line) => JSON.parse(line) as { client_ip: string; status: number });
    expect(seen.map(({ client_ip: ip, status }) => `${ip} ${status}`)).toEqual([
      "192.0.2.66 403",
      "192.0.2.1 200",
      "192.0.2.1 200",
      "192.0.2.1 429",
      "192.0.2.2 200",
    ]);
  });

  it("with two workers a limit counts the requests of a client of headers to both", async () => {
    const origin = await backend();
    const plugins = [{ name: "rate_limit", config: { limit_hour: 3 } }];
    const global = { trusted_proxies: TRUSTED, proxy_protocol: "require" } as const;
    const { ports } = await together({ config: oneService(origin.port, { plugins }, global) });
    const statuses: number[] = [];
    for (const port of [...ports, ...ports])
      statuses.push(...(await got(port, "PROXY TCP4 192.0.2.1 203.0.113.7 1 2\r\n")));
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect(await got(ports[0]!, V2)).toEqual([200]);
  });

  it("a client's limit of connections counts those of its address, through whichever proxy they come", async () => {
    const { port, gateway } = await behind("require", { limits: { max_connections_per_ip: 2 } });
    const open = async (address: string) => {
      const connection = await client(port);
      connection.send(`PROXY TCP4 ${address} 203.0.113.7 1 2\r\n${get()}`);
      return connection;
    };
    const kept = [await open("192.0.2.1"), await open("192.0.2.1")];
    for (const each of kept) await each.until("HTTP/1.1 200");
    expect(await (await open("192.0.2.1")).closed()).toBe("");
    await (await open("192.0.2.3")).until("HTTP/1.1 200");
    kept[0]!.socket.destroy();
    await eventually(() => connectionsOf(gateway) === 2);
    await (await open("192.0.2.1")).until("HTTP/1.1 200");
  });
});

const connectionsOf = (gateway: { metrics(): string }) =>
  Number(/^edge_gateway_client_connections (\d+)$/m.exec(gateway.metrics())![1]);

describe("a connection is reset, without a reply,", () => {
  it.each<[title: string, mode: Mode, from: string, begin: string | Buffer, why: string]>([
    [
      "whose header is from somebody else",
      "accept",
      OTHER,
      V1,
      "one that begins with a PROXY header, or has to, is not from global.trusted_proxies",
    ],
    [
      "whose header is from somebody else, where each must have one",
      "require",
      OTHER,
      V2,
      "one that begins with a PROXY header, or has to, is not from global.trusted_proxies",
    ],
    ["that has none where each must have one", "require", PROXY, "", "there is no PROXY header"],
    [
      "of somebody else without one where each must have one",
      "require",
      OTHER,
      "",
      "one that begins with a PROXY header, or has to, is not from global.trusted_proxies",
    ],
    ["whose header is invalid", "accept", PROXY, "PROXY TCP4 192.0.2.1\r\n", "the PROXY header is invalid"],
    ["whose header is invalid, of version 2", "accept", PROXY, v2(0x21, 0x11), "the PROXY header is invalid"],
  ])("%s (%s)", async (_title, mode, from, begin, why) => {
    const { port, origin, gateway, refusals } = await behind(mode);
    expect(await got(port, begin, from)).toEqual([]);
    expect(origin.seen).toEqual([]);
    expect(refusals()).toContain(`connections are refused: ${why}`);
    expect(gateway.metrics()).toMatch(/^edge_gateway_client_connections_refused_total 1$/m);
  });

  it("that is not from a trusted proxy where it must be, before it has sent anything", async () => {
    const { port, refusals } = await behind("require");
    const connection = await connect(port, OTHER).catch(() => null);
    expect((await connection?.closed()) ?? "").toBe("");
    expect(refusals()).toContain(
      "connections are refused: one that begins with a PROXY header, or has to, is not from global.trusted_proxies",
    );
  });

  it("that has not sent its header in time, or ends within it", async () => {
    const clock = manualClock();
    const { port, refusals, gateway } = await behind("accept", { limits: { headers_timeout_ms: 5_000 } }, { clock });
    const slow = await client(port);
    slow.send(V1.slice(0, 20));
    const silent = await client(port);
    await eventually(() => connectionsOf(gateway) === 2 && clock.pending >= 2);
    const ended = await client(port);
    ended.send(V1.slice(0, 20));
    ended.socket.end();
    expect(await ended.closed()).toBe("");
    clock.advance(5_000);
    expect(await slow.closed()).toBe("");
    expect(await silent.closed()).toBe("");
    expect(refusals()).toContain("connections are refused: a PROXY header has not arrived in time");
    await eventually(() => connectionsOf(gateway) === 0);
    // The one that has sent nothing was only not used.
    expect(gateway.metrics()).toMatch(/^edge_gateway_client_connections_refused_total 1$/m);
  });
});

describe("without a header", () => {
  it("connections are served as they are with accept, of whomever they are, byte by byte, too", async () => {
    const { port, forwarded } = await behind("accept");
    expect(await got(port, "", OTHER)).toEqual([200]);
    const connection = await client(port);
    for (const letter of last.replace("GET", "POST"))
      await new Promise<void>((sent) => connection.socket.write(letter, () => setImmediate(sent)));
    expect(statusesIn(await connection.closed())).toEqual([200]);
    expect(forwarded()).toEqual([OTHER, PROXY]);
  });

  it("one that has sent nothing ends when the gateway does", async () => {
    const { port, gateway } = await behind("require");
    const silent = await client(port);
    await eventually(() => connectionsOf(gateway) === 1);
    await gateway.close(1_000);
    expect(await silent.closed()).toBe("");
  });
});

describe("behind the header", () => {
  it("comes HTTP/2 where the port takes it", async () => {
    const { port, forwarded } = await behind("accept", { h2c: true });
    expect((await h2Open(h2Session(port), {}, true).reply).status).toBe(200);
    const socket = (await connect(port)).socket;
    socket.write(V1);
    const session = h2Session(port, { createConnection: () => socket });
    expect((await h2Open(session, {}, true).reply).status).toBe(200);
    expect(await got(port, V2)).toEqual([200]);
    expect(forwarded()).toEqual([PROXY, "192.0.2.1", "192.0.2.2"]);
  });

  it.each([
    ["http/1.1", "require"],
    ["h2", "accept"],
  ] as const)("comes TLS on ports with it: %s, %s", async (protocol, mode) => {
    const { gateway, forwarded, refusals } = await behind(mode);
    const files = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
    const { port } = await gateway.listen({ port: 0, tls: files });
    const secure = async (header: string | Buffer, from = PROXY) => {
      const { socket: below } = await connect(port, from);
      below.removeAllListeners("data");
      below.write(header);
      const socket = tls.connect({ socket: below, ca: CA.cert, servername: "localhost", ALPNProtocols: [protocol] });
      onTestFinished(() => void socket.destroy());
      await new Promise((done, failed) => socket.once("secureConnect", done).once("error", failed));
      return socket;
    };
    for (const header of [V1, V2]) {
      const socket = await secure(header);
      expect(socket.alpnProtocol).toBe(protocol);
      if (protocol === "h2") {
        const session = h2Session(port, { createConnection: () => socket });
        expect((await h2Open(session, {}, true).reply).status).toBe(200);
      } else {
        const connection: RawConnection = overSocket(socket);
        connection.send(last);
        expect(statusesIn(await connection.closed())).toEqual([200]);
      }
    }
    expect(forwarded()).toEqual(["192.0.2.1", "192.0.2.2"]);
    await expect(secure(V1, OTHER)).rejects.toThrow();
    expect(refusals()).toContain(
      "connections are refused: one that begins with a PROXY header, or has to, is not from global.trusted_proxies",
    );
  });
});

describe("a reload", () => {
  it("that begins to require headers leaves connections that are open alone", async () => {
    const { gateway, port, origin, forwarded } = await behind("accept");
    const open = await client(port);
    open.send(get());
    await open.until("HTTP/1.1 200");
    await gateway.reload(oneService(origin.port, {}, { trusted_proxies: TRUSTED, proxy_protocol: "require" }));
    expect(await got(port, "")).toEqual([]);
    open.send(last);
    expect(statusesIn(await open.closed())).toEqual([200, 200]);
    await gateway.reload(oneService(origin.port));
    expect(await got(port, V1)).toEqual([400]);
    expect(forwarded()).toEqual([PROXY, PROXY]);
  });
});

import { once } from "node:events";
import http, { type RequestListener } from "node:http";
import http2 from "node:http2";
import https from "node:https";
import net, { type AddressInfo, type Server, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/base/version.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import {
  startHealthCheck,
  type HealthCheckSettings,
  type HealthCheckTarget,
} from "../../lib/upstream/health_checks.ts";
import { LOOPBACK, madeUpNames, NOBODY, NOBODY_EITHER, site, turn } from "../support/addresses.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

type Protocol = HealthCheckTarget["protocol"];

interface Parts {
  readonly target?: Partial<HealthCheckTarget>;
  readonly settings?: Partial<HealthCheckSettings>;
  readonly random?: () => number;
}

/** A check whose first probe starts at once. */
function check(port: number, { target = {}, settings = {}, random = () => 0 }: Parts = {}) {
  const clock = manualClock();
  const reports: (string | null)[] = [];
  const running = startHealthCheck({
    target: {
      ...ANYWHERE,
      protocol: "http",
      host: "127.0.0.1",
      port,
      authority: `upstream.example:${port}`,
      ...target,
    },
    settings: {
      path: "/",
      intervalMs: 5000,
      timeoutMs: 2000,
      expects: (status) => status >= 200 && status < 400,
      ...settings,
    },
    clock,
    random,
    report: (failure) => reports.push(failure),
  });
  onTestFinished(() => running());
  clock.advance(0);
  const reported = async (count: number) => {
    await eventually(() => reports.length >= count, `report ${count}`);
    return reports;
  };
  return { clock, reports, reported, stop: () => running() };
}

/** A server that is gone when the test ends, with the number of its open connections. */
async function serving(server: Server) {
  const self = { port: 0, open: 0, total: 0, sockets: new Set<Socket>() };
  server.on("connection", (socket: Socket) => {
    self.open++;
    self.total++;
    self.sockets.add(socket.on("error", () => {}));
    socket.on("close", () => {
      self.open--;
      self.sockets.delete(socket);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of self.sockets) socket.destroy();
  });
  self.port = (server.address() as AddressInfo).port;
  return self;
}

/** At the level of bytes: `talk` gets each connection when the first bytes of the probe are there. */
const talking = (talk: (socket: Socket) => void) =>
  serving(net.createServer((socket) => void socket.once("data", () => talk(socket))));

const KEYS = { cert: SERVER.cert, key: SERVER.key };
const TLS = { ca: { content: Buffer.from(CA.cert) } };

const SERVERS: { readonly [protocol in Protocol]: (listener: RequestListener) => Server } = {
  http: (listener) => http.createServer(listener),
  https: (listener) => https.createServer(KEYS, listener),
  h2: (listener) => http2.createSecureServer(KEYS, listener as never),
  h2c: (listener) => http2.createServer(listener as never),
};

const targetOf = (protocol: Protocol): Partial<HealthCheckTarget> => ({
  protocol,
  ...(protocol === "https" || protocol === "h2" ? { tls: new UpstreamTls(TLS) } : {}),
});
const PROTOCOLS: readonly Protocol[] = ["http", "https", "h2", "h2c"];

describe.each(PROTOCOLS)("health checks over %s", (protocol) => {
  it(
    "sends a GET for the path with the authority, each time on a separate connection that " +
      "is closed after the head",
    async () => {
      const seen: unknown[] = [];
      const origin = await serving(
        SERVERS[protocol]((request, response) => {
          seen.push([
            request.method,
            request.url,
            request.headers.host ?? request.headers[":authority"],
            request.headers["user-agent"],
          ]);
          // Without an end: nobody waits for the body.
          response.writeHead(204 + seen.length - 1);
          response.flushHeaders?.();
        }),
      );
      const { reported, clock } = check(origin.port, { target: targetOf(protocol), settings: { path: "/up?deep=1" } });
      await reported(1);
      await eventually(() => origin.open === 0, "the end of the connection");
      clock.advance(4500);
      expect(await reported(2)).toEqual([null, null]);
      const request = [
        "GET",
        "/up?deep=1",
        `upstream.example:${origin.port}`,
        `edge-gateway/${version} (health check)`,
      ];
      expect(seen).toEqual([request, request]);
      expect(origin.total).toBe(2);
      await eventually(() => origin.open === 0, "the end of the second connection");
    },
  );

  it("reports an unexpected status, and treats a redirect as a status", async () => {
    const origin = await serving(
      SERVERS[protocol]((_request, response) => void response.writeHead(301, { location: "/elsewhere" }).end()),
    );
    const { reported } = check(origin.port, {
      target: targetOf(protocol),
      settings: { expects: (status) => status === 200 },
    });
    expect(await reported(1)).toEqual(["status 301"]);
  });

  it("does not treat an informational response as the response", async () => {
    const origin = await serving(
      SERVERS[protocol]((_request, response) => {
        response.writeEarlyHints({ link: "</a.css>; rel=preload" });
        response.writeHead(503).end();
      }),
    );
    const { reported } = check(origin.port, { target: targetOf(protocol) });
    expect(await reported(1)).toEqual(["status 503"]);
  });

  it("fails if the connection is refused", async () => {
    const port = await closedPort();
    const { reported } = check(port, { target: targetOf(protocol) });
    expect(await reported(1)).toEqual([`connect ECONNREFUSED 127.0.0.1:${port}`]);
  });

  it("fails without a response within timeout_ms, connecting included", async () => {
    const origin = await serving(net.createServer((socket) => void socket.resume()));
    const { clock, reports } = check(origin.port, { target: targetOf(protocol) });
    await eventually(() => origin.open === 1, "one connection open at the upstream");
    clock.advance(1999);
    expect(reports).toEqual([]);
    clock.advance(1);
    expect(reports).toEqual(["no response within 2000 ms"]);
    await eventually(() => origin.open === 0, "the end of the connection");
  });

  it("fails if the request is accepted and not answered", async () => {
    let taken = 0;
    const origin = await serving(SERVERS[protocol](() => void taken++));
    const { clock, reports } = check(origin.port, { target: targetOf(protocol) });
    await eventually(() => taken === 1, "one accepted request");
    clock.advance(2000);
    expect(reports).toEqual(["no response within 2000 ms"]);
    await eventually(() => origin.open === 0, "the end of the connection");
  });

  it("does not keep the process alive while a check waits", async () => {
    let taken = 0;
    const server = SERVERS[protocol](() => void taken++);
    const origin = await serving(server.unref().on("connection", (socket: Socket) => void socket.unref()));
    const connections = () => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;
    const before = connections();
    check(origin.port, { target: targetOf(protocol) });
    await eventually(() => taken === 1, "one accepted request");
    expect(connections()).toBe(before);
  });

  it.each<[string, (socket: Socket) => void]>([
    ["closes the connection", (socket) => void socket.destroy()],
    ["resets it", (socket) => void socket.resetAndDestroy()],
    ["ends it", (socket) => void socket.end()],
  ])("fails if the upstream %s instead of answering", async (_title, talk) => {
    const origin = await talking(talk);
    const { reported, clock } = check(origin.port, { target: targetOf(protocol) });
    const [failure] = await reported(1);
    expect(failure).toMatch(/closed before|ECONNRESET|EPIPE|disconnected before secure TLS|socket hang up/);
    await eventually(() => origin.open === 0, "no connection open at the upstream");
    clock.advance(4500);
    expect(await reported(2)).toHaveLength(2);
  });

  it("fails if the response is not HTTP", async () => {
    const origin = await talking(
      (socket) =>
        void socket.end("SSH-2.0-OpenSSH_9.9\r\nnoise that is long enough to be a frame or a record of something\r\n"),
    );
    const { reported } = check(origin.port, { target: targetOf(protocol) });
    const [failure] = await reported(1);
    expect(failure).toMatch(
      protocol === "http" || protocol === "h2c" ? /^invalid response \(.+\)$/ : /SSL|wrong version/,
    );
  });

  it.each<[string, (origin: { open: number }, taken: () => number) => boolean]>([
    ["before the first probe", () => true],
    ["while it connects", (origin) => origin.open === 1],
    ["while it waits for the answer", (_origin, taken) => taken() === 1],
  ])("reports nothing and leaves nothing open when it is stopped %s", async (_title, isTime) => {
    let taken = 0;
    let answer = () => {};
    const origin = await serving(
      SERVERS[protocol]((_request, response) => {
        taken++;
        answer = () => void response.end();
      }),
    );
    const { stop, reports, clock } = check(origin.port, { target: targetOf(protocol) });
    await eventually(() => isTime(origin, () => taken), "the time to stop");
    stop();
    answer();
    stop();
    expect(clock.pending).toBe(0);
    await turn();
    await eventually(() => origin.open === 0, "the end of the connection");
    clock.advance(60_000);
    expect(reports).toEqual([]);
  });

  it("reports nothing more when its report stops it", async () => {
    const origin = await serving(SERVERS[protocol]((_request, response) => void response.end()));
    const clock = manualClock();
    let heard = 0;
    const running = startHealthCheck({
      target: {
        ...ANYWHERE,
        host: "127.0.0.1",
        port: origin.port,
        authority: "a",
        protocol: "http",
        ...targetOf(protocol),
      },
      settings: { path: "/", intervalMs: 1000, timeoutMs: 500, expects: () => true },
      clock,
      random: () => 0,
      report() {
        heard++;
        running();
      },
    });
    clock.advance(0);
    await eventually(() => heard === 1, "one report");
    expect(clock.pending).toBe(0);
    await eventually(() => origin.open === 0, "no connection open at the upstream");
  });
});

describe("a check with an invalid HTTP/1.1 response", () => {
  const endless =
    (bytes: string, between = "") =>
    (socket: Socket) => {
      socket.write(`HTTP/1.1 ${between}`);
      const more = () => {
        while (!socket.destroyed && socket.write(bytes));
        if (!socket.destroyed) socket.once("drain", more);
      };
      more();
    };

  it.each<[string, (socket: Socket) => void, RegExp]>([
    [
      "its head has no end",
      endless("X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", "200 OK\r\n"),
      /^invalid response \(.*overflow.*\)$/i,
    ],
    [
      "information has no end",
      endless("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", "100 Continue\r\n\r\n"),
      /more than 20 informational/,
    ],
    [
      "it switches protocols",
      (socket) => socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n"),
      /switches protocols/,
    ],
    [
      "101 without a protocol",
      (socket) => socket.write("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
      /^invalid response|closed before/,
    ],
    [
      "it has another version",
      (socket) => socket.write("HTTP/2.0 200 OK\r\n\r\n"),
      /^invalid response \(.*HTTP\/2\.0\)$/,
    ],
    [
      "its head breaks off",
      (socket) => socket.end("HTTP/1.1 200 OK\r\nContent-"),
      /^the connection closed before a response$|^invalid response/,
    ],
  ])("fails with this cause: %s", async (_title, talk, expected) => {
    const origin = await talking(talk);
    const { reported } = check(origin.port);
    expect((await reported(1))[0]).toMatch(expected);
    await eventually(() => origin.open === 0, "the end of the connection");
  });

  it("accepts a head just below 32 KiB", async () => {
    const origin = await talking((socket) => socket.write(`HTTP/1.1 200 OK\r\nX-A: ${"a".repeat(32_000)}\r\n\r\n`));
    expect(await check(origin.port).reported(1)).toEqual([null]);
  });
});

describe("a check over HTTP/2 without a response", () => {
  it("a check over HTTP/2 without a response fails with the code of a stream that is reset", async () => {
    const server = http2.createServer();
    server.on("stream", (stream: http2.ServerHttp2Stream) =>
      stream.on("error", () => {}).close(http2.constants.NGHTTP2_REFUSED_STREAM),
    );
    const origin = await serving(server);
    const { reported } = check(origin.port, { target: { protocol: "h2c" } });
    expect((await reported(1))[0]).toMatch(/REFUSED_STREAM|code 7/);
  });

  it("a check over HTTP/2 without a response fails even if the stream is reset without an error", async () => {
    const server = http2.createServer();
    server.on("stream", (stream: http2.ServerHttp2Stream) =>
      stream.on("error", () => {}).close(http2.constants.NGHTTP2_CANCEL),
    );
    const origin = await serving(server);
    const { reported } = check(origin.port, { target: { protocol: "h2c" } });
    expect(await reported(1)).toEqual(["the upstream reset the stream (code 8)"]);
  });

  it("a check over HTTP/2 without a response closes its connection with a GOAWAY", async () => {
    const server = http2.createServer((_request, response) => void response.end());
    const codes: number[] = [];
    server.on("session", (session) => void session.on("goaway", (code) => codes.push(code)));
    const origin = await serving(server);
    await check(origin.port, { target: { protocol: "h2c" } }).reported(1);
    await eventually(() => origin.open === 0, "no connection open at the upstream");
    expect(codes).toEqual([0]);
  });

  it("a check over HTTP/2 without a response fails after a GOAWAY", async () => {
    const server = http2.createServer();
    server.on("stream", (stream: http2.ServerHttp2Stream) =>
      stream
        .on("error", () => {})
        .session!.on("error", () => {})
        .goaway(2),
    );
    const origin = await serving(server);
    const { reported } = check(origin.port, { target: { protocol: "h2c" } });
    expect((await reported(1))[0]).toMatch(/session closed with error code|closed before/i);
    await eventually(() => origin.open === 0, "no connection open at the upstream");
  });
});

describe("TLS", () => {
  const certified = () => serving(SERVERS.https((_request, response) => void response.end()));

  it("fails for a certificate that the system does not know", async () => {
    const { reported } = check((await certified()).port, { target: { protocol: "https", tls: new UpstreamTls() } });
    expect((await reported(1))[0]).toMatch(/certificate/);
  });

  it("fails for a certificate for another name", async () => {
    const { reported } = check((await certified()).port, {
      target: { protocol: "https", tls: new UpstreamTls({ ...TLS, servername: "other.example" }) },
    });
    expect((await reported(1))[0]).toContain("other.example");
  });

  it("fails if the upstream does not negotiate h2", async () => {
    const { reported } = check((await certified()).port, { target: targetOf("h2") });
    expect((await reported(1))[0]).toMatch(/ALPN|application protocol/i);
  });

  it("presents the client certificate", async () => {
    const server = https.createServer(
      { ...KEYS, ca: CA.cert, requestCert: true, rejectUnauthorized: true },
      (_request, response) => void response.end(),
    );
    const origin = await serving(server);
    const tls = new UpstreamTls({
      ...TLS,
      cert: { content: Buffer.from(CLIENT.cert) },
      key: { content: Buffer.from(CLIENT.key) },
    });
    expect(await check(origin.port, { target: { protocol: "https", tls } }).reported(1)).toEqual([null]);
  });

  it("throws at the start if certificate and key do not match", () => {
    const tls = new UpstreamTls({
      ...TLS,
      cert: { content: Buffer.from(CLIENT.cert) },
      key: { content: Buffer.from(SERVER.key) },
    });
    expect(() => check(1, { target: { protocol: "https", tls } })).toThrow();
  });
});

describe("the addresses of a name", () => {
  it(
    "the addresses of a name get their checks in turn, " + "and the next address replaces an address that refuses",
    async () => {
      const origin = await site(LOOPBACK, () => http.createServer((_request, response) => void response.end()));
      const resolver = madeUpNames(["127.0.0.3", ...LOOPBACK]);
      const name = await resolver.named("upstream.invalid");
      const { clock, reported } = check(origin.port, { target: { host: name.host, name } });
      for (let i = 1; i <= LOOPBACK.length + 1; i++) {
        expect(await reported(i)).toEqual(Array(i).fill(null));
        clock.advance(4500);
      }
      await reported(LOOPBACK.length + 2);
      expect(Object.values(origin.total).every((count) => count > 0)).toBe(true);
      expect(resolver.asked).toHaveLength(1);
    },
  );

  it("the addresses of a name appear all in the report if all refuse", async () => {
    const port = await closedPort();
    const name = await madeUpNames([NOBODY, NOBODY_EITHER]).named("upstream.invalid");
    const { reported } = check(port, { target: { host: name.host, name } });
    expect(await reported(1)).toEqual([
      `connect ECONNREFUSED ${NOBODY}:${port}, connect ECONNREFUSED ${NOBODY_EITHER}:${port}`,
    ]);
  });
});

describe("the schedule of checks", () => {
  /** The moments at which probes start, against an upstream that refuses at once. */
  async function starts(
    random: () => number,
    settings: Partial<HealthCheckSettings>,
    count: number,
  ): Promise<number[]> {
    const port = await closedPort();
    const clock = manualClock();
    const moments: number[] = [];
    let reports = 0;
    let asked = 0;
    const running = startHealthCheck({
      target: { ...ANYWHERE, protocol: "http", host: "127.0.0.1", port, authority: "a" },
      settings: { path: "/", intervalMs: 5000, timeoutMs: 2000, expects: () => true, ...settings },
      clock,
      // The first number is for the first probe, each later one is taken at the start of a probe.
      random() {
        if (asked++ > 0) moments.push(clock.now());
        return random();
      },
      report: () => reports++,
    });
    onTestFinished(() => running());
    while (moments.length < count) {
      clock.advance(1);
      if (moments.length > reports) {
        const expected = moments.length;
        await eventually(() => reports === expected, "the next report");
      }
    }
    return moments;
  }

  it.each<[string, number, number, number[]]>([
    ["the least chance", 0, 5000, [0, 4500, 9000]],
    ["half", 0.5, 5000, [500, 5500, 10500]],
    ["the most", 0.999, 5000, [999, 6498, 11998]],
    ["half of a short interval", 0.5, 100, [50, 150, 250]],
  ])("the schedule of checks holds with %s", async (_title, chance, intervalMs, expected) => {
    const moments = await starts(() => chance, { intervalMs }, 3);
    moments.forEach((moment, i) => expect(Math.abs(moment - expected[i]!)).toBeLessThanOrEqual(2));
  });

  it(
    "the schedule of checks moves with a slow check, without overlap, " + "and does not move with a quick check",
    async () => {
      const origin = await serving(net.createServer((socket) => void socket.resume()));
      const { clock, reports } = check(origin.port, {
        settings: { intervalMs: 1000, timeoutMs: 2500 },
        random: () => 0.5,
      });
      clock.advance(500);
      await eventually(() => origin.total === 1, "one check");
      clock.advance(2499);
      expect(origin.total).toBe(1);
      expect(reports).toEqual([]);
      clock.advance(1);
      expect(reports).toHaveLength(1);
      clock.advance(0);
      await eventually(() => origin.total === 2, "two checks");
      await eventually(() => origin.open === 1, "the end of the first connection");
    },
  );
});

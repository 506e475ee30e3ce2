/**
 * What one client can hold of a gateway (the table "What one client can hold" of docs/limits.md): each test tries to
 * exceed a bound over HTTP/1.1, TLS, HTTP/2 and WebSocket while another client is served. The program runs as a process
 * of its own, which reports its memory; steps of code are counted in this one.
 */
import { once } from "node:events";
import { existsSync } from "node:fs";
import http2 from "node:http2";
import net, { type Socket } from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { SERVER } from "../support/certs.ts";
import { document, root, tableUnder } from "../support/documents.ts";
import { blocksOf, counted } from "../support/growth.ts";
import { fileWith, runningProgram, type RunningProgram } from "../support/process.ts";
import { DATA, frame, POST, rawSession } from "../support/h2_raw.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { byteBackend, codeIn, statusesIn } from "./harness.ts";

const MIB = 2 ** 20;
const ATTACKER = "127.0.0.2";
const UPGRADE = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/** An open request (or a WebSocket) of the attacker: what is written is its body, what is read is its reply. */
interface Open {
  readonly wire: Socket;
  readonly stream: Duplex;
  /** As a part of the body: framed where the protocol wants it. */
  part(bytes: Buffer): Buffer;
}

type Transport = (gateway: Ports, method: "GET" | "POST", path: string) => Promise<Open>;

const chunk = (bytes: Buffer) =>
  Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
const asItIs = (bytes: Buffer) => bytes;

const http1 =
  (secure: boolean): Transport =>
  async (gateway, method, path) => {
    const wire = await connected(secure ? gateway.httpsPort : gateway.port, secure, "http/1.1");
    wire.write(
      [
        `${method} ${path} HTTP/1.1`,
        "Host: gw.example",
        ...(method === "POST" ? ["Transfer-Encoding: chunked"] : []),
        "",
        "",
      ].join("\r\n"),
    );
    return { wire, stream: wire, part: chunk };
  };

const TRANSPORTS: Readonly<Record<string, Transport>> = {
  "HTTP/1.1": http1(false),
  TLS: http1(true),
  "HTTP/2": async (gateway, method, path) => {
    const wire = await connected(gateway.httpsPort, true, "h2");
    const session = http2.connect("https://localhost", { createConnection: () => wire });
    session.on("error", () => {});
    const stream = session.request(
      { ":method": method, ":path": path, ":authority": "gw.example" },
      { endStream: method === "GET" },
    );
    stream.on("error", () => {});
    return { wire, stream, part: asItIs };
  },
  WebSocket: async (gateway, _method, path) => {
    const wire = await connected(gateway.port, false, "");
    wire.write([`GET ${path} HTTP/1.1`, "Host: gw.example", ...UPGRADE, "", ""].join("\r\n"));
    return { wire, stream: wire, part: asItIs };
  },
};

/** HTTP/2 in the clear, frame by frame. */
const ofFrames: Transport = async (gateway, _method, path) => {
  const session = await rawSession(gateway.port);
  session.headers(1, [...POST.filter(([name]) => name !== ":path"), [":path", path]], 0);
  onTestFinished(() => void session.socket.destroy());
  return { wire: session.socket, stream: session.socket, part: (bytes) => frame(DATA, 0, 1, bytes) };
};

async function connected(port: number, secure: boolean, protocol: string): Promise<Socket> {
  const options = { port, host: "127.0.0.1", localAddress: ATTACKER };
  const plain = net.connect(options);
  await once(plain, "connect");
  const socket = secure
    ? tls.connect({ socket: plain, servername: "localhost", rejectUnauthorized: false, ALPNProtocols: [protocol] })
    : plain;
  socket.on("error", () => {});
  onTestFinished(() => void plain.destroy());
  if (secure) await once(socket, "secureConnect");
  return socket;
}

interface Ports {
  readonly port: number;
  readonly httpsPort: number;
}

interface Gateway extends RunningProgram, Ports {
  /** A value of its /metrics. */
  metric(name: string): Promise<number>;
  /** Requests of another client, one after the other, each of which is served. */
  serveOthers(requests: number): Promise<void>;
}

type Behave = (socket: Socket, head: string) => void;

/** For an upstream that answers `/ok`, and passes every other connection to `behave` with the head of its request. */
async function configFor(behave: Behave, pool: object = {}, limits: object = {}): Promise<AnyConfigInput> {
  const upstream = await byteBackend((socket) => {
    socket.on("error", () => {});
    const read = (bytes: Buffer) => {
      const head = bytes.toString("latin1");
      if (head.startsWith("GET /ok ")) return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      socket.off("data", read);
      if (head.includes("Sec-WebSocket-Key")) socket.write(SWITCHED);
      behave(socket, head);
    };
    socket.on("data", read);
  });
  return {
    global: { limits, h2c: true },
    services: [
      {
        name: "s",
        base_path: "/a",
        upstreams: [{ host: "127.0.0.1", port: upstream.port }],
        pool,
        routes: [{ path: "/{rest*}" }],
      },
    ],
  };
}

const TLS = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

/** In this process, with its code counted. */
async function countedGateway(behave: Behave): Promise<Ports> {
  const config = await configFor(behave);
  const { createGateway } = await counted(() => import("../../lib/index.ts"));
  const made = createGateway({ config });
  onTestFinished(async () => void (await made.close(0)));
  const { port } = await made.listen({ port: 0 });
  return {
    port,
    httpsPort: (await made.listen({ port: 0, tls: TLS })).port,
  };
}

async function gateway(behave: Behave, pool: object = {}, limits: object = {}): Promise<Gateway> {
  const config = await configFor(behave, pool, limits);
  const environment = {
    SERVER_CERT_PATH: fileWith(SERVER.cert, "cert.pem"),
    SERVER_KEY_PATH: fileWith(SERVER.key, "key.pem"),
    PROBE_PORT: "0",
  };
  const program = await runningProgram(config, [], environment);
  const { https, probes } = program.started as { readonly https: readonly string[]; readonly probes: string };
  return {
    ...program,
    httpsPort: Number(new URL(https[0]!).port),
    async metric(name) {
      const { body } = await ask(Number(new URL(probes).port), { path: "/metrics" });
      return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(body.toString())![1]);
    },
    async serveOthers(requests) {
      for (let i = 0; i < requests; i++) expect((await ask(program.port, { path: "/a/ok" })).status).toBe(200);
    },
  };
}

/** More than the system's buffers of all sockets on the way hold. */
const FLOOD = 128 * MIB;
/** More than the blocks of code that are executed for each piece: 35 at most. */
const BLOCKS = 50;
/** What a gateway may keep of it, the garbage of the requests of others included. */
const KEPT = 48 * MIB;

describe.each(Object.entries(TRANSPORTS))("one client over %s", (name, open) => {
  const isTunnel = name === "WebSocket";

  it("cannot fill the memory with a body that the upstream does not read", async () => {
    const running = await gateway((socket) => socket.pause());
    await running.serveOthers(50);
    const before = await running.metric("process_resident_memory_bytes");
    const { stream, part } = await open(running, "POST", "/a/x");
    const piece = part(Buffer.alloc(MIB));
    for (let sent = 0; sent < FLOOD; sent += MIB) stream.write(piece);
    await running.serveOthers(200);
    expect((await running.metric("process_resident_memory_bytes")) - before).toBeLessThan(KEPT);
  });

  it("cannot fill the memory with a reply that it does not read", async () => {
    const piece = Buffer.alloc(MIB);
    const running = await gateway((socket) => {
      if (!isTunnel) socket.write("HTTP/1.1 200 OK\r\n\r\n");
      for (let sent = 0; sent < FLOOD; sent += MIB) socket.write(piece);
    });
    await running.serveOthers(50);
    const before = await running.metric("process_resident_memory_bytes");
    const { wire } = await open(running, "GET", "/a/x");
    wire.pause();
    await running.serveOthers(200);
    expect((await running.metric("process_resident_memory_bytes")) - before).toBeLessThan(KEPT);
  });

  it("cannot make the gateway execute more than a few steps for each piece of a body in tiny ones", async () => {
    let received = 0;
    const counts = await countedGateway((socket, head) => {
      received += head.length;
      socket.on("data", (bytes: Buffer) => (received += bytes.length));
    });
    // Node's client joins writes to one DATA frame. All of these frames fit into the window that a stream begins with.
    const [count, openHere] = name === "HTTP/2" ? ([6_000, ofFrames] as const) : ([50_000, open] as const);
    const { stream, part } = await openHere(counts, "POST", "/a/x");
    const start = received;
    const steps = await blocksOf(async () => {
      await written(stream, part(Buffer.from("x")), count);
      await eventually(() => received - start >= count);
    });
    expect(steps / count).toBeLessThan(BLOCKS);
  });

  it("cannot open more connections than max_connections_per_ip", async () => {
    const running = await gateway(() => {}, {}, { max_connections_per_ip: 4 });
    const opened = await Promise.all(Array.from({ length: 4 }, () => open(running, "POST", "/a/x")));
    // A surplus connection is reset, for TLS within its handshake.
    const surplus = await open(running, "POST", "/a/x").catch(() => null);
    if (surplus !== null && !surplus.wire.destroyed)
      await new Promise((resolve) => surplus.wire.once("close", resolve));
    await running.serveOthers(1);
    expect(opened.filter(({ wire }) => wire.destroyed)).toEqual([]);
  });

  it("gets 503 for requests beyond max_requests_in_flight, and others are served again when it leaves", async () => {
    let held = 0;
    const running = await gateway(() => void held++, {}, { max_requests_in_flight: 3, max_client_share: 1 });
    const opened: Open[] = [];
    for (let i = 0; i < 3; i++) opened.push(await open(running, "POST", "/a/x"));
    while (held < 3) await new Promise((resolve) => setImmediate(resolve));
    const { body } = await ask(running.port, { path: "/a/ok" });
    expect(codeIn(body.toString())).toBe("overloaded");
    const { stream } = await open(running, "POST", "/a/x");
    expect(await refusal(stream)).toBe(503);
    for (const { wire } of opened) wire.destroy();
    while ((await ask(running.port, { path: "/a/ok" })).status !== 200);
  });
});

/** Writes as fast as the stream takes it. */
async function written(stream: Duplex, part: Buffer, count: number): Promise<void> {
  const isFramed = stream instanceof net.Socket;
  const perWrite = isFramed ? Math.max(1, Math.floor(65_536 / part.length)) : 1;
  const many = Buffer.concat(Array.from({ length: perWrite }, () => part));
  for (let left = count; left > 0; left -= perWrite) {
    const bytes = left < perWrite ? many.subarray(0, left * part.length) : many;
    if (!stream.write(bytes)) await once(stream, "drain");
  }
}

async function refusal(stream: Duplex): Promise<number> {
  if (!(stream instanceof net.Socket))
    return Number(((await once(stream, "response")) as [Record<string, number>])[0][":status"]);
  return statusesIn(String((await once(stream, "data"))[0]))[0]!;
}

it(
  "every row of the table of what one client can hold names files that bound it and " + "specs that try to exceed it",
  () => {
    const rows = tableUnder("What one client can hold", document("docs/limits.md"));
    expect(rows.length).toBeGreaterThan(8);
    for (const [resource, , owner = "", specs = ""] of rows) {
      const paths = [...`${owner} ${specs}`.matchAll(/(?:lib|spec)\/[\w/.]+/g)].map(([path]) => path);
      expect([resource, paths.filter((path) => !existsSync(`${root}/${path}`))]).toEqual([resource, []]);
      expect([
        resource,
        paths.some((path) => path.startsWith("lib/")),
        paths.some((path) => path.startsWith("spec/")),
      ]).toEqual([resource, true, true]);
    }
  },
);

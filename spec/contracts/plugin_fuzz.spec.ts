/**
 * Plugins that break their contracts at random (members absent, of another type, throwing, late or twice) affect only
 * their own request:
 * the process lives, the connection stays in step, and no connection of an upstream is lost. Seeded.
 */
import type { ClientHttp2Session } from "node:http2";
import { PassThrough, Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  definePlugin,
  problem,
  schema,
  type AnyPlugin,
  type Exchange,
  type Handler,
  type Reply,
} from "../../lib/index.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { random, type Random } from "../support/random.ts";
import { eventually, connect } from "../support/raw_client.ts";
import { restartableBackend } from "../journeys/harness.ts";

const CASES = 100;

const lost = (): never => {
  throw new Error("lost");
};

/** Values of wrong types. */
function junk(dice: Random): unknown {
  const throwing = new Proxy({}, { get: lost, has: lost, getPrototypeOf: () => Object.prototype });
  return dice.pick<unknown>([
    undefined,
    null,
    0,
    5,
    NaN,
    -1,
    1e9,
    "text",
    "",
    "a\r\nb: c",
    true,
    {},
    [],
    ["a"],
    ["a", 5],
    [null, null],
    Symbol("s"),
    () => 1,
    lost,
    Buffer.from("b"),
    new Date(0),
    throwing,
    Object.create(null),
    Promise.resolve(1),
    ["Content-Length", "-1"],
  ]);
}

/** Runs `run` when the gateway has the plugin's value: an earlier failure would be the plugin's alone. */
function afterwards(run: () => void): void {
  setTimeout(run, 5);
}

/** Streams that do not behave like a body. */
function stream(dice: Random): unknown {
  const text = "body";
  const making: readonly (() => unknown)[] = [
    () => Readable.from([{}]),
    () => Readable.from([text, 5]),
    () => Readable.from([text, { length: 2 }, text]),
    () => Readable.from(["é", text]),
    () => new Readable({ read: lost }),
    () =>
      Readable.from(
        (async function* () {
          yield text;
          lost();
        })(),
      ),
    () =>
      Readable.from(
        (function* () {
          lost();
          yield text;
        })(),
      ),
    () =>
      new Readable({
        read() {
          this.push(text);
          this.destroy(new Error("lost"));
        },
      }),
    () =>
      new Readable({
        read() {
          this.push(text);
          this.push(null);
        },
        destroy: (_error, done) => done(new Error("lost")),
      }),
    () =>
      new Readable({
        read() {
          this.push(text);
          this.push(null);
        },
        destroy: lost,
      }),
    () => {
      const body = new PassThrough();
      afterwards(() => body.destroy(new Error("lost")));
      return body;
    },
    () => {
      const body = new PassThrough();
      body.end(text);
      afterwards(() => body.emit("error", new Error("lost")));
      return body;
    },
    () => {
      const body = new PassThrough();
      body.end(text);
      body.once("end", () => setImmediate(() => body.emit("end")));
      return body;
    },
    () => {
      const body = new PassThrough();
      body.destroy();
      return body;
    },
    () => {
      const body = new PassThrough();
      body.setEncoding("utf8");
      body.end("é" + text);
      return body;
    },
    () => {
      const body = Readable.from([text]);
      body.resume();
      return body;
    },
    () => ({ pipe: lost }),
    () => ({ pipe: lost, on: lost, destroy: lost }),
    () => new ReadableStream(),
    () => new Blob([text]),
  ];
  return chosen(dice, making)();
}

/** The faults of the current request, for the message of a failure. */
const trail: string[] = [];

function chosen<T>(dice: Random, from: readonly T[]): T {
  const it = dice.pick(from);
  trail.push(typeof it === "function" ? String(it).replace(/\s+/g, " ") : String(it));
  return it;
}

function spoiltReply(dice: Random, good: Reply): Reply {
  const reply: Record<string, unknown> = { ...good };
  const members = new Set(
    dice.list(1, 2, () =>
      dice.pick(["status", "headers", "body", "body", "body", "trailers", "reason", "requestId", "tunnel"]),
    ),
  );
  for (const member of members) {
    trail.push(member);
    const how = dice.int(0, 5);
    trail.push(String(how));
    if (how === 0) delete reply[member];
    else if (how === 1)
      Object.defineProperty(reply, member, { get: lost, enumerable: dice.chance(0.5), configurable: true });
    else if (member === "status")
      Object.assign(reply, {
        status: dice.pick<unknown>([101, 100, 99, 204, 205, 304, 199, 600, 999, 1000, "200", 200.5, junk(dice)]),
      });
    else if (member === "headers")
      Object.assign(reply, {
        headers: dice.pick<unknown>([
          ["Content-Length", "2"],
          ["Content-Length", "99"],
          ["content-length", "4", "Content-Length", "4"],
          ["Content-Length", "x"],
          ["Transfer-Encoding", "gzip"],
          ["X", "a\r\nb"],
          ["a b", "c"],
          ["X"],
          junk(dice),
        ]),
      });
    else if (member === "body") Object.assign(reply, { body: dice.chance(0.7) ? stream(dice) : junk(dice) });
    else if (member === "trailers")
      Object.assign(reply, {
        trailers: dice.pick<unknown>([
          lost,
          () => junk(dice),
          () => ["X-A", "a\nb"],
          () => ["Content-Length", "5"],
          junk(dice),
        ]),
      });
    else reply[member] = junk(dice);
  }
  return reply as unknown as Reply;
}

function spoiltExchange(dice: Random, exchange: Exchange): Exchange {
  if (dice.chance(0.15)) return junk(dice) as Exchange;
  const member = chosen(dice, [
    "method",
    "headers",
    "upstreamPath",
    "query",
    "body",
    "body",
    "body",
    "trailers",
    "upgrade",
    "authority",
    "service",
    "route",
    "params",
    "clientAddress",
    "identity",
    "path",
  ]);
  const value = member === "body" && dice.chance(0.7) ? stream(dice) : junk(dice);
  const headers =
    member === "body"
      ? dice.pick([["Content-Length", "4"], ["Content-Length", "2"], [], ["Content-Length", "x"]])
      : undefined;
  return exchange.with({
    ...(headers === undefined ? {} : { headers, method: "POST" }),
    [member]: value,
    ...(dice.chance(0.2) ? { trailers: lost } : {}),
  });
}

/** Handles one request with random faults. */
function misbehave(dice: Random, next: Handler, exchange: Exchange): Reply | Promise<Reply> {
  const later = (run: () => void) => void (dice.chance(0.5) ? setImmediate(run) : run());
  const { call } = exchange;
  if (dice.chance(0.2)) later(() => call.inform(junk(dice) as number, junk(dice) as string[]));
  if (dice.chance(0.1))
    later(() =>
      call.inform(
        dice.pick([100, 103, 101, 200, 99]),
        dice.pick([[], ["Link", "</a>"], ["Content-Length", "5"], ["Link", "a\r\nb"]]),
      ),
    );
  if (dice.chance(0.1)) call.onEnd(lost);
  if (dice.chance(0.1)) call.onAbort(lost);
  const own: Reply = {
    status: 200,
    headers: [],
    body: dice.chance(0.5) ? Buffer.from("body") : Readable.from(["body"]),
  };
  const forwarded = async () => spoiltReply(dice, await next(exchange));
  return chosen<() => Reply | Promise<Reply>>(dice, [
    () => spoiltReply(dice, own),
    () => Promise.resolve(spoiltReply(dice, own)),
    () => new Promise((resolve) => void setImmediate(resolve, spoiltReply(dice, own))),
    forwarded,
    forwarded,
    () => next(spoiltExchange(dice, exchange)),
    () => next(spoiltExchange(dice, exchange)),
    async () => await next(spoiltExchange(dice, exchange)),
    () => junk(dice) as Reply,
    async () => junk(dice) as Reply,
    () => {
      throw junk(dice);
    },
    () => Promise.reject(junk(dice) as Error),
    async () => {
      void next(exchange);
      return next(exchange);
    },
    () => {
      later(() => void Promise.resolve(next(exchange)).catch(() => {}));
      return own;
    },
    () => ({ then: (resolve: (reply: Reply) => void) => resolve(own) }) as never,
    () => problem(call, junk(dice) as never),
  ])();
}

function faulty(dice: Random): readonly AnyPlugin[] {
  const plugin = (name: string, create: AnyPlugin["create"]) =>
    definePlugin({ name, schema: schema.object({}), create });
  return [
    plugin(
      "faulty",
      () => (next) => (exchange) => (exchange.path.endsWith("/ok") ? next(exchange) : misbehave(dice, next, exchange)),
    ),
    plugin("awaits", () => (next) => async (exchange) => await next(exchange)),
    plugin("changes", () => (next) => async (exchange) => ({ ...(await next(exchange)) })),
  ];
}

const AROUND: readonly (readonly { readonly name: string; readonly config?: Record<string, unknown> }[])[] = [
  [],
  [{ name: "awaits" }],
  [
    { name: "rate_limit", config: { limit_hour: 1_000_000 } },
    { name: "cors", config: { allow_origins: ["*"] } },
  ],
  [{ name: "compress", config: { min_bytes: 1 } }, { name: "changes" }],
  [{ name: "response_cache", config: {} }],
];

/** Reads the replies to `methods` on one connection strictly: their statuses, and the remaining bytes. */
function read(bytes: string, methods: readonly string[]): { readonly statuses: number[]; readonly rest: string } {
  const statuses: number[] = [];
  let rest = bytes;
  for (const method of methods) {
    for (;;) {
      const end = rest.indexOf("\r\n\r\n");
      if (end < 0) return { statuses, rest };
      const [first, ...lines] = rest.slice(0, end).split("\r\n");
      const status = Number(
        /^HTTP\/1\.1 (\d{3}) /.exec(first!)?.[1] ?? `no response: ${JSON.stringify(rest.slice(0, 80))}`,
      );
      expect(status, rest.slice(0, 200)).toBeGreaterThanOrEqual(100);
      rest = rest.slice(end + 4);
      if (status < 200) continue;
      const header = (name: string) =>
        lines
          .filter((line) => line.toLowerCase().startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).trim());
      const [length, ...more] = header("content-length");
      expect(more, "one Content-Length").toEqual([]);
      const isChunked = header("transfer-encoding").includes("chunked");
      if (method === "HEAD" || status === 204 || status === 304) {
        // No body.
      } else if (isChunked) {
        for (let size = -1; size !== 0;) {
          const line = /^([0-9a-f]+)\r\n/.exec(rest);
          if (line === null) return { statuses, rest: "" };
          size = Number.parseInt(line[1]!, 16);
          const after = line[0].length + size + 2;
          if (size > 0 && rest.length < after) return { statuses, rest: "" };
          rest = size > 0 ? rest.slice(after) : rest.slice(line[0].length);
        }
        for (let at = rest.indexOf("\r\n"); at > 0; at = rest.indexOf("\r\n")) rest = rest.slice(at + 2);
        rest = rest.slice(2);
      } else {
        const bytesDue = Number(length ?? "0");
        if (rest.length < bytesDue) return { statuses, rest: "" };
        rest = rest.slice(bytesDue);
      }
      statuses.push(status);
      break;
    }
  }
  return { statuses, rest };
}

async function overHttp1(port: number, dice: Random): Promise<void> {
  const method = dice.pick(["GET", "GET", "POST", "HEAD", "OPTIONS"]);
  const body = method === "POST" ? "Content-Length: 5\r\n\r\nhello" : "\r\n";
  const connection = await connect(port);
  connection.send(
    `${method} /a/bad HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n${body}GET /a/ok HTTP/1.1\r\nHost: h\r\n\r\n`,
  );
  const closed = connection.closed();
  // Either both requests are answered, or the connection is closed by a reply that breaks off.
  await Promise.race([
    closed,
    eventually(
      () => read(connection.text(), [method, "GET"]).statuses.length === 2,
      `an answer or an end of ${method}`,
    ),
  ]);
  connection.socket.destroy();
  const { statuses, rest } = read(connection.text(), [method, "GET"]);
  expect(rest).toBe("");
  if (statuses.length === 2) expect([statuses[1], connection.text().includes("all is well")]).toEqual([200, true]);
}

async function overHttp2(session: ClientHttp2Session, dice: Random): Promise<void> {
  const one = (method: string, path: string, body?: string) =>
    new Promise<string>((resolve) => {
      const stream = session.request(
        { ":method": method, ":path": path, "accept-encoding": "gzip" },
        { endStream: body === undefined },
      );
      let text = "";
      stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
      stream.on("error", () => {});
      stream.on("close", () => resolve(text));
      if (body !== undefined) stream.end(body);
    });
  const method = dice.pick(["GET", "GET", "POST", "HEAD"]);
  await one(method, "/a/bad", method === "POST" ? "hello" : undefined);
  expect(await one("GET", "/a/ok")).toContain("all is well");
}

describe.each([
  ["http", "wire"],
  ["http", "node"],
  ["h2c", "wire"],
] as const)("a faulty plugin over %s upstreams (%s)", (protocol, upstream_client) => {
  it.each(["HTTP/1.1", "HTTP/2"])(
    "a faulty plugin affects only its own request, for clients of %s",
    async (downstream) => {
      const escaped: unknown[] = [];
      const note = (error: unknown) => void escaped.push(error instanceof Error ? error.stack : error);
      process.on("unhandledRejection", note).on("uncaughtException", note);
      onTestFinished(() => void process.off("unhandledRejection", note).off("uncaughtException", note));
      const upstream = await restartableBackend(protocol);
      upstream.answer = (request, response) => {
        request
          .on("error", () => {})
          .resume()
          .on("end", () => response.end(request.url === "/ok" ? "all is well" : "something"));
      };
      const dice = random(protocol.length * 1000 + upstream_client.length * 10 + downstream.length);
      const services = AROUND.map((around, i) => ({
        ...oneService(upstream.port).services[0]!,
        name: `s${i}`,
        protocol,
        upstream_client,
        pool: { max_connections: 4 },
        timeouts: { idle_ms: 50, response_ms: 400 },
        plugins: [...around, { name: "faulty" }],
      }));
      for (const [i, service] of services.entries()) {
        const { port, gateway } = await running(
          { global: { h2c: true }, services: [service] },
          { plugins: faulty(dice) },
        );
        const session = downstream === "HTTP/2" ? h2Session(port) : null;
        for (let nth = 0; nth < CASES / services.length; nth++) {
          trail.length = 0;
          await (session === null ? overHttp1(port, dice) : overHttp2(session, dice)).catch((error: Error) => {
            throw new Error(`service ${i}, case ${nth}, ${trail.join("; ")}: ${error.message}`, { cause: error });
          });
          await eventually(
            () => gateway.stats.services[0]!.upstreams[0]!.inFlight === 0,
            `every place at the upstream after ${trail.join("; ")}`,
          );
          expect(escaped, trail.join("; ")).toEqual([]);
        }
        session?.destroy();
        await eventually(() => gateway.inFlight === 0, `the end of every request of service ${i}`);
      }
      expect(escaped).toEqual([]);
    },
    60_000,
  );
});

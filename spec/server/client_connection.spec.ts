/**
 * HTTP/1 connections of clients, byte by byte over real sockets: deadlines, pipelined requests, and connections that
 * end early.
 */
import net, { type AddressInfo } from "node:net";
import { getDefaultHighWaterMark, PassThrough, type Readable } from "node:stream";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it, onTestFinished } from "vitest";
import { WriteBatch } from "../../lib/base/event_loop.ts";
import { DeadlineTimer } from "../../lib/base/clock.ts";
import { problem, type Reply } from "../../lib/http/reply.ts";
import { ClientConnection } from "../../lib/server/client_connection.ts";
import { Drain, type Http1Options } from "../../lib/server/http1.ts";
import type { Limits } from "../../lib/server/limits.ts";
import { connectionWithoutTls, type Inbound } from "../../lib/server/inbound.ts";
import { client, codeIn, get, statusesIn } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { codec } from "../support/codec.ts";
import { defaultLimits } from "../support/limits.ts";
import { turn } from "../support/loopback.ts";
import { eventually } from "../support/raw_client.ts";

/**
 * A server that answers with `serve`; a request for which it returns nothing is answered by the spec with `answers`.
 */
async function serving(serve: (inbound: Inbound) => Reply | undefined, limits: Partial<Limits> = {}) {
  const clock = manualClock();
  const received: string[] = [];
  const ended: Inbound[] = [];
  const joined: string[] = [];
  const answers: ((reply: Reply) => void)[] = [];
  const sockets: net.Socket[] = [];
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const drain = new Drain();
  const options: Http1Options = {
    drain,
    connectionOf: connectionWithoutTls,
    clock,
    log,
    writeBatch: new WriteBatch(),
    deadlines: new DeadlineTimer(clock),
    delivery: { clock, watch: new DeadlineTimer(clock), idleMs: 60_000, leastBytesPerS: () => 0 },
    unread() {},
    receiving: () => ({ clock, proxies: null, limits: { ...defaultLimits, ...limits } }),
    serve(inbound) {
      received.push(inbound.target);
      return serve(inbound) ?? new Promise((resolve) => answers.push(resolve));
    },
    ended: (inbound) => void ended.push(inbound),
    join: (_socket, behind) => void joined.push(behind.toString("latin1")),
  };
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    new ClientConnection(socket, options);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    drain.cancel();
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const drainAfter = (lingerMs: number) => drain.begin(clock, lingerMs);
  return {
    clock,
    drain,
    drainAfter,
    port: (server.address() as AddressInfo).port,
    received,
    ended,
    joined,
    answers,
    sockets,
  };
}

/** As `eventually`, for what takes long on a busy machine: the test's own time limit ends it. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 2));
}

const MIB = 1024 * 1024;
const fine = (): Reply => ({ status: 200, headers: [], body: Buffer.from("ok") });

it.runIf(codec === "wire")(
  "refuses a head that arrives byte by byte with 408 once headers_timeout_ms have passed since its first byte",
  async () => {
    const { clock, port, sockets } = await serving(fine);
    const talk = await client(port);
    talk.send(get("/first"));
    await talk.until("ok");
    clock.advance(30_000);
    talk.send("GET /second HTTP/1.1\r\n");
    await eventually(() => sockets[0]!.bytesRead > get("/first").length + 20, "the sent bytes at the server");
    clock.advance(50_000);
    const before = sockets[0]!.bytesRead;
    talk.send("X-Slow: y");
    await eventually(() => sockets[0]!.bytesRead > before, "the sent bytes at the server");
    expect(statusesIn(talk.text())).toEqual([200]);
    clock.advance(11_000);
    expect(codeIn(await talk.closed())).toBe("request_timeout");
  },
);

it.runIf(codec === "wire")("does not charge an upload for the time in which its body is not read", async () => {
  const bodies: Readable[] = [];
  const { clock, port } = await serving(({ body }) => void bodies.push(body!), {
    minBodyBytesPerS: 1_000,
    requestTimeoutMs: 0,
  });
  const talk = await client(port);
  const pass = (seconds: number) => {
    for (let i = 0; i < seconds; i++) clock.advance(1_000);
  };
  talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
  await eventually(() => bodies.length === 1, "the request");
  pass(3_600);
  bodies[0]!.resume();
  pass(10);
  expect(bodies[0]!.destroyed).toBe(false);
  pass(1);
  expect(codeIn(await talk.closed())).toBe("request_timeout");
});

it.runIf(codec === "wire")("counts request_timeout_ms from the first byte of the head", async () => {
  const { clock, port, sockets } = await serving(() => undefined, { requestTimeoutMs: 20_000 });
  const talk = await client(port);
  talk.send("POST /a HTTP/1.1\r\n");
  await eventually(() => sockets[0]!.bytesRead > 10, "the sent bytes at the server");
  clock.advance(15_000);
  talk.send("Host: h\r\nContent-Length: 10\r\n\r\n12345");
  await eventually(() => sockets[0]!.bytesRead > 50, "the sent bytes at the server");
  clock.advance(6_000);
  expect(codeIn(await talk.closed())).toBe("request_timeout");
});

it("answers pipelined requests of a client that has ended its side without an error, or not at all", async () => {
  const { port, ended } = await serving(fine);
  const talk = await client(port);
  talk.socket.end(get("/1") + get("/2") + get("/3"));
  const received = await talk.closed();
  expect(statusesIn(received).every((status) => status === 200)).toBe(true);
  await eventually(() => ended.length > 0, "an ended call");
});

it.runIf(codec === "wire")(
  "closes the connection before the surplus of a streamed body that is longer than its Content-Length",
  async () => {
    const body = new PassThrough();
    const { port, ended } = await serving(() => ({ status: 200, headers: ["Content-Length", "4"], body }));
    const talk = await client(port);
    talk.send(get("/1"));
    body.write("good");
    await talk.until("good");
    body.end("HTTP/1.1 200 OK\r\n\r\n");
    expect(statusesIn(await talk.closed())).toEqual([200]);
    await eventually(() => ended.length === 1, "one ended call");
  },
);

it("gives each request its own trailers when several requests with trailers share a connection", async () => {
  const { port, ended, answers } = await serving(({ target }) => (target === "/late" ? undefined : fine()));
  const talk = await client(port);
  const chunked = (target: string, sum: number) =>
    `POST ${target} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: ${sum}\r\n\r\n`;
  talk.send(chunked("/late", 1));
  await eventually(() => answers.length === 1, "one request to answer");
  answers[0]!(fine());
  await eventually(() => ended.length === 1, "one ended call");
  talk.send(chunked("/2", 2) + "POST /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na");
  await eventually(() => ended.length === 3, "three ended calls");
  ended[0]!.body!.resume();
  expect(ended.map(({ trailers }) => trailers())).toEqual([["X-Sum", "1"], ["X-Sum", "2"], []]);
});

it("answers thousands of pipelined requests once each and in order, then refuses a fault behind them", async () => {
  const { port, ended } = await serving(({ target }) => ({
    status: 200,
    headers: [],
    body: Buffer.from(`<${target}>`),
  }));
  const talk = await client(port);
  const targets = Array.from({ length: 5_000 }, (_, i) => `/${i}`);
  talk.send(targets.map((target) => `GET ${target} HTTP/1.1\r\nHost: h\r\n\r\n`).join("") + "garbage\r\n\r\n");
  const received = await talk.closed();
  expect([...received.matchAll(/<(\/\d+)>/g)].map(([, target]) => target)).toEqual(targets);
  expect(statusesIn(received).filter((status) => status !== 200)).toEqual([400]);
  expect(ended).toHaveLength(5_000);
});

it.runIf(codec === "wire")(
  "stops reading a client that continues to send requests while a request is answered",
  async () => {
    const { port, sockets, answers, received } = await serving(() => undefined);
    const talk = await client(port);
    const one = get("/a", `X-Pad: ${"x".repeat(1_000)}`);
    talk.send(one.repeat(20_000));
    await eventually(
      () => answers.length === 1 && sockets[0]!.isPaused(),
      "one request to answer and a paused connection",
    );
    const before = sockets[0]!.bytesRead;
    // Whatever is read in further rounds would come here.
    for (let round = 0; round < 20; round++) await new Promise((resolve) => setImmediate(resolve));
    expect(sockets[0]!.bytesRead).toBe(before);
    expect(before).toBeLessThan(256 * 1024);
    expect(received).toHaveLength(1);
  },
);

it.runIf(codec === "wire")(
  "reads at most 64 KiB and two reads ahead of the requests that it has answered, however many a client pipelines",
  async () => {
    const one = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let answered = 0;
    let ahead = 0;
    const { port, sockets } = await serving(() => {
      ahead = Math.max(ahead, sockets[0]!.bytesRead - answered);
      answered += one.length;
      return fine();
    });
    const talk = await client(port);
    const count = Math.ceil(1_000_000 / one.length);
    let replies = 0;
    talk.socket.removeAllListeners("data");
    talk.socket.on("data", (chunk: Buffer) => (replies += chunk.toString("latin1").split("HTTP/1.1 200").length - 1));
    talk.send(one.repeat(count));
    await until(() => answered === count * one.length);
    // What Node has read and not given out counts as well.
    expect(ahead).toBeLessThanOrEqual((64 + 64 + 64 + 64) * 1024);
  },
);

describe.runIf(codec === "wire")("a client that leaves while its socket is not read", () => {
  it.each([
    ["140 KB of pipelined requests", 140_000],
    ["3 MB of pipelined requests", 3_000_000],
  ])("notices within two seconds that a client has left behind %s", async (_what, bytes) => {
    const { clock, port, sockets, answers, ended } = await serving(() => undefined);
    const talk = await client(port);
    talk.send(get("/slow") + get("/next", `X-Pad: ${"x".repeat(990)}`).repeat(bytes / 1_000));
    await eventually(() => answers.length === 1 && sockets[0]!.isPaused(), "a connection that is not read");
    if (bytes < 1_000_000) talk.socket.destroy();
    else talk.socket.end();
    clock.advance(1_000);
    clock.advance(1_000);
    await eventually(() => ended.length === 1, "the end of the request");
    expect(ended[0]!.call.aborted).toBe(true);
  });

  it(
    "ends the connection with the reply to a request that takes a second while more " + "than 64 KiB wait behind it",
    async () => {
      const { clock, port, sockets, answers, received } = await serving(() => undefined);
      const talk = await client(port);
      talk.send(get("/slow") + get("/next", `X-Pad: ${"x".repeat(990)}`).repeat(140));
      await eventually(() => answers.length === 1 && sockets[0]!.isPaused(), "a connection that is not read");
      clock.advance(2_000);
      answers[0]!(fine());
      expect(await talk.until("ok")).toContain("Connection: close");
      expect(received).toEqual(["/slow"]);
    },
  );

  it(
    "discards at most 8 MiB a second of what comes behind the last request of a connection, " +
      "while its reply is awaited",
    async () => {
      const { clock, port, sockets, answers } = await serving(() => undefined);
      const talk = await client(port);
      const head = "GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
      talk.send(head + "x".repeat(20 * MIB));
      await until(() => answers.length === 1 && sockets[0]!.isPaused());
      expect(sockets[0]!.bytesRead).toBeLessThan(9 * MIB);
      clock.advance(1_000);
      await until(() => sockets[0]!.bytesRead > 9 * MIB && sockets[0]!.isPaused());
      expect(sockets[0]!.bytesRead).toBeLessThan(18 * MIB);
      clock.advance(1_000);
      await until(() => sockets[0]!.bytesRead === head.length + 20 * MIB);
      answers[0]!(fine());
      await talk.until("ok");
    },
  );

  it("notices within two seconds that a client has reset its connection behind a body that nobody reads", async () => {
    const { clock, port, sockets, answers, ended } = await serving(() => undefined);
    const talk = await client(port);
    talk.send(`POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n${"x".repeat(1_000_000)}`);
    await eventually(() => answers.length === 1 && sockets[0]!.isPaused(), "a connection that is not read");
    talk.socket.resetAndDestroy();
    await eventually(() => {
      clock.advance(1_000);
      return ended.length === 1;
    }, "the end of the request");
    expect(ended[0]!.call.aborted).toBe(true);
  });
});

it.runIf(codec === "wire")(
  "discards 20 MB of an upload that was answered early, and serves the next request of the connection",
  async () => {
    const { clock, port, received, sockets } = await serving(() => ({
      status: 401,
      headers: [],
      body: Buffer.from("early"),
    }));
    const talk = await client(port);
    talk.send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n");
    await talk.until("early");
    talk.send(Buffer.alloc(20_000_000));
    talk.send(get("/next"));
    // At most 8 MiB a second are read.
    await until(() => {
      if (sockets[0]!.isPaused()) clock.advance(1_000);
      return received.length === 2;
    });
    expect(received).toEqual(["/upload", "/next"]);
  },
);

it.runIf(codec === "wire")(
  "closes a connection whose answered upload pauses for five seconds, or continues for thirty",
  async () => {
    for (const pauses of [true, false]) {
      const { clock, port, sockets } = await serving(fine);
      const talk = await client(port);
      talk.send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
      await talk.until("ok");
      for (let seconds = 0; seconds < (pauses ? 4 : 29); seconds++) {
        const before = sockets[0]!.bytesRead;
        talk.send("x");
        if (!pauses || seconds === 0) await eventually(() => sockets[0]!.bytesRead > before, "one more byte");
        clock.advance(1_000);
        expect(sockets[0]!.destroyed).toBe(false);
        if (pauses) talk.send = () => {};
      }
      clock.advance(1_000);
      await eventually(() => sockets[0]!.destroyed, "the end of the connection");
    }
  },
);

it.runIf(codec === "wire").each([
  ["a header that has no end", "GET / HTTP/1.1\r\nHost: h\r\nX: ", "a", 431],
  ["a target that has no end", "GET /", "a", 414],
  ["header lines that have no end", "GET / HTTP/1.1\r\nHost: h\r\n", "A: b\r\n", 431],
])(
  "refuses %s when its limit is exceeded, while the client continues to send",
  async (_title, begin, filler, status) => {
    const { port, received } = await serving(fine);
    const talk = await client(port);
    talk.send(begin + filler.repeat(Math.ceil(33_000 / filler.length)));
    expect(statusesIn(await talk.until("request_id"))).toEqual([status]);
    expect(received).toEqual([]);
  },
);

it("reads a request whose bytes arrive one by one like a request that arrives whole", async () => {
  const seen: string[] = [];
  const { port } = await serving(({ target, headers, body }) => {
    seen.push(`${target} ${headers.length / 2}`);
    body?.resume();
    return fine();
  });
  const talk = await client(port);
  const bytes =
    `POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: ` +
    `1\r\n\r\n${get("/b")}${get("/c", `X: ${"y".repeat(300)}`)}`;
  for (const byte of Buffer.from(bytes)) {
    talk.socket.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await eventually(() => statusesIn(talk.text()).length === 3, "three replies");
  expect(seen).toEqual(["/a 2", "/b 1", "/c 2"]);
});

it.runIf(codec === "wire").each([
  ["has filled the buffer of its reader, with a request behind it", 0, () => {}],
  ["has filled the buffer of its reader, who gave it up", 100_000, (body: Readable) => void body.destroy()],
])(
  "notices a client that disconnects while it waits for its reply although its upload %s",
  async (_title, missing, meanwhile) => {
    let inbound!: Inbound;
    const { port, sockets, received, ended } = await serving((got) => {
      inbound = got;
      return undefined;
    });
    const talk = await client(port);
    const present = getDefaultHighWaterMark(false);
    const head = `POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: ${present + missing}\r\n\r\n`;
    talk.send(head);
    await eventually(() => received.length === 1, "one received request");
    talk.send(Buffer.alloc(present));
    await eventually(() => sockets[0]!.bytesRead === head.length + present, "the sent bytes at the server");
    // Stays in the socket while that is paused, and hides the end behind it.
    talk.send(missing === 0 ? get("/next") : Buffer.alloc(1_000));
    await eventually(() => sockets[0]!.bytesRead > head.length + present, "the sent bytes at the server");
    meanwhile(inbound.body!);
    talk.socket.destroy();
    await eventually(() => ended.length === 1, "one ended call");
    expect(inbound.call.aborted).toBe(true);
  },
);

it.runIf(codec === "wire")(
  "discards 1 MiB of an upload behind an early reply, whatever was discarded before it",
  async () => {
    let inbound!: Inbound;
    const { port, sockets, answers, ended } = await serving((received) => {
      inbound ??= received;
      received.body?.destroy();
      return undefined;
    });
    const talk = await client(port);
    const length = 1_900_000;
    const head = `POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: ${length}\r\n\r\n`;
    talk.send(head);
    await eventually(() => answers.length === 1, "one request to answer");
    talk.send(Buffer.alloc(1_000_000));
    await eventually(() => sockets[0]!.bytesRead === head.length + 1_000_000, "the sent bytes at the server");
    answers[0]!(fine());
    await eventually(() => ended.length === 1, "one ended call");
    talk.send(Buffer.alloc(length - 1_000_000));
    talk.send(get("/next"));
    await eventually(() => answers.length === 2, "two requests to answer");
    answers[1]!(fine());
    await eventually(() => statusesIn(talk.text()).length === 2, "two replies");
  },
);

it("does not reset the connection for a body behind a request that is refused for its framing", async () => {
  const { port, sockets } = await serving(({ refusal, call }) => problem(call, refusal!.code));
  const talk = await client(port);
  talk.socket.allowHalfOpen = true;
  let reset = false;
  talk.socket.on("error", () => (reset = true));
  talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\nTransfer-Encoding: chunked\r\n\r\n");
  await talk.until("request_id");
  for (let i = 0; i < 10; i++) {
    talk.send(Buffer.alloc(30_000));
    await new Promise((resolve) => setImmediate(resolve));
  }
  talk.socket.end();
  await talk.closed();
  expect(reset).toBe(false);
  await eventually(() => sockets[0]!.destroyed, "the end of the connection");
});

it("does not reset the connection for a request that crosses the last reply of a drain", async () => {
  const { port, clock, drainAfter, answers, sockets } = await serving(() => undefined);
  const talk = await client(port);
  talk.socket.allowHalfOpen = true;
  let reset = false;
  talk.socket.on("error", () => (reset = true));
  talk.send(get("/1"));
  await eventually(() => answers.length === 1, "one request to answer");
  drainAfter(100);
  answers[0]!(fine());
  await talk.until("ok");
  for (const path of ["/2", "/3", "/4"]) {
    talk.send(get(path));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await eventually(() => sockets[0]!.bytesRead === get("/1").length * 4, "the sent bytes at the server");
  expect(sockets[0]!.destroyed).toBe(false);
  // A client that keeps its side open does not hold the drain up for long.
  clock.advance(1_000);
  await eventually(() => sockets[0]!.destroyed, "the end of the connection");
  expect(reset).toBe(false);
  expect(talk.text()).toContain("Connection: close");
});

it.runIf(codec === "wire")(
  "ends a connection whose early reply left before a drain once the rest of the upload has arrived",
  async () => {
    const { port, clock, drainAfter, sockets, ended } = await serving(fine);
    const talk = await client(port);
    talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345");
    await talk.until("ok");
    await eventually(() => ended.length === 1, "one ended call");
    drainAfter(100);
    clock.advance(100);
    expect(sockets[0]!.destroyed).toBe(false);
    talk.send("67890");
    await eventually(() => sockets[0]!.bytesRead === 58, "the sent bytes at the server");
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(100);
    await eventually(() => sockets[0]!.destroyed, "the end of the connection");
  },
);

it.runIf(codec === "wire")("leaves no timer when a drain is cut short", async () => {
  const { port, clock, drain, drainAfter, sockets } = await serving(fine);
  const talk = await client(port);
  talk.send(get("/1"));
  await talk.until("ok");
  drainAfter(10_000);
  drain.cancel();
  for (const socket of sockets) socket.destroy();
  await talk.closed();
  expect(clock.pending).toBe(0);
});

it.runIf(codec === "wire")(
  "reads the next request behind a body that was sent without waiting for its 100 (Continue)",
  async () => {
    const { port, received } = await serving(fine);
    const talk = await client(port);
    const post = "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
    talk.send(post + get("/b"));
    await eventually(() => received.length === 2, "two received requests");
    await eventually(() => statusesIn(talk.text()).length === 2, "two replies");
  },
);

it(
  "does not send an informational response of a request that is over to the next " + "request of its connection",
  async () => {
    const { port, received, answers, ended } = await serving(() => undefined);
    const talk = await client(port);
    talk.send(get("/first"));
    await eventually(() => answers.length === 1, "one request to answer");
    answers[0]!({ status: 200, headers: [], body: Buffer.from("one") });
    await eventually(() => ended.length === 1, "one ended call");
    talk.send(get("/second"));
    await eventually(() => received.length === 2, "two received requests");
    ended[0]!.call.inform(103, ["Link", "</of-the-first>"]);
    answers[1]!({ status: 200, headers: [], body: Buffer.from("two") });
    expect(statusesIn(await talk.until("two"))).toEqual([200, 200]);
  },
);

const UPGRADE = ["Connection: Upgrade", "Upgrade: websocket"];
const tunnel = () => ({ socket: new PassThrough(), head: Buffer.alloc(0), idleMs: 1 });

it.runIf(codec === "wire")(
  "the beginning of a request holds no more memory than itself once the requests before it are " +
    "answered, however many there were",
  async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const { port, answers, received } = await serving((inbound) => (inbound.target === "/slow" ? undefined : fine()));
    const clients = await Promise.all(Array.from({ length: 10 }, () => client(port)));
    collect();
    const before = process.memoryUsage().arrayBuffers;
    const many = get("/next", `X-Fill: ${"y".repeat(1500)}`).repeat(40);
    for (const { send, text } of clients) {
      send(get("/slow"));
      await eventually(() => answers.length === 1, "the request that waits");
      for (const bytes of [many, `${many}GET /beg`]) {
        send(bytes);
        for (let i = 0; i < 8; i++) await turn();
      }
      answers.pop()!(fine());
      await eventually(() => text().split("\r\n\r\nok").length === 82, "all replies");
    }
    expect(received.length).toBe(10 * 81);
    // Those of this side have the replies as text. What one collection finds may be given back by the next.
    const isGivenBack = () => {
      collect();
      return process.memoryUsage().arrayBuffers - before < 10 * 100 * 1024;
    };
    await eventually(isGivenBack, "all memory but that of ten beginnings of requests to be given back");
  },
);

it.runIf(codec === "wire")(
  "reads at most 256 pieces of a body ahead of its reader, who gets all of it, by events and by `read`",
  async () => {
    for (const isFlowing of [true, false]) {
      let body: Readable | null = null;
      const { port, sockets } = await serving((inbound) => void (body = inbound.body));
      const { socket, send } = await client(port);
      send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
      await eventually(() => body !== null, "the request");
      for (let sent = 0; sent < 1000; sent++) {
        socket.write("x");
        for (let i = 0; i < 2; i++) await turn();
      }
      await eventually(() => sockets[0]!.isPaused(), "a pause");
      const { readableLength } = body! as Readable;
      expect(readableLength).toBeLessThan(300);
      let text = "";
      if (isFlowing) body!.on("data", (bytes: Buffer) => void (text += bytes.toString()));
      else body!.on("readable", () => void (text += body!.read(1000)?.toString() ?? ""));
      await eventually(() => text === "x".repeat(1000), "all of the body");
    }
  },
);

it("leaves the socket to the tunnel behind a 101, with what the client has sent behind its request", async () => {
  const { port, joined, ended, sockets } = await serving(() => ({
    status: 101,
    headers: ["Connection", "Upgrade", "Upgrade", "WebSocket", "X-A", "1", "Content-Length", "3"],
    body: null,
    tunnel: tunnel(),
  }));
  const talk = await client(port);
  talk.send(`${get("/", ...UPGRADE)}frames`);
  const received = await talk.until("\r\n\r\n");
  expect(received).toMatch(
    new RegExp(
      String.raw`^HTTP\/1\.1 101 Switching Protocols\r\nX-A: 1\r\nX-Request-Id: [^\r]+\r\nDate: ` +
        String.raw`[^\r]+\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n$`,
    ),
  );
  expect(joined).toEqual(["frames"]);
  expect(ended).toEqual([]);
  sockets[0]!.destroy();
  await eventually(() => ended.length === 1, "one ended call");
  expect(ended[0]!.call.aborted).toBe(false);
});

it("ends the connection behind a reply other than 101 to a request for a WebSocket", async () => {
  const { port, joined } = await serving(() => ({
    status: 403,
    reason: "Go away",
    headers: ["X-A", "1"],
    body: Buffer.from("no"),
  }));
  const talk = await client(port);
  talk.send(get("/", ...UPGRADE));
  expect(await talk.closed()).toMatch(
    /^HTTP\/1\.1 403 Go away\r\nX-A: 1\r\nContent-Length: 2\r\n[^]*Connection: close\r\n\r\nno$/,
  );
  expect(joined).toEqual([]);
});

it("replaces a 101 whose head HTTP cannot carry with 500, and abandons its tunnel", async () => {
  const its = tunnel();
  const { port } = await serving(() => ({
    status: 101,
    headers: ["X-A", "b\r\nSet-Cookie: s=1"],
    body: null,
    tunnel: its,
  }));
  const talk = await client(port);
  talk.send(get("/", ...UPGRADE));
  const received = await talk.closed();
  expect(statusesIn(received)).toEqual([500]);
  expect(received).not.toContain("s=1");
  expect(its.socket.destroyed).toBe(true);
});

it("abandons the tunnel of a client that disconnects while it waits for its WebSocket", async () => {
  const { port, answers, ended } = await serving(() => undefined);
  const talk = await client(port);
  talk.send(get("/", ...UPGRADE));
  await eventually(() => answers.length === 1, "one request to answer");
  talk.socket.end();
  await eventually(() => ended.length === 1, "one ended call");
  expect(ended[0]!.call.aborted).toBe(true);
  const its = tunnel();
  answers[0]!({ status: 101, headers: [], body: null, tunnel: its });
  await turn();
  expect(its.socket.destroyed).toBe(true);
});

it("refuses to forward a body whose Content-Length is stated twice", async () => {
  const body = new PassThrough();
  const { port } = await serving(() => ({
    status: 200,
    headers: ["Content-Length", "4", "Content-Length", "4"],
    body,
  }));
  const talk = await client(port);
  talk.send(get("/"));
  expect(statusesIn(await talk.until("request_id"))).toEqual([500]);
  expect(body.destroyed).toBe(true);
});

import { once } from "node:events";
import type { Socket } from "node:net";
import { PassThrough, type Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { WriteBatch, type ReadyWrite } from "../../lib/base/event_loop.ts";
import { Fault } from "../../lib/base/errors.ts";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { LentBody, lentCopy } from "../../lib/http/lent_body.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { Stale } from "../../lib/upstream/faults.ts";
import { forwarding } from "../contracts/forwarding.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { socketOrigin } from "../support/origin.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";
import { eventually } from "../support/raw_client.ts";

describe.each(["wire", "node"] as const)("with the parser of upstream_client %s, a request", (client) =>
  forwarding(client),
);

const HEAD = "HTTP/1.1 200 OK\r\n";

async function bench(talk: (socket: Socket, text: string) => void, idleMs = 60_000, writeBatch = new WriteBatch()) {
  const heard: string[] = [];
  const upstream = await socketOrigin((socket) => {
    socket.on("data", (chunk: Buffer) => {
      heard.push(chunk.toString("latin1"));
      talk(socket, heard.at(-1)!);
    });
  });
  const clock = manualClock();
  const pool = madeUpPool({ port: upstream.port, keepaliveIdleMs: 30_000, writeBatch }, 1, clock);
  onTestFinished(async () => {
    pool.destroy();
    await upstream.close();
  });
  const options = {
    clock,
    connectMs: 5000,
    responseMs: 5000,
    idleMs,
    tryMs: 0,
    preserveHost: false,
    viaName: "gw",
  } as const;
  const send = (parts: Partial<ExchangeParts> = {}) =>
    forward(madeUpExchange(parts), madeUpPeer("u", pool), options, Infinity);
  const code = (parts: Partial<ExchangeParts>) =>
    send(parts).then(
      ({ status }) => String(status),
      (fault: Fault) => fault.code,
    );
  return { upstream, pool, heard, send, code, clock };
}

/** Lets nothing leave until it is told to. */
class Held extends WriteBatch {
  readonly #held: ReadyWrite[] = [];

  override add(write: ReadyWrite): void {
    this.#held.push(write);
  }

  override now(): void {
    for (const write of this.#held.splice(0)) write.writeNow();
  }
}

describe("the request", () => {
  /** A connection that has served one exchange, and nothing leaves any more until it is told to. */
  async function kept() {
    const writeBatch = new Held();
    const made = await bench(
      (socket, text) => {
        socket.write(`${HEAD}Content-Length: 1\r\n\r\n${/^\w+ \/(\w)/.exec(text)?.[1]}`);
      },
      60_000,
      writeBatch,
    );
    const { upstream, send } = made;
    const first = send({ upstreamPath: "/1" });
    await eventually(() => upstream.sockets.size === 1, "a connection");
    const [kept] = upstream.sockets;
    const leave = setInterval(() => writeBatch.now(), 1);
    onTestFinished(() => clearInterval(leave));
    expect(String((await first).body)).toBe("1");
    clearInterval(leave);
    return { ...made, writeBatch, kept: kept! };
  }

  const EARLY: readonly [string, (socket: Socket) => void][] = [
    ["brings a response", (socket) => void socket.write(`${HEAD}Content-Length: 1\r\n\r\nx`)],
    ["ends", (socket) => void socket.end()],
  ];

  it.each(EARLY.flatMap(([what, act]) => ["GET", "POST", "PATCH"].map((method) => [method, what, act] as const)))(
    "a %s on a kept connection that %s before the request is sent is sent over another connection",
    async (method, _what, act) => {
      const { upstream, pool, heard, send, writeBatch, kept: before } = await kept();
      const second = send({ method, upstreamPath: "/2" });
      act(before);
      await once(before, "close");
      writeBatch.now();
      await eventually(() => upstream.sockets.size === 1, "another connection");
      await eventually(() => (writeBatch.now(), heard.length === 2), "the request");
      expect(String((await second).body)).toBe("2");
      expect(pool.leases.leased).toBe(0);
    },
  );

  const streamed = (): PassThrough => {
    const body = new PassThrough();
    body.end("body");
    return body;
  };
  const lent = () => new LentBody(Buffer.from("body"), () => {});
  const bodies: readonly [string, () => Readable | null][] = [
    ["a stream", streamed],
    ["in memory", lent],
    ["none", () => null],
  ];

  it.each(
    EARLY.flatMap(([what, act]) =>
      (
        [
          ["a stream", streamed],
          ["in memory", lent],
        ] as const
      ).map(([where, body]) => [where, what, body, act] as const),
    ),
  )(
    "a POST with a body (%s) on a kept connection that %s before the request is sent is sent over another connection",
    async (_where, _what, body, act) => {
      const { pool, heard, send, writeBatch, kept: before } = await kept();
      const second = send({ method: "POST", upstreamPath: "/2", body: body(), headers: ["Content-Length", "4"] });
      act(before);
      await once(before, "close");
      await eventually(() => (writeBatch.now(), heard.length === 2), "the request");
      expect(String((await second).body)).toBe("2");
      expect([pool.leases.leased, heard[1]!.slice(-4)]).toEqual([0, "body"]);
    },
  );

  it.each(bodies)(
    "a POST with a body (%s) of which the system takes nothing on a kept connection is sent over another connection",
    async (where, body) => {
      const { pool, heard, send, writeBatch, kept: before } = await kept();
      const second = send({
        method: "POST",
        upstreamPath: "/2",
        body: body(),
        headers: ["Content-Length", where === "none" ? "0" : "4"],
      });
      before.resetAndDestroy();
      // At once: the event loop must not read the reset before the write meets it.
      writeBatch.now();
      const fault = second.then(
        () => null,
        (error: unknown) => error,
      );
      if (where === "a stream") {
        expect(await fault).toBeInstanceOf(Stale);
        return;
      }
      await eventually(() => (writeBatch.now(), heard.length === 2), "the request");
      expect(String((await second).body)).toBe("2");
      expect([pool.leases.leased, heard[1]!.endsWith("body")]).toEqual([0, where !== "none"]);
    },
  );

  it.each([
    [300, "one write"],
    [3000, "two"],
  ])(
    "a POST with a body of 8000 bytes in memory and a head of more than %i, " +
      "of which the system takes nothing on a kept connection, arrives whole over another one, in %s",
    async (length) => {
      const { pool, heard, send, writeBatch, kept: before } = await kept();
      const body = lentCopy(Buffer.alloc(8000, "b"));
      const second = send({
        method: "POST",
        upstreamPath: "/2",
        body,
        headers: ["Content-Length", "8000", "X-Long", "l".repeat(length)],
      });
      before.resetAndDestroy();
      writeBatch.now();
      await eventually(() => (writeBatch.now(), heard.slice(1).join("").endsWith("b".repeat(8000))), "the request");
      expect(String((await second).body)).toBe("2");
      const sent = heard.slice(1).join("");
      expect([pool.leases.leased, sent.indexOf("POST /2 HTTP/1.1\r\n"), sent.split("POST ").length]).toEqual([0, 0, 2]);
      expect(sent.slice(sent.indexOf("\r\n\r\n") + 4)).toBe("b".repeat(8000));
      expect(sent).toContain(`X-Long: ${"l".repeat(length)}\r\n`);
      if (length < 1000) expect(heard).toHaveLength(2);
    },
  );

  const ownMemory = () => new LentBody(Buffer.alloc(8000, "b"), () => {});
  const lentMemory = () => lentCopy(Buffer.alloc(8000, "b"));

  it.each([
    ["a short head", 300, lentMemory],
    ["a head that has no room in front of its body", 3000, lentMemory],
    ["a body that a plugin has read", 300, ownMemory],
  ])(
    "a POST with %s, of which the system takes anything on a kept connection that has just closed, is not sent again",
    async (_what, length, body) => {
      const { pool, heard, send, writeBatch, kept: before } = await kept();
      const second = send({
        method: "POST",
        upstreamPath: "/2",
        body: body(),
        headers: ["Content-Length", "8000", "X-Long", "l".repeat(length)],
      });
      // The first write after the end succeeds, and has a reset for its answer, which the next one meets.
      before.destroy();
      writeBatch.now();
      const leave = setInterval(() => writeBatch.now(), 1);
      onTestFinished(() => clearInterval(leave));
      expect(
        await second.then(
          ({ status }) => status,
          (fault: Fault) => fault.code,
        ),
      ).toBe("upstream_reset");
      expect([pool.leases.leased, heard.join("").includes("POST")]).toEqual([0, false]);
    },
  );

  it.each([
    ["a new", "/1"],
    ["a kept", "/2"],
  ])(
    "the request has a body that arrived with its head in the same write on %s connection",
    async (which, upstreamPath) => {
      const { heard, send, writeBatch } =
        which === "a kept"
          ? await kept()
          : {
              writeBatch: new WriteBatch(),
              ...(await bench((socket) => void socket.write(`${HEAD}Content-Length: 0\r\n\r\n`))),
            };
      const sent = send({ method: "POST", upstreamPath, body: streamed(), headers: ["Content-Length", "4"] });
      await eventually(
        () => (writeBatch.now(), heard.at(-1)?.startsWith(`POST ${upstreamPath} `) === true),
        "the request",
      );
      expect(heard.at(-1)).toMatch(/\r\n\r\nbody$/);
      await sent;
    },
  );

  it("the request loses its connection and lease after 100 ms if it continues behind a complete response", async () => {
    const { pool, send, upstream, clock } = await bench((socket, text) => {
      if (text.startsWith("POST")) socket.write(`${HEAD}Content-Length: 2\r\n\r\nok`);
    });
    const body = new PassThrough();
    body.write("half");
    expect(String((await send({ method: "POST", body, headers: ["Content-Length", "8"] })).body)).toBe("ok");
    clock.advance(99);
    expect(pool.leases.leased).toBe(1);
    clock.advance(1);
    expect([pool.leases.leased, pool.open, clock.pending]).toEqual([0, 0, 0]);
    await eventually(() => upstream.sockets.size === 0, "the end of the connection");
    body.end("half");
  });

  it("the request sends its head and a body that has arrived in one write", async () => {
    const { heard, send } = await bench((socket) => socket.write(`${HEAD}Content-Length: 0\r\n\r\n`));
    await send();
    const body = new PassThrough();
    body.end("body");
    await send({ method: "POST", body, headers: ["Content-Length", "4"] });
    expect(heard).toHaveLength(2);
    expect(heard[1]).toMatch(/^POST \/b HTTP\/1\.1\r\nHost: .*\r\nConnection: keep-alive\r\n\r\nbody$/s);
  });

  it(
    "the request fails with internal, and closes the connection, " +
      "if a plugin's body differs from its Content-Length",
    async () => {
      const { upstream, pool, code } = await bench(() => {});
      for (const text of ["four and more", "one"]) {
        const body = new PassThrough();
        body.end(text);
        expect(await code({ method: "POST", body, headers: ["Content-Length", "4"] })).toBe("internal");
        await eventually(() => upstream.sockets.size === 0, "no connection at the upstream");
      }
      expect(pool.leases.leased).toBe(0);
    },
  );

  it("the request may end behind its response, and the connection is reused", async () => {
    const { pool, send, upstream, heard } = await bench((socket, text) => {
      if (text.startsWith("POST")) socket.write(`${HEAD}Content-Length: 2\r\n\r\nok`);
    });
    const body = new PassThrough();
    body.write("half");
    expect(String((await send({ method: "POST", body, headers: ["Content-Length", "8"] })).body)).toBe("ok");
    expect(pool.leases.leased).toBe(1);
    body.end("half");
    await eventually(
      () => pool.leases.leased === 0 && heard.join("").endsWith("halfhalf"),
      "no lease in use and the whole request at the upstream",
    );
    expect(pool.open).toBe(1);
    expect(upstream.connections).toBe(1);
  });

  it(
    "the request closes a connection that brings more bytes before the request has " + "ended behind its response",
    async () => {
      const { pool, send, upstream } = await bench((socket, text) => {
        if (text.startsWith("POST")) socket.write(`${HEAD}Content-Length: 2\r\n\r\nok`);
      });
      const body = new PassThrough();
      body.write("half");
      await send({ method: "POST", body, headers: ["Content-Length", "8"] });
      [...upstream.sockets][0]!.write(`${HEAD}Content-Length: 6\r\n\r\nsecond`);
      await eventually(() => pool.leases.leased === 0 && upstream.sockets.size === 0, "the end of the connection");
    },
  );
});

describe("the response", () => {
  it(
    "the response does not hide unrequested bytes behind a response that is still being read from a " +
      "request that is being sent",
    async () => {
      const half = "x".repeat(70_000);
      const { pool, send, upstream } = await bench((socket, text) => {
        if (text.startsWith("POST")) socket.write(`${HEAD}Content-Length: 140000\r\n\r\n${half}`);
      });
      const upload = new PassThrough();
      upload.write("half");
      const body = (await send({ method: "POST", body: upload, headers: ["Content-Length", "8"] })).body as Readable;
      // All of the first half, and not a byte of the second.
      let taken = 0;
      const take = () => (taken += body.readableLength === 0 ? 0 : (body.read() as Buffer).length);
      await eventually(() => take() === half.length, "half of the body");
      [...upstream.sockets][0]!.write(half);
      await eventually(
        () => body.readableLength > 0 && [...upstream.sockets][0]!.writableLength === 0,
        "unread bytes of the body",
      );
      while (body.readableLength > 0 && taken < 139_000) {
        body.read(Math.min(body.readableLength, 1000));
        taken += 1000;
        await new Promise((resolve) => setImmediate(resolve));
      }
      [...upstream.sockets][0]!.write("unasked");
      await eventually(() => upstream.sockets.size === 0 && pool.leases.leased === 0, "the end of the connection");
    },
  );

  it("the response has a Buffer as its body if it came in one piece, chunked or not", async () => {
    for (const bytes of ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]) {
      const { pool, send } = await bench((socket) => socket.write(HEAD + bytes));
      const { body } = await send();
      expect(String(body)).toBe("ok");
      expect([pool.leases.leased, pool.open]).toEqual([0, 1]);
    }
  });

  it("the response keeps its bytes while other responses are read over the same connection", async () => {
    let nth = 0;
    const { send } = await bench((socket) => socket.write(`${HEAD}Content-Length: 6\r\n\r\nbody ${++nth}`));
    const replies = [await send(), await send(), await send()];
    expect(replies.map(({ body }) => String(body))).toEqual(["body 1", "body 2", "body 3"]);
  });

  it(
    "the response keeps its bytes when it is read slowly, " + "although all connections are read into one buffer",
    async () => {
      const bytes = 300_000;
      const pattern = (path: string) => Buffer.alloc(bytes, `<${path}>`);
      const { pool, send } = await bench((socket, text) => {
        const path = text.split(" ", 2)[1]!;
        socket.write(Buffer.concat([Buffer.from(`${HEAD}Content-Length: ${bytes}\r\n\r\n`), pattern(path)]));
      });
      pool.limitTo(6, 1);
      const ask = async (path: string, slowly: boolean): Promise<boolean> => {
        const body = (await send({ upstreamPath: path })).body as Readable;
        const kept: Buffer[] = [];
        for await (const chunk of body) {
          kept.push(chunk as Buffer);
          if (slowly) for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve));
        }
        return Buffer.concat(kept).equals(pattern(path));
      };
      const rights = await Promise.all(Array.from({ length: 24 }, (_, i) => ask(`/${i}`, i % 2 === 0)));
      expect(rights.filter((right) => !right)).toEqual([]);
      expect(pool.leases.leased).toBe(0);
    },
  );

  it.each(["5\r\nbegun\r\n", "1\r\nb\r\n4\r\negun\r\n"])(
    "the response breaks off after idle_ms if it stops behind %j",
    async (chunks) => {
      const { send, pool } = await bench(
        (socket) => socket.write(`${HEAD}Transfer-Encoding: chunked\r\n\r\n${chunks}`),
        50,
      );
      const body = (await send()).body as Readable;
      const broken = new Promise<Error>((resolve) => body.on("error", resolve));
      body.resume();
      expect(await broken).toMatchObject({ code: "upstream_timeout" });
      await eventually(() => pool.leases.leased === 0, "no lease in use");
    },
  );

  it("the response may follow thousands of informational responses", async () => {
    const { send } = await bench((socket) =>
      socket.write(`${"HTTP/1.1 102 Wait\r\n\r\n".repeat(2000)}${HEAD}Content-Length: 0\r\n\r\n`),
    );
    expect((await send()).status).toBe(200);
  });
});

/** The promises of the HTTP/1.1 clients to upstreams at the level of bytes. */
import type { Socket } from "node:net";
import { PassThrough, Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { Call, type Exchange, type ExchangeParts } from "../../lib/http/exchange.ts";
import { discard, type Reply } from "../../lib/http/reply.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { closedPort, socketOrigin } from "../support/origin.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";
import { eventually } from "../support/raw_client.ts";

/** A response in two segments, so that it cannot be read at once. */
const slowly = (socket: Socket) => {
  socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
  return () => void socket.write("k");
};

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

export function forwarding(client: "wire" | "node"): void {
  async function bench(serve: (socket: Socket, head: string) => void) {
    const sent: string[] = [];
    const upstream = await socketOrigin((socket) => {
      socket.on("data", (chunk: Buffer) => {
        sent.push(chunk.toString());
        const text = chunk.toString("latin1");
        if (text.includes("HTTP/1.1\r\n")) serve(socket, text);
      });
    });
    onTestFinished(() => upstream.close());
    return { upstream, sent, ...benchAt(upstream.port) };
  }

  function benchAt(port: number) {
    const clock = manualClock();
    const pool = madeUpPool({ port, keepaliveIdleMs: 30_000 }, 1, clock);
    onTestFinished(() => pool.destroy());
    const peer = madeUpPeer("u", pool);
    const options = {
      clock,
      client,
      connectMs: 100,
      responseMs: 200,
      idleMs: 60_000,
      tryMs: 0,
      preserveHost: false,
      viaName: "gw",
    };
    const informed: number[] = [];
    const send = (parts: Partial<ExchangeParts> = {}): { exchange: Exchange; reply: Promise<Reply> } => {
      const call = new Call({
        id: "1",
        remoteAddress: "192.0.2.1",
        trustedRemote: false,
        startedAt: 0,
        inform: (status) => informed.push(status),
      });
      const exchange = madeUpExchange({ call, ...parts });
      return { exchange, reply: forward(exchange, peer, options, Infinity) };
    };
    /** Resolves when every lease has been returned; no timer may be left. */
    const settled = async () => {
      await eventually(() => pool.leases.leased === 0, "the lease coming back");
      expect(pool.leases.waiting).toBe(0);
      expect(clock.pending).toBe(0);
    };
    return { clock, pool, send, settled, informed };
  }

  const read = async (reply: Reply) => {
    if (Buffer.isBuffer(reply.body)) return reply.body.toString();
    let text = "";
    for await (const chunk of reply.body as Readable) text += String(chunk);
    return text;
  };
  const code = (reply: Promise<Reply>) =>
    reply.then(
      (given) => String(given.status),
      (fault: unknown) => (fault instanceof Fault ? fault.code : `not a Fault: ${String(fault)}`),
    );

  describe("the lease of an upstream connection", () => {
    it("the lease of an upstream connection is returned when the body has been read, not earlier", async () => {
      let goOn = () => {};
      const { send, settled, pool } = await bench((socket) => void (goOn = slowly(socket)));
      const reply = await send().reply;
      expect(pool.leases.leased).toBe(1);
      goOn();
      expect(await read(reply)).toBe("ok");
      await settled();
    });

    it("the lease of an upstream connection is returned when the body arrived with its head", async () => {
      const { send, settled } = await bench((socket) => socket.write(ok));
      expect(await read(await send().reply)).toBe("ok");
      await settled();
    });

    it("the lease of an upstream connection is returned when the body is discarded unread", async () => {
      const { send, settled, upstream } = await bench((socket) =>
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"),
      );
      discard(await send().reply);
      await settled();
      await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
    });

    it.each([
      "HTTP/1.1 204 No Content\r\n\r\n",
      "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ])("the lease of an upstream connection is returned by itself when there is no body: %j", async (bytes) => {
      const { send, settled, upstream } = await bench((socket) => socket.write(bytes));
      expect((await send().reply).body).toBeNull();
      await settled();
      expect(upstream.sockets.size).toBe(1);
    });

    it.each<[string, (socket: Socket) => void, string]>([
      ["upstream_reset when it closes", (socket) => socket.end(), "upstream_reset"],
      ["upstream_reset when it resets", (socket) => socket.resetAndDestroy(), "upstream_reset"],
      ["upstream_invalid when it sends garbage", (socket) => void socket.write("x\r\n\r\n"), "upstream_invalid"],
      [
        "upstream_invalid when it switches protocols without a request for it",
        (socket) => void socket.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        "upstream_invalid",
      ],
    ])("is returned with %s", async (_title, serve, expected) => {
      const { send, settled } = await bench(serve);
      expect(await code(send().reply)).toBe(expected);
      await settled();
    });

    it(
      "the lease of an upstream connection is returned with upstream_connect_failed when " +
        "the connection is refused",
      async () => {
        const { send, settled } = benchAt(await closedPort());
        expect(await code(send().reply)).toBe("upstream_connect_failed");
        await settled();
      },
    );

    it("the lease of an upstream connection is returned with upstream_timeout after response_ms", async () => {
      const { send, settled, clock, upstream } = await bench(() => {});
      const { reply } = send();
      await eventually(
        () => upstream.connections === 1 && clock.pending === 1,
        "a connection to the upstream, waiting with one timer",
      );
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(200);
      expect(await code(reply)).toBe("upstream_timeout");
      await settled();
    });

    it("the lease of an upstream connection is returned with internal when a header cannot be written", async () => {
      const { send, settled, upstream } = await bench(() => {});
      expect(await code(send({ headers: ["X-A", "b\nc"] }).reply)).toBe("internal");
      await settled();
      expect(upstream.connections).toBe(0);
    });

    it(
      "the lease of an upstream connection is returned when the client disconnects: at once, before a response, " +
        "and in the middle of one",
      async () => {
        const { send, settled, upstream } = await bench((socket, head) => {
          if (head.includes(" /body ")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok");
        });
        const early = send();
        early.exchange.call.abort();
        expect(await code(early.reply)).toBe("upstream_reset");
        await settled();

        const waiting = send();
        await eventually(
          () => upstream.connections >= 1 && upstream.sockets.size === 1,
          "a connection to the upstream",
        );
        waiting.exchange.call.abort();
        expect(await code(waiting.reply)).toBe("upstream_reset");
        await settled();

        const middle = send({ upstreamPath: "/body" });
        const reply = await middle.reply;
        const text = read(reply);
        middle.exchange.call.abort();
        await expect(text).rejects.toBeInstanceOf(Fault);
        await settled();
        await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
      },
    );

    it("the lease of an upstream connection is returned when the client has disconnected before", async () => {
      const { send, settled } = await bench((socket) => socket.write(ok));
      const call = new Call({ id: "1", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });
      call.abort();
      expect(await code(send({ call }).reply)).toBe("upstream_reset");
      expect(await code(send({ call, method: "POST", body: new PassThrough() }).reply)).toBe("upstream_reset");
      await settled();
    });

    it("the lease of an upstream connection is returned when the request's body breaks off", async () => {
      const { send, settled } = await bench(() => {});
      const body = new PassThrough();
      const { reply } = send({ method: "POST", body, headers: ["Content-Length", "10"] });
      body.write("half");
      body.destroy();
      expect(await code(reply)).toBe("bad_request");
      await settled();
    });

    it("the lease of an upstream connection is returned when the request's body had been read before", async () => {
      const { send, settled } = await bench(() => {});
      const body = Readable.from([Buffer.from("a")]);
      body.resume();
      await new Promise((resolve) => body.once("end", resolve));
      expect(await code(send({ method: "POST", body }).reply)).toBe("bad_request");
      await settled();
    });

    it(
      "the lease of an upstream connection is returned with its connection when the " +
        "upstream has refused a WebSocket",
      async () => {
        const { send, settled, pool, upstream } = await bench((socket) => void socket.write(ok));
        expect(await read(await send({ upgrade: "websocket" }).reply)).toBe("ok");
        await settled();
        await eventually(
          () => upstream.sockets.size === 0 && pool.open === 0,
          "the connections to the upstream closing",
        );
        expect(await read(await send().reply)).toBe("ok");
        expect(upstream.connections).toBe(2);
      },
    );

    it("the lease of an upstream connection is returned when a tunnel closes, not earlier", async () => {
      const { send, settled, pool } = await bench((socket) =>
        socket.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\nhi"),
      );
      const reply = await send({ upgrade: "websocket" }).reply;
      expect(reply.status).toBe(101);
      expect(reply.tunnel!.head.toString()).toBe("hi");
      expect(pool.leases.leased).toBe(1);
      discard(reply);
      await settled();
    });
  });

  it(
    "breaks a response off idle_ms after the last byte of its body, " + "although the upstream took longer to begin it",
    async () => {
      const { upstream } = await bench(() => {});
      const clock = manualClock();
      const pool = madeUpPool({ port: upstream.port, keepaliveIdleMs: 30_000 }, 1, clock);
      onTestFinished(() => pool.destroy());
      const options = {
        clock,
        client,
        connectMs: 100,
        responseMs: 60_000,
        idleMs: 30,
        tryMs: 0,
        preserveHost: false,
        viaName: "gw",
      };
      const answered = forward(madeUpExchange(), madeUpPeer("u", pool), options, Infinity);
      await eventually(() => upstream.sockets.size === 1, "the request");
      await new Promise<void>((resolve) => [...upstream.sockets][0]!.setTimeout(90, resolve));
      [...upstream.sockets][0]!.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
      await expect(read(await answered)).rejects.toMatchObject({ code: "upstream_timeout" });
      await eventually(() => pool.leases.leased === 0, "the lease coming back");
    },
  );

  it("replaces a reused connection that breaks once, without a second lease", async () => {
    let served = 0;
    let goOn = () => {};
    const { send, settled, upstream, pool } = await bench((socket) => {
      if (++served === 1) socket.write(ok);
      else if (served === 2) socket.destroy();
      else goOn = slowly(socket);
    });
    await read(await send().reply);
    await settled();
    const reply = await send().reply;
    expect(pool.leases.leased).toBe(1);
    goOn();
    expect(await read(reply)).toBe("ok");
    await settled();
    expect(upstream.connections).toBe(2);
  });

  it("sends a plugin's text body with its length in bytes", async () => {
    const { send, settled, sent } = await bench((socket, head) => void (head.includes(" /a ") && socket.write(ok)));
    for (const headers of [[], ["Content-Length", "6"]]) {
      sent.length = 0;
      const { reply } = send({ method: "POST", upstreamPath: "/a", body: Readable.from(["äöü"]), headers });
      await read(await reply);
      await settled();
      expect(sent.join("")).toContain(headers.length > 0 ? "\r\n\r\näöü" : "\r\n\r\n6\r\näöü\r\n0\r\n\r\n");
    }
  });

  it("does not retry a request that was cancelled on a reused connection", async () => {
    const { send, settled, upstream, clock, sent } = await bench(
      (socket, head) => void (head.includes(" /first ") && socket.write(ok)),
    );
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    for (const end of ["timeout", "client"] as const) {
      await read(await send({ upstreamPath: "/first" }).reply);
      await settled();
      const second = send({ upstreamPath: `/${end}` });
      await eventually(() => sent.join("").includes(` /${end} `), "the request at the upstream");
      if (end === "timeout") clock.advance(200);
      else second.exchange.call.abort();
      expect(await code(second.reply)).toBe(end === "timeout" ? "upstream_timeout" : "upstream_reset");
      await settled();
      await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
      await settled();
      expect(sent.join("").split(` /${end} `)).toHaveLength(2);
    }
    expect(upstream.connections).toBe(2);
    expect(unhandled).toEqual([]);
  });

  it(
    "continues an upload after a response that arrived before its end, " + "even if the upstream reads it slowly",
    async () => {
      const bytes = 16 * 1024 * 1024;
      let socket: Socket | null = null;
      const upstream = await socketOrigin((accepted) => {
        socket = accepted;
        accepted.once("data", () => {
          accepted.pause();
          accepted.write(ok);
        });
      });
      onTestFinished(() => upstream.close());
      const { send, settled, pool } = benchAt(upstream.port);
      let given = 0;
      const body = new Readable({
        read() {
          given += 65_536;
          this.push(Buffer.alloc(65_536));
          if (given >= bytes) this.push(null);
        },
      });
      expect(await read(await send({ method: "POST", body, headers: ["Content-Length", String(bytes)] }).reply)).toBe(
        "ok",
      );
      await eventually(() => body.isPaused(), "an upload that waits for the upstream");
      expect(given).toBeLessThan(bytes);
      expect(pool.leases.leased).toBe(1);
      const whole = new Promise<void>((resolve) => {
        socket!.on("data", () => {
          if (socket!.bytesRead > bytes) resolve();
        });
      });
      socket!.resume();
      await whole;
      await settled();
    },
  );

  it("passes informational responses to the client as they arrive", async () => {
    const { send, informed, settled } = await bench((socket) =>
      socket.write("HTTP/1.1 103 Hint\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok),
    );
    await read(await send().reply);
    expect(informed).toEqual([103, 100]);
    await settled();
  });

  it("passes on status, reason, headers and trailers, without hop-by-hop headers", async () => {
    const bytes =
      "HTTP/1.1 299 Odd\r\nX-b: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nX-B: " +
      "2\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 3\r\n\r\n";
    const { send } = await bench((socket) => socket.write(bytes));
    const reply = await send().reply;
    expect(reply).toMatchObject({ status: 299, reason: "Odd", headers: ["X-b", "1", "X-B", "2", "Via", "1.1 gw"] });
    await read(reply);
    expect(reply.trailers!()).toEqual(["X-Sum", "3"]);
  });
}

import { once } from "node:events";
import { describe, expect, it, onTestFinished } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Open, h2Session } from "../support/h2_client.ts";
import { GET, HEADERS, PREFACE, rawSession, SETTINGS, type Frame } from "../support/h2_raw.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, get, statusesIn } from "./harness.ts";

const on = { h2c: true };

const speaksHttp2 = async (port: number) => (await h2Open(h2Session(port), {}, true).reply).status > 0;

describe("a plain port with global.h2c", () => {
  it(
    "a plain port with global.h2c accepts HTTP/2 by prior knowledge, " + "and names http as the scheme to the upstream",
    async () => {
      const origin = await backend();
      const { port } = await running(oneService(origin.port, {}, on));
      expect(await speaksHttp2(port)).toBe(true);
      expect(origin.seen[0]!.headers.join("\n")).toMatch(/X-Forwarded-Proto\nhttp\n/);
    },
  );

  it(
    "a plain port with global.h2c still serves HTTP/1.1: bodies, pipelining, " +
      "and a method that begins like the preface",
    async () => {
      const origin = await backend((request, response, body) => response.end(`${request.method} ${body.toString()}`));
      const { port } = await running(oneService(origin.port, {}, on));
      expect((await ask(port, { path: "/a/x", method: "POST", body: "b".repeat(200_000) })).body).toHaveLength(200_005);
      expect((await ask(port, { path: "/a/x", method: "PROPFIND" })).body.toString()).toBe("PROPFIND ");
      const connection = await client(port);
      connection.send(get() + get("/none") + get("/a/y", "Connection: close"));
      expect(statusesIn(await connection.closed())).toEqual([200, 404, 200]);
    },
  );

  it.each([1, 100_000])(
    "a plain port with global.h2c counts no upload of %d bytes over HTTP/2 that was answered as given up by its client",
    async (bytes) => {
      const origin = await backend((_request, response, body) => void response.end(String(body.length)));
      let lines = "";
      const { gateway, port } = await running(oneService(origin.port, {}, on), {
        accessLog: (more) => void (lines += more),
      });
      const session = h2Session(port);
      for (let i = 0; i < 5; i++)
        expect((await h2Ask(session, { method: "POST", body: "x".repeat(bytes) })).body).toBe(String(bytes));
      await eventually(() => gateway.status.inFlight === 0 && lines.match(/\n/g)?.length === 5);
      expect(lines.match(/"status":[^,]+,"code":[^,]+/g)).toEqual(Array(5).fill('"status":200,"code":null'));
    },
  );

  it("a plain port with global.h2c recognises either protocol when the first bytes arrive one by one", async () => {
    const { port } = await running(oneService((await backend()).port, {}, on));
    const one = await client(port);
    for (const letter of get("/a/x", "Connection: close")) {
      await new Promise<void>((resolve) => one.socket.write(letter, () => setImmediate(resolve)));
    }
    expect(statusesIn(await one.closed())).toEqual([200]);
    const two = await rawSession(port, { bare: true, acknowledge: false });
    onTestFinished(() => void two.socket.destroy());
    for (const letter of PREFACE) {
      await new Promise<void>((resolve) => two.socket.write(Buffer.from([letter]), () => setImmediate(resolve)));
    }
    two.send(Buffer.from([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]));
    two.headers(1, GET);
    await two.until(({ type, stream }: Frame) => type === HEADERS && stream === 1);
  });

  it(
    "a plain port with global.h2c tunnels a WebSocket, " + "and serves an unknown upgrade as an ordinary request",
    async () => {
      const upstream = await byteBackend((socket) => {
        socket.once("data", (head: Buffer) => {
          if (!/upgrade: websocket/i.test(head.toString()))
            return void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
          socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
          socket.pipe(socket);
        });
      });
      const { port } = await running(oneService(upstream.port, {}, on));
      const connection = await client(port);
      connection.send(get("/a/x", "Connection: Upgrade", "Upgrade: websocket"));
      await connection.until("101 Switching");
      connection.send("echo");
      await connection.until("echo");
      const other = await client(port);
      other.send(
        get("/a/x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
      );
      expect(await other.until("ok")).toMatch(/^HTTP\/1\.1 200 /);
    },
  );

  it.each([
    ["sends nothing", ""],
    ["sends the beginning of a preface", "PRI * HT"],
  ])(
    "a plain port with global.h2c closes a connection that %s with 408 after headers_timeout_ms, not earlier",
    async (_how, bytes) => {
      const clock = manualClock();
      const { port } = await running(oneService(9, {}, { ...on, limits: { headers_timeout_ms: 5_000 } }), { clock });
      const idle = clock.pending;
      const connection = await client(port);
      connection.send(bytes);
      await eventually(() => clock.pending > idle, "a timer");
      clock.advance(4_999);
      expect(connection.socket.closed).toBe(false);
      clock.advance(1);
      expect(statusesIn(await connection.until("request_timeout"))).toEqual([408]);
    },
  );

  it("a plain port with global.h2c releases a connection that ends before its protocol is known", async () => {
    const clock = manualClock();
    const { port, gateway } = await running(oneService(9, {}, on), { clock });
    const idle = clock.pending;
    const connection = await client(port);
    await eventually(() => clock.pending > idle, "a timer");
    connection.socket.end("PRI");
    await connection.closed();
    await eventually(() => clock.pending === idle, "the timers ending");
    expect(await gateway.close(5_000)).toBe("drained");
  });

  it("a plain port with global.h2c closes a connection whose preface turns out to be invalid", async () => {
    const { port } = await running(oneService(9, {}, on));
    const connection = await client(port);
    connection.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + "x".repeat(100));
    await connection.closed();
  });

  it(
    "a plain port with global.h2c is not kept from draining by a connection that " + "was opened and never used",
    async () => {
      const { port, gateway } = await running(oneService(9, {}, on));
      const connection = await client(port);
      await ask(port, { path: "/none" });
      expect(await gateway.close(5_000)).toBe("drained");
      await connection.closed();
    },
  );
});

it("answers 400 to an HTTP/2 preface without global.h2c", async () => {
  const { port } = await running(oneService(9));
  const connection = await client(port);
  connection.send(PREFACE);
  expect(statusesIn(await connection.closed())).toEqual([400]);
});

it("a reload enables and disables global.h2c for new connections", async () => {
  const origin = await backend();
  const { port, gateway } = await running(oneService(origin.port));
  expect(await speaksHttp2(port)).toBe(false);
  await gateway.reload(oneService(origin.port, {}, on));
  const session = h2Session(port);
  const [first] = (await once(session.request({ ":path": "/a/x" }), "response")) as [Record<string, unknown>];
  expect(first[":status"]).toBe(200);
  await gateway.reload(oneService(origin.port));
  expect(await speaksHttp2(port)).toBe(false);
});

describe("a reload with open HTTP/2 connections", () => {
  /** Reloads the gateway while an HTTP/2 connection has a request under way. */
  async function reloaded(before: object, after: object) {
    const answers: (() => void)[] = [];
    const origin = await backend((_request, response) => void answers.push(() => response.end("whole")));
    const { gateway, port } = await running(oneService(origin.port, {}, { ...on, ...before }));
    const session = h2Session(port);
    let hasGoaway = false;
    session.on("goaway", () => (hasGoaway = true));
    const stream = session.request({ ":path": "/a/x" });
    await eventually(() => answers.length === 1, "a request at the server");
    await gateway.reload(oneService(origin.port, {}, { ...on, ...after }));
    // The answer to a PING arrives after any frame that the reload has sent.
    await new Promise((resolve) => session.ping(resolve));
    let body = "";
    stream.on("data", (chunk: Buffer) => (body += chunk.toString()));
    answers[0]!();
    await once(stream, "close");
    return { hasGoaway: () => hasGoaway, body: () => body };
  }

  it.each([
    ["max_headers", {}, { limits: { max_headers: 50 } }],
    ["h2c to false", {}, { h2c: false }],
  ])(
    "a reload with open HTTP/2 connections sends GOAWAY to open connections when it changes %s, " +
      "and finishes the request in progress",
    async (_what, before, after) => {
      const { hasGoaway, body } = await reloaded(before, after);
      expect(body()).toBe("whole");
      await eventually(hasGoaway, "the GOAWAY");
    },
  );

  it("a reload with open HTTP/2 connections leaves open connections alone when it changes anything else", async () => {
    const { hasGoaway, body } = await reloaded({}, { limits: { max_body_bytes: 5 }, name: "other" });
    expect(body()).toBe("whole");
    expect(hasGoaway()).toBe(false);
  });
});

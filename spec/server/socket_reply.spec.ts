import { PassThrough, Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { DeadlineTimer } from "../../lib/base/deadline_timer.ts";
import { Call } from "../../lib/http/exchange.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { head, refuseBare, respondBare } from "../../lib/server/socket_reply.ts";
import { manualClock } from "../support/clock.ts";

const call = () => new Call({ id: "id-1", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });

const delivery = (clock = manualClock()) => ({ clock, watch: new DeadlineTimer(clock), idleMs: 60_000 });

/** What a reply looks like on the wire. */
async function written(reply: Reply, its = call()): Promise<string> {
  const socket = new PassThrough();
  const chunks: Buffer[] = [];
  const clock = manualClock();
  const collected = new Promise<string>((resolve) => {
    // The socket is its own other end here: what is read is what was written.
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("close", () => resolve(Buffer.concat(chunks).toString("latin1")));
  });
  respondBare(socket, its, reply, delivery(clock));
  return collected;
}

test("a head is its first line and header lines, byte for byte", () => {
  expect(head("HTTP/1.1 200 OK", ["A", "1", "a", "2", "Caf\xe9", ""])).toBe("HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nCaf\xe9: \r\n\r\n");
  expect(head("GET / HTTP/1.1", [])).toBe("GET / HTTP/1.1\r\n\r\n");
});

describe("a reply on a bare socket", () => {
  test("ends the connection, says so, and carries the request's id", async () => {
    expect(await written({ status: 403, headers: ["X-A", "1"], body: Buffer.from("no") })).toBe(
      "HTTP/1.1 403 Forbidden\r\nX-A: 1\r\nX-Request-Id: id-1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
    );
  });

  test("keeps the upstream's reason; without a known one there is none", async () => {
    expect(await written({ status: 403, reason: "Go away", headers: [], body: null })).toMatch(/^HTTP\/1\.1 403 Go away\r\n/);
    expect(await written({ status: 299, headers: [], body: null })).toMatch(/^HTTP\/1\.1 299 \r\n/);
  });

  test("streams a body until the end of the connection, and leaves Trailer out", async () => {
    const text = await written({ status: 200, headers: ["Trailer", "X"], body: Readable.from([Buffer.from("a"), Buffer.from("b")]) });
    expect(text).toMatch(/\r\n\r\nab$/);
    expect(text).not.toContain("Trailer");
  });

  test("corrects a stated length", async () => {
    expect(await written({ status: 200, headers: ["content-length", "9"], body: Buffer.from("four") })).toMatch(/\r\nContent-Length: 4\r\n/);
  });

  test.each<[string, Partial<Reply>]>([
    ["a header value", { headers: ["X-A", "b\r\nSet-Cookie: s=1"] }],
    ["a header name", { headers: ["X-A: b\r\nSet-Cookie", "s=1"] }],
    ["the reason", { reason: "OK\r\nSet-Cookie: s=1" }],
  ])("a line break in %s splits nothing: 500", async (_where, parts) => {
    const its = call();
    const text = await written({ status: 200, headers: [], body: null, ...parts }, its);
    expect(text).toMatch(/^HTTP\/1\.1 500 /);
    expect(text).not.toContain("s=1");
    expect(its.notes).toMatchObject({ status: 500, code: "internal" });
  });

  test("a 101 with a tunnel leaves the socket to it, and keeps its own Connection", () => {
    const socket = new PassThrough();
    const tunnel = { socket: new PassThrough(), head: Buffer.alloc(0), idleMs: 1 };
    const headers = ["Connection", "Upgrade", "Upgrade", "websocket"];
    expect(respondBare(socket, call(), { status: 101, headers, body: null, tunnel }, delivery())).toBe(true);
    expect(String(socket.read())).toBe("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Request-Id: id-1\r\n\r\n");
    expect(socket.writableEnded).toBe(false);
  });

  test("to a client that has gone is discarded, tunnel and body", () => {
    const its = call();
    its.abort();
    const tunnel = { socket: new PassThrough(), head: Buffer.alloc(0), idleMs: 1 };
    const body = new PassThrough();
    expect(respondBare(new PassThrough(), its, { status: 101, headers: [], body: null, tunnel }, delivery())).toBe(false);
    expect(respondBare(new PassThrough(), its, { status: 200, headers: [], body }, delivery())).toBe(false);
    expect([tunnel.socket.destroyed, body.destroyed]).toEqual([true, true]);
  });
});

test("a refusal is a whole problem document", () => {
  const socket = new PassThrough();
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  refuseBare(socket, "bad_request", { requestId: "id-2", clock: manualClock(), detail: "Because." });
  const [first, body] = text.split("\r\n\r\n");
  expect(first).toMatch(/^HTTP\/1\.1 400 Bad Request\r\nContent-Type: application\/problem\+json\r\nContent-Length: \d+\r\nX-Request-Id: id-2\r\nConnection: close$/);
  expect(JSON.parse(body!)).toEqual({
    type: "about:blank", title: "The request is malformed", status: 400, detail: "Because.", code: "bad_request", request_id: "id-2",
  });
});

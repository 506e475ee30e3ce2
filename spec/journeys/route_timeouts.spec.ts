import http2 from "node:http2";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { byteBackend, client, codeIn, get, headBackend, rawBackend } from "./harness.ts";

/** Takes requests over either protocol, and answers those for /next. */
async function silent(protocol: "http" | "h2c"): Promise<{ readonly port: number; readonly asked: () => number }> {
  if (protocol === "http") {
    const { port, heads } = await headBackend(({ text, socket }) => {
      if (text.includes("/next")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    return { port, asked: () => heads.length };
  }
  let count = 0;
  const sessions = new Set<http2.Http2Session>();
  const server = http2.createServer();
  server.on("session", (session) => sessions.add(session));
  server.on("stream", (stream, headers) => {
    count++;
    stream.on("error", () => {});
    if (headers[":path"] === "/next") stream.respond({ ":status": 200 }, { endStream: true });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, asked: () => count };
}

const upgrade = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const switched =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
  "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

describe.each(["http", "h2c"] as const)("timeouts of a route, with an upstream over %s,", (protocol) => {
  const routes = (timeouts: object) => ({
    protocol,
    routes: [{ path: "/own", timeouts }, { path: "/other" }, { path: "/next" }],
  });

  /** Statuses and codes of /own and /other, once `own` and then `others` milliseconds have passed. */
  async function outcome(parts: object, own: number, others: number): Promise<string[]> {
    const clock = manualClock();
    const upstream = await silent(protocol);
    const { port } = await running(oneService(upstream.port, parts), { clock });
    const over: string[] = [];
    const asking = ["own", "other"].map((path) =>
      ask(port, { path: `/a/${path}` }).then(({ status, body }) => {
        over.push(`${path} ${status} ${codeIn(body.toString())}`);
      }),
    );
    await eventually(() => upstream.asked() === 2, "both requests at the upstream");
    clock.advance(own);
    await eventually(() => over.length === 1, "one of them answered");
    clock.advance(others - own);
    await Promise.all(asking);
    return over;
  }

  it("have response_ms in place of the service's, shorter", async () => {
    const parts = { ...routes({ response_ms: 300 }), timeouts: { response_ms: 900 } };
    expect(await outcome(parts, 300, 900)).toEqual(["own 504 upstream_timeout", "other 504 upstream_timeout"]);
  });

  it("have response_ms in place of the service's, longer", async () => {
    const parts = { ...routes({ response_ms: 900 }), timeouts: { response_ms: 300 } };
    expect(await outcome(parts, 300, 900)).toEqual(["other 504 upstream_timeout", "own 504 upstream_timeout"]);
  });

  it("have total_ms in place of the service's", async () => {
    const parts = { ...routes({ total_ms: 300 }), timeouts: { total_ms: 900 } };
    expect(await outcome(parts, 300, 900)).toEqual(["own 504 upstream_timeout", "other 504 upstream_timeout"]);
  });

  it("lift the service's total_ms with 0, and leave its response_ms", async () => {
    const parts = { ...routes({ total_ms: 0 }), timeouts: { total_ms: 300, response_ms: 900 } };
    expect(await outcome(parts, 300, 900)).toEqual(["other 504 upstream_timeout", "own 504 upstream_timeout"]);
  });

  it("leave retries.per_try_ms as it is", async () => {
    const parts = { ...routes({ response_ms: 9000 }), retries: { per_try_ms: 300 }, timeouts: { response_ms: 200 } };
    expect(await outcome(parts, 200, 300)).toEqual(["other 504 upstream_timeout", "own 504 upstream_timeout"]);
  });

  it("hold for an upload whose client falls silent, with idle_ms", async () => {
    const upstream = await silent(protocol);
    const parts = { ...routes({ idle_ms: 60 }), timeouts: { idle_ms: 86_400_000 } };
    const { port } = await running(oneService(upstream.port, parts));
    const connection = await client(port);
    connection.send("POST /a/own HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    expect(await connection.until("request_timeout")).toContain("HTTP/1.1 408");
    expect((await ask(port, { path: "/a/next" })).status).toBe(200);
  });

  it("stay those of its beginning for a request that a reload overtakes", async () => {
    const clock = manualClock();
    const upstream = await silent(protocol);
    const config = (timeouts: object) => oneService(upstream.port, routes(timeouts));
    const { port, gateway } = await running(config({ response_ms: 300 }), { clock });
    const before = ask(port, { path: "/a/own" });
    await eventually(() => upstream.asked() === 1, "a request at the upstream");
    await gateway.reload(config({ response_ms: 700 }));
    const after = ask(port, { path: "/a/own" });
    await eventually(() => upstream.asked() === 2, "another request at the upstream");
    let isAnswered = false;
    void after.then(() => (isAnswered = true));
    clock.advance(300);
    expect((await before).status).toBe(504);
    expect(isAnswered).toBe(false);
    clock.advance(400);
    expect((await after).status).toBe(504);
  });
});

describe("idle_ms of a route", () => {
  const parts = {
    routes: [{ path: "/own", timeouts: { idle_ms: 60 } }, { path: "/other" }],
    timeouts: { idle_ms: 86_400_000 },
  };

  it("closes a WebSocket of the route after that silence, and no other one", async () => {
    const upstream = await byteBackend((socket) => {
      socket.once("data", () => void socket.write(switched));
      socket.on("end", () => socket.end());
    });
    const { port } = await running(oneService(upstream.port, parts));
    const other = await client(port);
    other.send(get("/a/other", ...upgrade));
    await other.until("\r\n\r\n");
    const own = await client(port);
    own.send(get("/a/own", ...upgrade));
    await own.closed();
    await eventually(() => upstream.sockets.size === 1, "one connection to the upstream closing");
    expect(other.socket.destroyed).toBe(false);
  });

  it("breaks off a response of the route that falls silent", async () => {
    const upstream = await rawBackend((_request, response) => void response.write("begun"));
    const { port } = await running(oneService(upstream.port, parts));
    await expect(ask(port, { path: "/a/own" })).rejects.toThrow();
  });
});

describe("a route with timeouts of its own", () => {
  it("shares the circuit breaker and the cookies of its service", async () => {
    const upstream = await silent("http");
    const clock = manualClock();
    const { port, gateway } = await running(
      oneService(upstream.port, {
        routes: [{ path: "/own", timeouts: { response_ms: 300 } }, { path: "/next" }],
        sticky: { cookie: "c" },
        circuit_breaker: { min_requests: 1, error_ratio: 0.5 },
      }),
      { clock },
    );
    const { headers } = await ask(port, { path: "/a/next" });
    expect(String(headers["set-cookie"])).toMatch(/^c=/);
    const answer = ask(port, { path: "/a/own" });
    await eventually(() => upstream.asked() === 2, "the request at the upstream");
    clock.advance(300);
    expect((await answer).status).toBe(504);
    const { status, body } = await ask(port, { path: "/a/next" });
    expect(`${status} ${codeIn(body.toString())}`).toBe("503 circuit_open");
    const { reasons, timeouts } = await gateway.explain({ method: "GET", url: "/a/own" });
    expect(reasons).toContain("The route has timeouts of its own: response_ms 300.");
    expect(timeouts).toEqual({ connectMs: 3000, responseMs: 300, idleMs: 60_000, totalMs: 0 });
  });
});

/** Requests that the gateway refuses before they are requests: what its logs and counts have of them. */
import { describe, expect, it } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { codec } from "../support/codec.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { logLines } from "../support/process.ts";
import { rawBackend } from "./harness.ts";

async function logging(global: AnyConfigInput["global"] = {}, options: Partial<GatewayOptions> = {}, upstream = 9) {
  let written = "";
  const clock = manualClock();
  const accessLog = (lines: string) => void (written += lines);
  const config = oneService(upstream, {}, { http1: codec, ...global });
  const { gateway, port } = await running(config, { clock, accessLog, ...options });
  /** Sends bytes, and resolves with the answer once the connection has ended. */
  const told = async (text: string, then: "waits" | "ends" = "waits") => {
    const talk = await connect(port);
    talk.send(text);
    if (then === "ends") talk.socket.end();
    const answer = await talk.closed();
    talk.socket.destroy();
    return { status: Number(answer.slice(9, 12)), id: /x-request-id: (\S+)/i.exec(answer)?.[1] };
  };
  const lineOf = async (id: string | undefined) => {
    await eventually(() => written.includes(`"${id}"`), "the line");
    return logLines(written).find(({ request_id }) => request_id === id)!;
  };
  return { gateway, port, clock, told, lineOf, written: () => written };
}

const own = codec === "wire";
const NAMELESS = { method: null, host: null, path: null, service: null, route: null, attempts: 0, caller: null };

describe("a request that cannot be read", () => {
  it.each([
    ["an unknown method", "BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request", "/pot"],
    ["a folded header", "GET /a/x?secret=1 HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400, "bad_request", "/a/x"],
    ["a line that ends with LF alone", "GET /a/x HTTP/1.1\nHost: a\n\n", 400, "bad_request", null],
    ["noise", "\x16\x03\x01\x02\x00", 400, "bad_request", null],
    ["a large head", `GET /a/x HTTP/1.1\r\nX: ${"x".repeat(40_000)}\r\n\r\n`, 431, "headers_too_large", "/a/x"],
    ["a long target", `GET /${"x".repeat(40_000)} HTTP/1.1\r\n\r\n`, 414, "uri_too_long", null],
    ["an authority as its target", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 400, "bad_request", undefined],
  ])("for %s has one line of the access log with its id and code", async (_what, text, status, code, path) => {
    const { told, lineOf, written } = await logging();
    const answer = await told(text);
    // Node's parser takes a folded header and a bare LF for what they are not, see framing.spec.ts.
    if (!own && answer.status !== status) return;
    expect(answer.status).toBe(status);
    const line = await lineOf(answer.id);
    expect(line).toMatchObject({ status, code, client_ip: "127.0.0.1", scheme: "http", protocol: "HTTP/1.1" });
    expect(line.bytes_sent).toBeGreaterThan(0);
    expect(line.fault === undefined && path !== undefined).toBe(false);
    if (own && path !== undefined) expect(line.path).toBe(path);
    expect(logLines(written()).length).toBe(1);
    expect(written()).not.toContain("secret");
  });

  it("has a line with null for method, host and path where there are none", async () => {
    const { told, lineOf } = await logging();
    expect(await lineOf((await told("\0\0\r\n\r\n")).id)).toMatchObject(NAMELESS);
  });

  it('is "-" in the combined format, and is no path that exclude names', async () => {
    const { told, written } = await logging({ access_log: { format: "combined", exclude: ["/", "/*"] } });
    await told("\0\0\r\n\r\n");
    await eventually(() => written() !== "", "a line");
    expect(written()).toMatch(/^127\.0\.0\.1 - - \[[^\]]+\] "-" 400 \d+ "-" "-"\n$/);
  });

  it("is counted, and its decision is remembered", async () => {
    const { gateway, told } = await logging();
    const { id } = await told("\0\0\r\n\r\n");
    expect(await gateway.decision(id!)).toMatchObject({
      status: 400,
      code: "bad_request",
      by: "gateway",
      method: null,
    });
    expect(gateway.stats.point.requests).toBe(1);
  });

  // Node's own codec looks at the time of day.
  it.runIf(own)("has a line when its head does not arrive in time", async () => {
    const { port, clock, lineOf } = await logging();
    const talk = await connect(port);
    talk.send("GET /a/slow HTTP/1.1\r\nHost: a\r\n");
    await new Promise((resolve) => setImmediate(resolve));
    while (!talk.text().includes("\r\n\r\n")) {
      clock.advance(5_000);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const line = await lineOf(/x-request-id: (\S+)/i.exec(talk.text())![1]);
    expect(line).toMatchObject({ status: 408, code: "request_timeout", path: "/a/slow" });
    talk.socket.destroy();
  });

  it("has no status, and client_closed, when its client leaves in the middle of the head", async () => {
    const { told, lineOf } = await logging();
    const { id } = await told("GET /a/x HTTP/1.1\r\nHost:", "ends");
    expect(await lineOf(id)).toMatchObject({ status: null, code: "client_closed" });
  });

  it("has a line as long as there are at most 100 in a second: a flood is counted, and logged once", async () => {
    let log = "";
    const { gateway, clock, told, written } = await logging(
      {},
      { log: createLog({ level: "warn", write: (line: string) => void (log += line) }) },
    );
    for (let i = 0; i < 103; i++) await told("\0\0\r\n\r\n");
    expect(gateway.stats.point.requests).toBe(103);
    await eventually(() => logLines(written()).length === 100, "100 lines");
    expect(log.match(/requests a second cannot be read/g)).toHaveLength(1);
    clock.advance(1_000);
    await told("\0\0\r\n\r\n");
    await eventually(() => logLines(written()).length === 101, "one more line");
  });
});

describe("an upload whose client leaves", () => {
  it("is logged without a status, as client_closed: no reply was read, and the client sent nothing wrong", async () => {
    let asked = 0;
    const origin = await rawBackend(() => void asked++);
    const { port, written } = await logging({}, {}, origin.port);
    const talk = await connect(port);
    talk.send("POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    await eventually(() => asked === 1, "the request at the upstream");
    talk.socket.end();
    await eventually(() => written() !== "", "the line");
    expect(logLines(written())).toMatchObject([
      { path: "/a/x", status: null, code: "client_closed", bytes_received: 3 },
    ]);
  });
});

describe("the line of a refusal", () => {
  it("names the plugin that has refused, its place, and the rule where it knows it", async () => {
    const plugins = [
      { name: "rate_limit", id: "per-ip", config: { limit_hour: 2, limit_day: 9 } },
      { name: "acl", config: { blacklist: ["127.0.0.9"] } },
      { name: "key_auth", config: { key: "k" } },
    ];
    const { port, written } = await logging({ plugins });
    await ask(port, { path: "/a/x" });
    const other = await connect(port, "127.0.0.9");
    other.send("GET /a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    await other.closed();
    for (let i = 0; i < 2; i++) await ask(port, { path: "/a/x?apiKey=k" });
    await eventually(() => logLines(written()).length === 4, "four lines");
    const [missing, address, , limited] = logLines(written());
    expect(missing).toMatchObject({ status: 401, code: "key_missing", by: "key_auth" });
    expect(missing!.plugin).toBe("global.plugins.key_auth");
    expect(missing!.rule).toBeUndefined();
    const fault = "acl: in the blacklist";
    expect(address).toMatchObject({ status: 403, code: "forbidden", by: "acl", rule: "blacklist", fault });
    expect(limited).toMatchObject({
      status: 429,
      by: "rate_limit",
      plugin: "global.plugins.per-ip",
      rule: "limit_hour",
      fault: "rate_limit: 2 per hour",
    });
  });

  it("names no plugin where an upstream or the gateway has answered", async () => {
    const { port, written } = await logging({ plugins: [{ name: "rate_limit", config: { limit_hour: 9 } }] });
    await ask(port, { path: "/nowhere" });
    await ask(port, { path: "/a/x" });
    await eventually(() => logLines(written()).length === 2, "two lines");
    expect(logLines(written()).map(({ status, by }) => [status, by])).toEqual([
      [404, undefined],
      [502, undefined],
    ]);
  });
});

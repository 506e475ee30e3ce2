import { mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import { silentLog } from "../../lib/base/log.ts";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { AccessLog, type AccessLogSettings } from "../../lib/observe/access_log.ts";
import * as combinedLog from "../../lib/observe/combined_line.ts";
import * as logFilter from "../../lib/observe/line_filter.ts";
import * as serverTiming from "../../lib/observe/server_timing.ts";
import * as logFile from "../../lib/observe/log_file.ts";
import { createGateway, definePlugin, schema } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { requestFacts } from "../support/request_facts.ts";

const call = () =>
  new Call({ id: "r1", remoteAddress: "192.0.2.1", trustedRemote: false, startedAt: 0, inform: () => {} });
const entry = (changes: Partial<RequestFacts> = {}) => requestFacts(call(), changes);
const lines = (text: string) =>
  text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);

const features = { logs: { ...combinedLog, ...logFile, ...logFilter, ...serverTiming } };

/** An access log in which everything is begun and ended at once. */
function accessLog(settings: Partial<AccessLogSettings> = {}, random: () => number = () => 0) {
  const clock = manualClock();
  const batches: string[] = [];
  const log = new AccessLog({ sink: (text) => void batches.push(text), clock, log: silentLog, features, random });
  const apply = (changes: Partial<AccessLogSettings>) =>
    log.apply({ enabled: true, format: "json", sample: 1, exclude: [], ...changes });
  apply(settings);
  log.start();
  const write = (noted: RequestFacts) => {
    if (log.isOn) log.write(noted, clock.now());
  };
  const text = () => {
    log.flush();
    return batches.join("");
  };
  return { clock, batches, log, apply, write, text, lines: () => lines(text()) };
}

/** A gateway whose access log can be read line by line. */
async function logged(...[config, options]: Parameters<typeof running>) {
  let log = "";
  const gateway = await running(config, { ...options, accessLog: (text) => void (log += text) });
  const until = async (count: number) => {
    await eventually(() => lines(log).length >= count, `${count} lines`);
    return lines(log);
  };
  return { ...gateway, until, text: () => log };
}

describe("an AccessLog", () => {
  it("passes all lines of a turn of the event loop to the sink together", async () => {
    const { batches, write } = accessLog();
    for (let i = 0; i < 3; i++) write(entry());
    expect(batches).toEqual([]);
    await eventually(() => batches.length > 0, "a batch at the server");
    expect(batches).toHaveLength(1);
    expect(lines(batches[0]!)).toHaveLength(3);
  });

  it("writes a batch of lines directly to its file, and not to the sink", async () => {
    const file = join(emptyFolder(), "access.log");
    const { batches, clock, log, write } = accessLog({ file });
    for (let i = 0; i < 3; i++) write(entry());
    expect(clock.pending).toBe(1);
    clock.advance(50);
    await eventually(() => lines(readFileSync(file, "utf8")).length === 3, "three lines in the file");
    await log.close();
    expect(batches).toEqual([]);
  });

  it("passes nothing to the sink without lines, or when it is not enabled", () => {
    const { batches, apply, log, write } = accessLog();
    log.flush();
    apply({ enabled: false });
    write(entry());
    log.flush();
    expect(batches).toEqual([]);
  });

  it.each([
    ["/healthz", false],
    ["/healthz?verbose", false],
    ["/healthz/x", true],
    ["/static/a.css", false],
    ["/static/", false],
    ["/static", true],
    ["/other", true],
  ])("exclude /healthz and /static/* decides whether %s is logged: %s", (target, logged) => {
    const log = accessLog({ exclude: ["/healthz", "/static/*"] });
    const noted = entry({ target });
    noted.call.notes.status = 500;
    log.write(noted);
    expect(log.lines()).toHaveLength(logged ? 1 : 0);
  });

  it("logs the share of requests given by sample", () => {
    let draws = 0;
    const log = accessLog({ sample: 0.3 }, () => (draws++ % 10) / 10);
    for (let i = 0; i < 20; i++) log.write(entry());
    expect(log.lines()).toHaveLength(6);
  });

  it.each([
    ["a 200", 200, null, null, false],
    ["a 404", 404, "route_not_found", null, false],
    ["a token that is refused with a reason", 401, "unauthorized", "the signature is wrong", false],
    ["a caller who may not", 403, "forbidden", null, false],
    ["a 502", 502, "upstream_reset", "socket hang up", true],
    ["an upstream's own 500", 500, null, null, true],
    ["a 200 that broke off", 200, "upstream_reset", "socket hang up", true],
  ])("sample 0 logs a line of %s only if something failed", (_what, status, code, fault, logged) => {
    const log = accessLog({ sample: 0 });
    const noted = entry();
    Object.assign(noted.call.notes, { status, code, fault });
    log.write(noted);
    expect(log.lines()).toHaveLength(logged ? 1 : 0);
  });

  it("uses another format at once, and leaves earlier lines unchanged", () => {
    const { apply, write, text } = accessLog();
    write(entry());
    apply({ format: "combined" });
    write(entry());
    expect(text()).toMatch(/^\{.*\}\n192\.0\.2\.1 - - \[.*\n$/);
  });
});

describe("the access log of a gateway", () => {
  it(
    "the access log of a gateway gets its lines when listening succeeds after its " + "file could not be opened",
    async () => {
      const file = join(emptyFolder(), "access.log");
      const gateway = createGateway({ config: oneService(9, {}, { access_log: { enabled: true, file } }) });
      mkdirSync(file);
      await expect(gateway.listen({ port: 0 })).rejects.toThrow("access_log");
      rmdirSync(file);
      const { port } = await gateway.listen({ port: 0 });
      await ask(port, { path: "/none" });
      await gateway.close();
      expect(lines(readFileSync(file, "utf8"))).toHaveLength(1);
    },
  );

  it(
    "the access log of a gateway has a line for every request, " + "answered by an upstream or by the gateway itself",
    async () => {
      const origin = await backend();
      const { port, until } = await logged(
        oneService(origin.port, { routes: [{ name: "r", path: "/x", methods: ["GET"] }] }),
      );
      const ids: unknown[] = [];
      for (const [method, path] of [
        ["GET", "/a/x"],
        ["GET", "/none"],
        ["POST", "/a/x"],
        ["GET", "/a/%zz"],
      ] as const) {
        ids.push((await ask(port, { method, path })).headers["x-request-id"]);
      }
      const found = await until(4);
      expect(found.map((line) => line.request_id)).toEqual(ids);
      expect(found.map(({ status, code }) => [status, code])).toEqual([
        [200, null],
        [404, "route_not_found"],
        [405, "method_not_allowed"],
        [400, "path_ambiguous"],
      ]);
      expect(found[0]).toMatchObject({
        service: "s",
        route: "r",
        upstream: `127.0.0.1:${origin.port}`,
        attempts: 1,
        client_ip: "127.0.0.1",
      });
      expect(found[1]).toMatchObject({ service: null, route: null, upstream: null, attempts: 0 });
    },
  );

  it("the access log of a gateway contains no query, key or credentials, wherever the client put them", async () => {
    const origin = await backend();
    const config = oneService(origin.port, {
      plugins: [{ name: "key_auth", config: { keys: [{ id: "anna", key: "hush-hush" }] } }],
    });
    const { port, until, text } = await logged(config);
    await ask(port, { path: "/a/x?apiKey=hush-hush&page=2" });
    await ask(port, { path: "/a/x", headers: { apiKey: "hush-hush" } });
    await ask(port, {
      path: "/a/x?apiKey=hush-but-wrong",
      headers: { Authorization: "Basic aHVzaA==", Cookie: "token=hush" },
    });
    const found = await until(3);
    expect(found.map(({ caller, status }) => [caller, status])).toEqual([
      ["anna", 200],
      ["anna", 200],
      [null, 401],
    ]);
    expect(text()).not.toMatch(/hush|aHVza|page=2|apiKey/i);
  });

  it(
    "the access log of a gateway counts the bytes of request and response bodies over HTTP/1.1, " +
      "with and without a length, and the bytes of its own replies",
    async () => {
      const origin = await backend((_request, response) => {
        response.write("x".repeat(70_000));
        response.end("yz");
      });
      const { port, until } = await logged(oneService(origin.port));
      await ask(port, { method: "POST", path: "/a/length", body: "four" });
      await new Promise<void>((resolve, reject) => {
        const chunked = request({ port, host: "127.0.0.1", method: "POST", path: "/a/chunked" }, (response) =>
          response.resume().on("end", resolve),
        );
        chunked.on("error", reject);
        chunked.write("one");
        chunked.end("three");
      });
      const own = await ask(port, { path: "/none" });
      await ask(port, { method: "HEAD", path: "/a/head" });
      const found = await until(4);
      expect(found.map((line) => [line.bytes_received, line.bytes_sent])).toEqual([
        [4, 70_002],
        [8, 70_002],
        [0, own.body.length],
        [0, 0],
      ]);
    },
  );

  it(
    "the access log of a gateway counts a body that request_size_limit measures, " + "and a body that is not read",
    async () => {
      const origin = await backend();
      const { port, until } = await logged(oneService(origin.port, {}, { limits: { max_body_bytes: 1_000 } }));
      await new Promise<void>((resolve, reject) => {
        const chunked = request({ port, host: "127.0.0.1", method: "POST", path: "/a/chunked" }, (response) =>
          response.resume().on("end", resolve),
        );
        chunked.on("error", reject);
        chunked.write("one");
        chunked.end("three");
      });
      await ask(port, { method: "POST", path: "/none", body: "unread" });
      expect((await until(2)).map((line) => line.bytes_received)).toEqual([8, 6]);
    },
  );

  it(
    "the access log of a gateway has the time of upstreams and the time of plugins, " + "and neither without a route",
    async () => {
      const clock = manualClock();
      const origin = await backend((_request, response) => {
        clock.advance(30);
        response.end("ok");
      });
      const slow = definePlugin({
        name: "slow",
        schema: schema.object({}),
        create: () => (next) => (exchange) => {
          clock.advance(5);
          const reply = next(exchange);
          return Promise.resolve(reply).then((later) => {
            clock.advance(2);
            return later;
          });
        },
      });
      const { port, until } = await logged(oneService(origin.port, { plugins: [{ name: "slow" }] }), {
        clock,
        plugins: [slow],
      });
      await ask(port, { path: "/a/x" });
      await ask(port, { path: "/none" });
      const found = await until(2);
      expect(found[0]).toMatchObject({ duration_ms: 37, upstream_ms: 30, plugins_ms: 7 });
      expect(found[1]).toMatchObject({ upstream_ms: null, plugins_ms: null });
    },
  );

  it("the access log of a gateway counts the time of a try whose client disconnected", async () => {
    const clock = manualClock();
    const origin = await backend(() => {});
    const { port, until } = await logged(oneService(origin.port), { clock });
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    clock.advance(40);
    client.socket.destroy();
    expect((await until(1))[0]).toMatchObject({
      code: "client_closed",
      upstream_ms: 40,
      plugins_ms: 0,
      bytes_received: 0,
      bytes_sent: null,
    });
  });

  it("the access log of a gateway has the trace id and the user agent of a request, and no other header", async () => {
    const origin = await backend();
    const { port, until, text } = await logged(oneService(origin.port));
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    await ask(port, {
      path: "/a/x",
      headers: { traceparent, "User-Agent": "curl/8", Referer: "http://h/hush", "X-Token": "hush" },
    });
    expect((await until(1))[0]).toMatchObject({ trace_id: "0af7651916cd43dd8448eb211c80319c", user_agent: "curl/8" });
    expect(text()).not.toContain("hush");
  });

  it("the access log of a gateway has client_closed and the bytes so far when the client disconnected", async () => {
    const origin = await backend(() => {});
    const { port, until } = await logged(oneService(origin.port));
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    client.socket.destroy();
    expect((await until(1))[0]).toMatchObject({
      path: "/a/x",
      status: null,
      code: "client_closed",
      upstream: `127.0.0.1:${origin.port}`,
    });
  });

  it("the access log of a gateway has the fault of an upstream, which is not sent to the client", async () => {
    const origin = await backend((request) => request.socket.destroy());
    const { port, until } = await logged(oneService(origin.port));
    const answer = await ask(port, { path: "/a/x" });
    const [line] = await until(1);
    expect(line).toMatchObject({ status: 502, code: "upstream_reset", fault: expect.any(String) as string });
    expect(answer.body.toString()).not.toContain(line!.fault as string);
  });

  it(
    "the access log of a gateway writes nothing with global.access_log.enabled false, " +
      "and writes again after a reload that enables it",
    async () => {
      const origin = await backend();
      const config = (enabled: boolean) => oneService(origin.port, {}, { access_log: { enabled } });
      const { gateway, port, until } = await logged(config(false));
      await ask(port, { path: "/a/silent" });
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      await gateway.reload(config(true));
      await ask(port, { path: "/a/spoken" });
      expect((await until(1)).map(({ path }) => path)).toEqual(["/a/spoken"]);
    },
  );
});

describe("an upstream that fails in the middle of a body", () => {
  it(
    "an upstream that fails in the middle of a body appears in the log as the cause, " +
      "and the client whose response broke off does not",
    async () => {
      const origin = await backend((_request, response) => {
        response.writeHead(200, { "Content-Length": "10" });
        response.write("abc", () => response.destroy());
      });
      const { port, until } = await logged(oneService(origin.port));
      await expect(ask(port, { path: "/a/x" })).rejects.toThrow();
      expect((await until(1))[0]).toMatchObject({
        status: 200,
        code: "upstream_reset",
        fault: expect.any(String) as string,
      });
    },
  );
});

it(
  "an access log that was switched off, or whose file is closed, writes no line of a request that ends then, " +
    "neither to the file nor elsewhere",
  async () => {
    const [file, batches] = [join(emptyFolder(), "access.log"), [] as string[]];
    const clock = manualClock();
    const log = new AccessLog({ sink: (text) => void batches.push(text), clock, log: silentLog, features });
    const on = { enabled: true, format: "json", sample: 1, exclude: [], file } as const;
    log.apply(on);
    log.start();
    log.write(entry(), clock.now());
    log.apply({ ...on, enabled: false });
    log.write(entry(), clock.now());
    log.apply(on);
    await log.close();
    log.write(entry(), clock.now());
    log.flush();
    expect(batches).toEqual([]);
    await eventually(() => lines(readFileSync(file, "utf8")).length > 0, "the line of the first request");
    expect(lines(readFileSync(file, "utf8"))).toHaveLength(1);
  },
);

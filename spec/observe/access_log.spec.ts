import { describe, expect, it } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import { createAccessLog, type AccessEntry } from "../../lib/observe/access_log.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";

const call = () => new Call({ id: "r1", remoteAddress: "192.0.2.1", trustedRemote: false, startedAt: 0, inform: () => {} });
const entry = (changes: Partial<AccessEntry> = {}): AccessEntry => ({
  call: call(),
  method: "GET",
  target: "/a/b",
  httpVersion: "1.1",
  clientAddress: "192.0.2.1",
  ...changes,
});
const lines = (text: string) => text.split("\n").slice(0, -1).map((line) => JSON.parse(line) as Record<string, unknown>);

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

describe("createAccessLog", () => {
  it("writes one line of JSON a request, with these fields in this order", () => {
    let text = "";
    const clock = manualClock();
    const log = createAccessLog((more) => void (text += more), clock);
    const noted = entry();
    Object.assign(noted.call.notes, { service: "s", route: "r", status: 200, upstream: "u", attempts: 1, identity: "anna" });
    clock.advance(12.345);
    log.write(noted);
    log.flush();
    expect(text).toBe(
      '{"time":"2026-01-01T00:00:00.012Z","request_id":"r1","client_ip":"192.0.2.1","method":"GET","path":"/a/b","protocol":"HTTP/1.1",' +
        '"status":200,"code":null,"service":"s","route":"r","upstream":"u","attempts":1,"caller":"anna","duration_ms":12.35}\n',
    );
  });

  it("tells the fault of an error, and none of a client that went away", () => {
    let text = "";
    const log = createAccessLog((more) => void (text += more), manualClock());
    const [failed, left] = [entry(), entry()];
    failed.call.fail("upstream_reset", "socket hang up");
    left.call.abort();
    left.call.fail("upstream_reset", "the client went away");
    log.write(failed);
    log.write(left);
    log.flush();
    expect(lines(text)[0]).toMatchObject({ code: "upstream_reset", fault: "socket hang up" });
    expect(lines(text)[1]).toMatchObject({ code: "client_closed" });
    expect(lines(text)[1]).not.toHaveProperty("fault");
  });

  it.each([
    ["/a?apiKey=secret", "/a"],
    ["/a#fragment?x", "/a"],
    ["/a?b#c", "/a"],
    ["http://user:secret@h.example/a/b?c", "/a/b"],
    ["http://user:secret@h.example", "/"],
    ["http://user:secret@h.example?q=/secret", "/"],
    ["*", "*"],
    ['/"\\\u0001', '/"\\\u0001'],
  ])("of the target %j, %j is the path", (target, path) => {
    let text = "";
    const log = createAccessLog((more) => void (text += more), manualClock());
    log.write(entry({ target }));
    log.flush();
    expect(lines(text)[0]!.path).toBe(path);
    expect(text).not.toContain("secret");
  });

  it("hands lines over together, when the event loop comes round", async () => {
    const batches: string[] = [];
    const log = createAccessLog((text) => void batches.push(text), manualClock());
    for (let i = 0; i < 3; i++) log.write(entry());
    expect(batches).toEqual([]);
    await eventually(() => batches.length > 0);
    expect(batches).toHaveLength(1);
    expect(lines(batches[0]!)).toHaveLength(3);
  });

  it("hands them over at once when more than 64 Ki characters have come together", () => {
    const batches: string[] = [];
    const log = createAccessLog((text) => void batches.push(text), manualClock());
    const long = entry({ target: `/${"x".repeat(8000)}` });
    for (let i = 0; i < 9; i++) log.write(long);
    expect(batches).toHaveLength(1);
    expect(lines(batches[0]!).length).toBeLessThanOrEqual(9);
    log.flush();
    expect(batches.flatMap(lines)).toHaveLength(9);
  });

  it("hands over nothing where there is nothing", () => {
    const batches: string[] = [];
    const log = createAccessLog((text) => void batches.push(text), manualClock());
    log.flush();
    expect(batches).toEqual([]);
  });
});

describe("the access log of a gateway", () => {
  it("has a line for every request, answered by an upstream or by the gateway itself", async () => {
    const origin = await backend();
    const { port, until } = await logged(oneService(origin.port, { routes: [{ name: "r", path: "/x", methods: ["GET"] }] }));
    const ids: unknown[] = [];
    for (const [method, path] of [["GET", "/a/x"], ["GET", "/none"], ["POST", "/a/x"], ["GET", "/a/%zz"]] as const) {
      ids.push((await ask(port, { method, path })).headers["x-request-id"]);
    }
    const found = await until(4);
    expect(found.map((line) => line.request_id)).toEqual(ids);
    expect(found.map(({ status, code }) => [status, code])).toEqual([[200, null], [404, "route_not_found"], [405, "method_not_allowed"], [400, "path_ambiguous"]]);
    expect(found[0]).toMatchObject({ service: "s", route: "r", upstream: `127.0.0.1:${origin.port}`, attempts: 1, client_ip: "127.0.0.1" });
    expect(found[1]).toMatchObject({ service: null, route: null, upstream: null, attempts: 0 });
  });

  it("holds no query, no key, no credentials, in whatever place they came", async () => {
    const origin = await backend();
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { keys: [{ id: "anna", key: "hush-hush" }] } }] });
    const { port, until, text } = await logged(config);
    await ask(port, { path: "/a/x?apiKey=hush-hush&page=2" });
    await ask(port, { path: "/a/x", headers: { apiKey: "hush-hush" } });
    await ask(port, { path: "/a/x?apiKey=hush-but-wrong", headers: { Authorization: "Basic aHVzaA==", Cookie: "token=hush" } });
    const found = await until(3);
    expect(found.map(({ caller, status }) => [caller, status])).toEqual([["anna", 200], ["anna", 200], [null, 401]]);
    expect(text()).not.toMatch(/hush|aHVza|page=2|apiKey/i);
  });

  it("says client_closed of a request whose client went away, and how far it had got", async () => {
    const origin = await backend(() => {});
    const { port, until } = await logged(oneService(origin.port));
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await eventually(() => origin.seen.length === 1);
    client.socket.destroy();
    expect((await until(1))[0]).toMatchObject({ path: "/a/x", status: null, code: "client_closed", upstream: `127.0.0.1:${origin.port}` });
  });

  it("names the fault of an upstream, which the client is not told", async () => {
    const origin = await backend((request) => request.socket.destroy());
    const { port, until } = await logged(oneService(origin.port));
    const answer = await ask(port, { path: "/a/x" });
    const [line] = await until(1);
    expect(line).toMatchObject({ status: 502, code: "upstream_reset", fault: expect.any(String) as string });
    expect(answer.body.toString()).not.toContain(line!.fault as string);
  });

  it("is silent with global.access_log.enabled false, and speaks again after a reload that enables it", async () => {
    const origin = await backend();
    const config = (enabled: boolean) => oneService(origin.port, {}, { access_log: { enabled } });
    const { gateway, port, until } = await logged(config(false));
    await ask(port, { path: "/a/silent" });
    await eventually(() => gateway.inFlight === 0);
    gateway.reload(config(true));
    await ask(port, { path: "/a/spoken" });
    expect((await until(1)).map(({ path }) => path)).toEqual(["/a/spoken"]);
  });
});

describe("an upstream that breaks in the middle of a body", () => {
  it("is what the log blames, not the client whose response broke with it", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(200, { "Content-Length": "10" });
      response.write("abc", () => response.destroy());
    });
    const { port, until } = await logged(oneService(origin.port));
    await expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    expect((await until(1))[0]).toMatchObject({ status: 200, code: "upstream_reset", fault: expect.any(String) as string });
  });
});

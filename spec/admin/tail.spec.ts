import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { TailStreams } from "../../lib/admin/tail_request.ts";
import { FILTER_FIELDS, readRequestFilter } from "../../lib/observe/request_filter.ts";
import { OF_ADMIN } from "../../lib/cli/admin_requests.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { workerReportsOf, type WorkerReports } from "../../lib/report/worker_reports.ts";
import { Call } from "../../lib/http/exchange.ts";
import { createGateway, type Gateway as Shown } from "../../lib/index.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { manualClock } from "../support/clock.ts";
import { oneService } from "../support/gateway.ts";
import { eventually } from "../support/raw_client.ts";
import { threadsOf } from "../support/threads.ts";
import { cookieOf, startAdmin, UI, type AdminChanges } from "./harness.ts";
import { AS_VIEWER, VIEWER } from "./writable.ts";

const open: Readable[] = [];
afterEach(() => open.splice(0).forEach((each) => each.destroy()));

function gatewayWith(clock = manualClock()) {
  const gateway = createGateway({ config: oneService(9), clock });
  onTestFinished(async () => void (await gateway.close(0)));
  const { accessLog } = Gateway.internalsOf(gateway as Gateway);
  const get = (url = "/a/x", agent = "spec") =>
    gateway.inject({ url, headers: { Host: "shop.example", "User-Agent": agent } });
  return { gateway, clock, accessLog, get };
}

/** The lines that a stream has sent. */
function read(body: Readable) {
  open.push(body);
  let text = "";
  let ended = false;
  body
    .on("error", () => {})
    .on("close", () => (ended = true))
    .on("data", (part: Buffer | string) => void (text += part.toString()));
  const batches = () =>
    Array.from(
      text.matchAll(/^event: lines\ndata: (.*)\n\n/gm),
      ([, json]) => JSON.parse(json!) as { matched: number; lines: Record<string, unknown>[] },
    );
  return {
    text: () => text,
    isEnded: () => ended,
    batches,
    lines: () => batches().flatMap(({ lines }) => lines),
    matched: () => batches().reduce((sum, { matched }) => sum + matched, 0),
  };
}

async function running(changes: AdminChanges = {}) {
  const all = gatewayWith();
  const admin = await startAdmin({
    ...{ viewer: VIEWER, clock: all.clock, gateway: all.gateway as unknown as Shown },
    ...changes,
  });
  const [cookie, viewer] = [await admin.session(), cookieOf(await admin.login(AS_VIEWER))];
  const tail = (query = "", headers: Record<string, string> = { cookie }) =>
    new Promise<IncomingMessage>(
      (resolve, reject) =>
        void request(
          { port: admin.port, host: "127.0.0.1", path: `/gateway/tail${query}`, headers, agent: false },
          resolve,
        )
          .on("error", reject)
          .end(),
    );
  return { ...all, ...admin, cookie, viewer, tail };
}

const FIELDS = `The query can have ${FILTER_FIELDS.join(", ")}.`;
const STATUS = '"status" must be a status (404), a class of statuses (4xx), or none, or several of them with commas.';

describe("GET /gateway/tail", () => {
  it("sends the lines of requests that end, those that the query asks for, and begins with nothing", async () => {
    const { clock, get, tail, accessLog } = await running();
    expect(accessLog.isOn).toBe(false);
    const [all, some] = [read(await tail()), read(await tail("?path=%2Fa%2Fb&status=5xx&service=s"))];
    await eventually(() => all.text() !== "" && some.text() !== "");
    for (const url of ["/a/a", "/a/b", "/nowhere/b"]) await get(url);
    clock.advance(500);
    await eventually(() => all.lines().length === 3 && some.lines().length === 1);
    expect(all.lines().map(({ path, status }) => [path, status])).toEqual([
      ["/a/a", 502],
      ["/a/b", 502],
      ["/nowhere/b", 404],
    ]);
    expect(some.lines()).toMatchObject([
      { path: "/a/b", service: "s", route: "/{rest*}", code: "upstream_connect_failed" },
    ]);
  });

  it.each([
    ["?statuses=4xx", FIELDS],
    ["?__proto__=x", FIELDS],
    ["?status=6xx", STATUS],
    ["?status=4xx,", STATUS],
    ["?service=", '"service" must be a text, or left out.'],
    ["?min_ms=-1", '"min_ms" must be milliseconds, such as 250 or 0.5.'],
    ["?max_ms=1e3", '"max_ms" must be milliseconds, such as 250 or 0.5.'],
    ["?min_ms=2&max_ms=1", '"min_ms" must not be above "max_ms".'],
    [`?code=${"x,".repeat(50)}`, '"code" must be at most 50 values.'],
    ["?status=404&status=500", '"status" must be there once, with at most 1024 characters.'],
    [`?path=${"x".repeat(1_025)}`, '"path" must be there once, with at most 1024 characters.'],
  ])("refuses the query %s", async (query, detail) => {
    expect(readRequestFilter(new URLSearchParams(query))).toBe(detail);
    const { ask, cookie } = await running();
    expect(await ask("GET", `/gateway/tail${query}`, { headers: { cookie } })).toMatchObject({
      status: 400,
      json: { code: "request_invalid", detail },
    });
  });

  it("is for sessions and callers with credentials; a stream of a session ends with it", async () => {
    const { ask, cookie, tail, accessLog } = await running();
    expect((await ask("GET", "/gateway/tail")).status).toBe(401);
    const stream = read(await tail());
    await ask("DELETE", "/logout", { headers: { cookie } });
    await eventually(() => stream.isEnded());
    expect(accessLog.isOn).toBe(false);
  });

  it(
    "serves 32 readers, 24 of one user at most, so that others have places: " +
      "the next is refused until one has left",
    async () => {
      const { tail, cookie, viewer } = await running();
      const fill = async (headers: Record<string, string>, count: number) => {
        const streams = await Promise.all(Array.from({ length: count }, () => tail("", headers)));
        streams.forEach((each) => read(each));
        const refused = await tail("", headers);
        expect([
          streams.map(({ statusCode }) => statusCode),
          refused.statusCode,
          refused.headers["retry-after"],
        ]).toEqual([Array.from({ length: count }, () => 200), 503, "5"]);
        refused.resume();
        return streams;
      };
      await fill({ cookie: viewer }, 24);
      const [first] = await fill({ cookie }, 8);
      first!.destroy();
      await expect
        .poll(async () => {
          const next = await tail();
          open.push(next);
          return next.statusCode;
        })
        .toBe(200);
    },
  );

  it("for HEAD is a head without a stream, and other methods get 405", async () => {
    const { ask, cookie, accessLog } = await running();
    const headers = { cookie };
    const head = await ask("HEAD", "/gateway/tail", { headers });
    expect([head.status, head.headers["content-type"], head.headers["cache-control"], head.text]).toEqual([
      ...[200, "text/event-stream"],
      ...["no-store", ""],
    ]);
    expect(accessLog.isOn).toBe(false);
    const post = await ask("POST", "/gateway/tail", { headers });
    expect([post.status, post.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
  });

  it("is readable by pages of the allowed origins with their cookie", async () => {
    const { tail, cookie } = await running();
    const [own, foreign] = [
      await tail("", { cookie, origin: UI }),
      await tail("", { cookie, origin: "http://evil.example" }),
    ];
    open.push(own, foreign);
    expect(own.headers).toMatchObject({
      "access-control-allow-origin": UI,
      "access-control-allow-credentials": "true",
      vary: "Origin",
    });
    expect(foreign.headers["access-control-allow-origin"]).toBeUndefined();
  });

  it("ends within a second when its session expires, not before", async () => {
    const { clock, tail } = await running({ sessionTtlS: 10 });
    const stream = read(await tail());
    await eventually(() => stream.text() !== "");
    clock.advance(9_000);
    expect(stream.isEnded()).toBe(false);
    clock.advance(2_000);
    await eventually(() => stream.isEnded());
    expect(clock.pending).toBe(0);
  });

  it("is refused when the admin interface closes before what it needs is loaded", async () => {
    let asked = false;
    let load = () => {};
    const loading = new Promise<void>((resolve) => (load = resolve));
    const tail = async () => {
      asked = true;
      await loading;
      return OF_ADMIN.tail();
    };
    const { admin, ask, session, inTime } = await startAdmin({ onRequest: { ...OF_ADMIN, tail } });
    const answer = ask("GET", "/gateway/tail", { headers: { cookie: await session() } });
    await eventually(() => asked);
    const closed = admin.close();
    load();
    expect(await answer).toMatchObject({ status: 503, json: { detail: "The gateway is being shut down." } });
    await inTime(closed);
  });

  it("ends with the admin interface", async () => {
    const { admin, tail, inTime } = await running();
    const stream = read(await tail());
    await inTime(admin.close());
    await eventually(() => stream.isEnded());
  });
});

describe("the streams of the tail", () => {
  it(
    "hold nothing for a reader that does not read, count what it misses, tell it when it reads on, " +
      "and cut it off after half a minute",
    async () => {
      const { gateway, clock, get } = gatewayWith();
      const streams = new TailStreams({ clock, gateway });
      const [quick, slow] = [
        streams.open(() => true, "/gateway/tail", "anna") as Readable,
        streams.open(() => true, "/gateway/tail", "anna") as Readable,
      ];
      const [fast, late] = [read(quick), read(slow)];
      slow.pause();
      for (let i = 0; i < 20; i++) {
        await get("/a/x", "x".repeat(256));
        clock.advance(500);
      }
      await eventually(() => fast.lines().length === 20);
      expect(slow.readableLength).toBeLessThan(100);
      slow.resume();
      await get();
      clock.advance(500);
      await eventually(() => late.batches().length === 1);
      expect(late.batches()).toMatchObject([{ matched: 21, lines: [{ path: "/a/x" }] }]);
      slow.pause();
      clock.advance(500);
      clock.advance(30_000);
      await eventually(() => late.isEnded());
      expect(fast.isEnded()).toBe(false);
      streams.close();
      await once(quick, "close");
      expect(streams.stateFor({ user: "anna" })).toBe("ended");
    },
  );

  it("stay bounded under a flood: 20,000 requests a second, of which a reader gets 50 lines", async () => {
    const { gateway, clock, accessLog } = gatewayWith();
    const streams = new TailStreams({ clock, gateway });
    const [stalled, quick] = [
      streams.open(() => true, "/gateway/tail", "anna") as Readable,
      streams.open(() => true, "/gateway/tail?path=flood", "anna") as Readable,
    ];
    const stream = read(quick);
    open.push(stalled.pause());
    const call = new Call({
      id: "r1",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    });
    call.notes.status = 200;
    const entry = {
      call,
      method: "GET",
      target: "/flood",
      httpVersion: "1.1",
      scheme: "http",
      authority: "x",
      clientAddress: "192.0.2.1",
      headers: [],
    } as const;
    for (let second = 0; second < 5; second++) {
      for (let half = 0; half < 2; half++) {
        for (let i = 0; i < 10_000; i++) accessLog.write(entry, clock.now());
        clock.advance(500);
        await new Promise(setImmediate);
      }
    }
    await eventually(() => stream.matched() === 100_000);
    expect(stream.lines()).toHaveLength(250);
    expect(stalled.readableLength).toBeLessThan(70_000);
    streams.close();
  });

  it("are of all workers, which share the lines of a reader, and hear when nobody reads any more", async () => {
    const { clock } = gatewayWith();
    const gateway = new Gateway({ config: oneService(9), clock, modules: withAllFeatures() }, threadsOf(2)(-1));
    onTestFinished(async () => void (await gateway.close(0)));
    const { accessLog } = Gateway.internalsOf(gateway);
    const reports = workerReportsOf(Gateway.internalsOf(gateway));
    const told: Parameters<NonNullable<WorkerReports["tail"]>>[] = [];
    reports!.tail = (...given) => void told.push(given);
    const streams = new TailStreams({ clock, gateway });
    const body = streams.open(() => true, "/gateway/tail?status=404", "anna") as Readable;
    const stream = read(body);
    const [readers, receive] = told[0]!;
    expect(readers).toEqual([{ id: 1, filter: { status: "404" }, most: 13 }]);
    receive([
      { id: 1, matched: 7, lines: ['{"path":"/a"}'] },
      { id: 99, matched: 1, lines: ["{}"] },
    ]);
    receive([{ id: 1, matched: 2, lines: [] }]);
    await eventually(() => stream.matched() === 9);
    // The main thread answers no requests.
    expect([stream.lines(), accessLog.isOn]).toEqual([[{ path: "/a" }], false]);
    body.destroy();
    await eventually(() => told.at(-1)![0].length === 0);
    clock.advance(1_000);
    streams.close();
  });
});

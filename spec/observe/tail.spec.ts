import { describe, expect, it } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { Call, type Notes } from "../../lib/http/exchange.ts";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { AccessLog, type AccessLogSettings } from "../../lib/observe/access_log.ts";
import * as combinedLog from "../../lib/observe/combined_line.ts";
import * as logFilter from "../../lib/observe/line_filter.ts";
import * as serverTiming from "../../lib/observe/server_timing.ts";
import * as logFile from "../../lib/observe/log_file.ts";
import type { RequestFilter } from "../../lib/observe/request_filter.ts";
import { Tail, type TailBatch } from "../../lib/observe/tail.ts";
import { manualClock } from "../support/clock.ts";
import { tried } from "../support/remembered.ts";
import { requestFacts } from "../support/request_facts.ts";

const OFF: AccessLogSettings = { enabled: false, format: "json", sample: 1, exclude: [] };

function tailed(...filters: readonly RequestFilter[]) {
  const clock = manualClock();
  let settings = OFF;
  let written = "";
  const log = new AccessLog({
    sink: (lines) => void (written += lines),
    clock,
    log: silentLog,
    features: { logs: { ...combinedLog, ...logFile, ...logFilter, ...serverTiming } },
  });
  const apply = (changes: Partial<AccessLogSettings>) => log.apply((settings = { ...OFF, ...changes }));
  apply({});
  log.start();
  const batches: TailBatch[] = [];
  const tail = new Tail(
    clock,
    log,
    () => settings,
    (sent) => void batches.push(...structuredClone(sent)),
  );
  tail.readers = filters.map((filter, i) => ({ id: i + 1, filter, most: 3 }));
  const end = (facts: Partial<RequestFacts> = {}, notes: Partial<Notes> = {}) => {
    const call = new Call({
      id: "r1",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    });
    Object.assign(call.notes, { status: 200, ...notes });
    if (log.isOn) log.write(requestFacts(call, facts), clock.now());
  };
  const seen = () => {
    clock.advance(500);
    return batches
      .splice(0)
      .map(
        ({ id, matched, lines }) =>
          [id, matched, lines.map((line) => JSON.parse(line) as Record<string, unknown>)] as const,
      );
  };
  const text = () => {
    log.flush();
    return written;
  };
  return { clock, log, tail, apply, end, seen, text };
}

describe("the tail of a thread", () => {
  it.each<readonly [string, RequestFilter, readonly number[]]>([
    ["everything", {}, [0, 1, 2, 3, 4]],
    ["a service", { service: "shop" }, [0, 1]],
    ["a route", { service: "shop", route: "items" }, [1]],
    ["a class of statuses", { status: "4xx" }, [2, 3]],
    ["a status", { status: "404" }, [3]],
    ["clients that left before an answer", { status: "none" }, [4]],
    ["a method", { method: "POST" }, [1]],
    ["a network", { client: "10." }, [3]],
    ["paths that begin so", { path: "/items" }, [2]],
    ["part of a path", { path: "items" }, [1, 2]],
    ["several classes and statuses", { status: "2xx,404" }, [0, 1, 3]],
    ["a code", { code: "client_closed,token_invalid" }, [2]],
    ["a client, not those whose addresses begin so", { client: "10.1.2" }, []],
    ["an upstream that was asked, also before another one", { upstream: "a" }, [1]],
    ["a caller", { caller: "ada" }, [3]],
    ["who has answered", { by: "upstream" }, [1]],
    ["requests that took so long", { min_ms: "500", max_ms: "1000.5" }, [1, 2]],
    ["part of a query, which no line has", { path: "hush" }, []],
    ["all of several", { status: "4xx", path: "items" }, [2]],
  ])("has lines of %s", (_title, filter, expected) => {
    const { end, seen } = tailed({ ...filter });
    const requests: readonly (readonly [Partial<RequestFacts>, Partial<Notes>])[] = [
      [{}, { service: "shop", route: "home" }],
      [
        { method: "POST", target: "/shop/items?token=hush" },
        { service: "shop", route: "items", upstream: "b", tried: tried("b", 200, 2, tried("a", null, 1)) },
      ],
      [{ target: "http://user:hush@x/items/9" }, { status: 403, code: "token_invalid" }],
      [{ clientAddress: "10.1.2.3" }, { status: 404, identity: "ada" }],
      [{}, { status: null }],
    ];
    const shown = requests.flatMap(([facts, notes], i) => {
      end(facts, notes);
      return seen().map(([, matched, lines]) => [i, matched, lines.length]);
    });
    expect(shown).toEqual(expected.map((i) => [i, 1, 1]));
  });

  it("gives each reader so many lines of each turn, and the number of all", () => {
    const { end, seen } = tailed({}, { status: "500" }, { status: "404" });
    for (let i = 0; i < 50; i++) end({}, { status: i < 10 ? 500 : 200 });
    expect(seen().map(([id, matched, lines]) => [id, matched, lines.length])).toEqual([
      [1, 50, 3],
      [2, 10, 3],
    ]);
    end();
    expect(seen().map(([id, matched, lines]) => [id, matched, lines.length])).toEqual([[1, 1, 1]]);
    expect(seen()).toEqual([]);
  });

  it("holds little of lines that are very long: at most 64 KB for a reader, and none of more than 8 KB", () => {
    const { clock, log, tail, end } = tailed();
    const batches: TailBatch[] = [];
    const wide = new Tail(
      clock,
      log,
      () => OFF,
      (sent) => void batches.push(...sent),
    );
    tail.readers = [];
    wide.readers = [{ id: 1, filter: {}, most: 1_000 }];
    for (let i = 0; i < 100; i++) end({ target: `/${"a".repeat(7_000)}` });
    for (let i = 0; i < 100; i++) end({ target: `/${"ä".repeat(4_000)}\u0001`.repeat(2) });
    clock.advance(500);
    expect(batches[0]!.matched).toBe(200);
    expect(batches[0]!.lines.join("").length).toBeLessThan(80_000);
  });

  it("escapes and redacts as the access log does: control characters, markup, tokens, credentials", () => {
    const { end, seen } = tailed({});
    const jwt = `eyJ${"a".repeat(20)}.eyJ${"b".repeat(20)}.${"c".repeat(20)}`;
    end({
      target: `/x\u0007\u2028<img onerror=alert(1)>/${jwt};jsessionid=hush?key=hush`,
      headers: ["User-Agent", "<script>\r\ndata: x\u001b[31m", "Authorization", "hush"],
    });
    const [[, , [line]]] = seen() as [[number, number, [Record<string, string>]]];
    expect(line.user_agent).toBe("<script>\r\ndata: x\u001b[31m");
    expect(line.path).toBe("/x\u0007\u2028<img onerror=alert(1)>/[redacted]");
    expect(JSON.stringify(line)).not.toMatch(/hush|bbbb/);
  });

  it("does not let a search for part of a path tell what is redacted", () => {
    const { end, seen } = tailed({ path: "hush" }, { path: "jsessionid=" }, { path: "/c;jsessionid=[redacted]" });
    end({ target: "/c;jsessionid=hush" });
    expect(seen().map(([id]) => id)).toEqual([2, 3]);
  });

  it("has nothing of paths that the log excludes, also after a reload, and all of what it samples", () => {
    const { apply, end, seen } = tailed({});
    apply({ enabled: true, sample: 0.000_001, exclude: ["/healthz"] });
    end({ target: "/healthz" });
    expect(seen()).toEqual([]);
    end();
    expect(seen()).toHaveLength(1);
    apply({ exclude: ["/a/*"] });
    end();
    expect(seen()).toEqual([]);
    end({ target: "/healthz" });
    expect(seen()).toHaveLength(1);
  });

  it(
    "turns on while the log is off, which then writes nothing, and is off again once nobody reads; " +
      "a log that is on goes on",
    () => {
      const { clock, apply, log, tail, end, seen, text } = tailed({});
      expect(log.isOn).toBe(true);
      end();
      expect([seen().length, text()]).toEqual([1, ""]);
      tail.readers = [];
      expect([log.isOn, clock.pending]).toEqual([false, 0]);
      apply({ enabled: true });
      tail.readers = [{ id: 9, filter: {}, most: 1 }];
      end();
      expect([seen().length, text().split("\n").length]).toEqual([1, 2]);
      tail.readers = [];
      end();
      expect([log.isOn, seen().length, text().split("\n").length, clock.pending]).toEqual([true, 0, 3, 0]);
    },
  );

  it("keeps what it has for one reader when another one comes or goes", () => {
    const { tail, end, seen } = tailed({});
    end();
    tail.readers = [
      { id: 1, filter: {}, most: 3 },
      { id: 2, filter: {}, most: 3 },
    ];
    end();
    expect(seen().map(([id, matched]) => [id, matched])).toEqual([
      [1, 2],
      [2, 1],
    ]);
  });
});

import { describe, expect, it } from "vitest";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { Call } from "../../lib/http/exchange.ts";
import type { Handler, Middleware } from "../../lib/http/handler.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { createSampler } from "../../lib/observe/sampling.ts";
import { scopeWriter } from "../../lib/observe/span_json.ts";
import { Tracer } from "../../lib/observe/trace.ts";
import { manualClock } from "../support/clock.ts";
import { readExport } from "../support/collector.ts";
import { madeUpExchange } from "../support/exercise.ts";

const OK: Reply = { status: 200, headers: [], body: null };
const UPSTREAM = { id: "u", host: "h", port: 1, authority: "h:1", pool: { options: { protocol: "http" } } } as const;
const PLUGIN = { name: "p", scope: { level: "route", id: null } };

function tracer(sampler: Parameters<typeof createSampler>[0] = "always_on") {
  const clock = manualClock();
  const texts: string[] = [];
  const sink = { isFull: false, add: (text: string) => void texts.push(text) };
  const made = new Tracer({ clock, sampler: createSampler(sampler, 1), sink });
  const begin = (changes: Partial<RequestFacts> = {}): Call => {
    const call = new Call({
      id: "r",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: clock.now(),
      inform: () => {},
    });
    const parts = {
      method: "GET",
      target: "/x",
      httpVersion: "1.1",
      scheme: "http",
      authority: "h",
      clientAddress: "192.0.2.9",
      headers: [],
    } as const;
    made.begin({ call, ...parts, ...changes });
    return call;
  };
  const spans = () => readExport(scopeWriter({ "service.name": "s" }, "Spans")(texts).toString()).spans;
  return { clock, sink, texts, tracer: made, begin, spans };
}

describe("the span of a request", () => {
  it("the span of a request reaches the exporter once, with the time from the request's head to its end", () => {
    const { clock, tracer: own, begin, texts, spans } = tracer();
    const call = begin();
    clock.advance(12.5);
    own.end(call.notes);
    own.end(call.notes);
    expect(texts).toHaveLength(1);
    expect([spans()[0]!.start, spans()[0]!.end - spans()[0]!.start]).toEqual([
      BigInt(Date.UTC(2026, 0, 1)) * 1_000_000n,
      12_500_000n,
    ]);
  });

  it("the span of a request reaches the exporter when the request ends in the middle of a plugin", () => {
    const { tracer: own, begin, spans } = tracer();
    const call = begin();
    void own.spanned(PLUGIN, () => () => new Promise(() => {}))(() => OK)(madeUpExchange({ call }));
    own.end(call.notes);
    expect(spans()).toMatchObject([{ kind: 2 }]);
  });

  it.each([
    ["shop.example", "http", "shop.example", 80n],
    ["shop.example", "https", "shop.example", 443n],
    ["shop.example:8443", "https", "shop.example", 8443n],
    ["[2001:db8::1]", "http", "2001:db8::1", 80n],
    ["[2001:db8::1]:81", "http", "2001:db8::1", 81n],
    ["", "http", undefined, undefined],
    ["user:secret@shop.example", "http", undefined, undefined],
  ] as const)(
    "the span of a request for %j over %s names the server %s and port %s",
    (authority, scheme, address, port) => {
      const { tracer: own, begin, spans } = tracer();
      own.end(begin({ authority, scheme }).notes);
      expect([spans()[0]!.attributes["server.address"], spans()[0]!.attributes["server.port"]]).toEqual([
        address,
        port,
      ]);
    },
  );

  it("the span of a request truncates long values of clients after their secrets are removed", () => {
    const { tracer: own, begin, spans, texts } = tracer();
    own.end(
      begin({
        target: `/${"p".repeat(2000)}?q=${"x".repeat(1011)}&apiKey=hush`,
        headers: ["User-Agent", "u".repeat(2000)],
      }).notes,
    );
    const { attributes } = spans()[0]!;
    expect(["url.path", "url.query", "user_agent.original"].map((name) => String(attributes[name]).length)).toEqual([
      1024, 1024, 1024,
    ]);
    expect(texts[0]).not.toContain("hush");
  });

  it("the span of a request does not reach the sink while the sink is full", () => {
    const { sink, tracer: own, begin, texts } = tracer();
    sink.isFull = true;
    own.end(begin().notes);
    expect(texts).toEqual([""]);
  });
});

describe("a request that is not recorded", () => {
  it("a request that is not recorded needs an id only for each traceparent that is sent", () => {
    let drawn = 0;
    const ids = { trace: () => "a".repeat(32), span: () => String(++drawn).padStart(16, "0") };
    const { clock, sink, texts } = tracer();
    const own = new Tracer({ clock, sampler: createSampler("always_off", 1), sink, ids });
    const { call } = madeUpExchange();
    own.begin({
      call,
      method: "GET",
      target: "/x",
      httpVersion: "1.1",
      scheme: "http",
      authority: "h",
      clientAddress: "192.0.2.9",
      headers: [],
    });
    const tries = [0, 1].map((resends) => call.notes.span!.try(madeUpExchange({ call }), UPSTREAM, resends, 0));
    expect(drawn).toBe(0);
    expect(tries.map(({ traceparent }) => traceparent)).toEqual(
      [1, 2].map((id) => `00-${"a".repeat(32)}-000000000000000${id}-00`),
    );
    for (const each of tries) each.ended(200, null, 1);
    own.end(call.notes);
    expect(texts).toEqual([]);
  });
});

describe("a plugin in a span", () => {
  const within = (middleware: Middleware, sampler?: Parameters<typeof createSampler>[0]) => {
    const made = tracer(sampler);
    const call = made.begin();
    const exchange = madeUpExchange({ call });
    const handler = (next: Handler) => made.tracer.spanned(PLUGIN, middleware)(next);
    return { ...made, call, exchange, handler };
  };

  it("a plugin in a span returns the same reply, and throws the same error", async () => {
    const error = new Error("its own");
    const promise = Promise.resolve(OK);
    const { exchange, handler, call, texts } = within((next) => (given) => next(given));
    const outer = call.notes.span;
    expect(handler(() => OK)(exchange)).toBe(OK);
    expect(handler(() => promise)(exchange)).toBe(promise);
    await promise;
    expect(() =>
      handler(() => {
        throw error;
      })(exchange),
    ).toThrow(error);
    await expect(handler(() => Promise.reject(error))(exchange)).rejects.toBe(error);
    expect(call.notes.span).toBe(outer);
    expect(texts).toHaveLength(4);
  });

  it("a plugin in a span sees its own span, which is the parent of the next plugin's span", () => {
    const { exchange, handler, call } = within((next) => (given) => next(given));
    const outer = call.notes.span!;
    let inner: string | undefined;
    handler(() => {
      inner = call.notes.span!.traceparent;
      return OK;
    })(exchange);
    expect(inner).toMatch(new RegExp(`^00-${outer.traceId}-`));
    expect(inner).not.toBe(outer.traceparent);
  });

  it("a plugin in a span has no span when the trace is not recorded, or without tracing", () => {
    const unsampled = within((next) => (given) => next(given), "always_off");
    const seen: unknown[] = [];
    unsampled.handler(() => {
      seen.push(unsampled.call.notes.span);
      return OK;
    })(unsampled.exchange);
    expect(seen).toEqual([unsampled.call.notes.span]);
    expect(unsampled.tracer.spanned(PLUGIN, (next) => next)(() => OK)(madeUpExchange())).toBe(OK);
    expect(unsampled.texts).toEqual([]);
  });

  it("a plugin in a span leaves a plugin without a handler to the check that reports it", () => {
    const { handler } = within((() => undefined) as never);
    expect(handler(() => OK)).toBeUndefined();
  });
});

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import type { Handler, Middleware } from "../../lib/http/handler.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { composeChain } from "../../lib/plugins/chain.ts";
import type { Link } from "../../lib/plugins/plugin.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange, plainReply } from "../support/exercise.ts";

const scope = { level: "global", key: "k", path: "k", id: null, service: null, route: null } as const;
const meter = { name: "p", requests: 0, answered: 0, ms: 0 };
const chained = (middlewares: readonly Middleware[], innermost: Handler) =>
  composeChain(
    middlewares.map((middleware) => ({ name: "made_up", scope, meter, middleware })),
    innermost,
    manualClock(),
    () => {},
  );
const looks: Link = { name: "looks", scope, meter, middleware: (next) => (exchange) => next(exchange) };
const awaits: Link = {
  name: "awaits",
  scope,
  meter,
  middleware: (next) => async (exchange) => (await Promise.resolve(), await next(exchange)),
};

it.each([
  ["only look", [looks, looks]],
  ["await something first", [awaits, looks]],
  ["await something later", [looks, awaits, looks, awaits]],
])("a route whose plugins %s holds nothing of its last reply once that is out", async (_what, links) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const replies: WeakRef<Reply>[] = [];
  const handler = composeChain(
    links,
    () => {
      const reply: Reply = { status: 200, headers: [], body: Buffer.alloc(10) };
      replies.push(new WeakRef(reply));
      return reply;
    },
    manualClock(),
    () => {},
  );
  // In a function of its own: what a frame has held is held until it returns.
  const once = async () => void (await handler(madeUpExchange()));
  for (let i = 0; i < 5; i++) await once();
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(replies.map((each) => each.deref())).toEqual(Array(5).fill(undefined));
  expect(handler).toBeTypeOf("function");
});

describe("a chain", () => {
  const trail: string[] = [];
  const passing =
    (name: string): Middleware =>
    (next) =>
    (exchange) => {
      trail.push(`> ${name}`);
      const reply = next(exchange);
      trail.push(`< ${name}`);
      return reply;
    };

  it("a chain passes the exchange to the first plugin first, and the reply in reverse", () => {
    trail.length = 0;
    const handler = chained([passing("global"), passing("service"), passing("route")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(plainReply);
    expect(trail).toEqual(["> global", "> service", "> route", "< route", "< service", "< global"]);
  });

  it("a chain returns the innermost handler for no plugins", () => {
    const innermost = () => plainReply;
    expect(chained([], innermost)).toBe(innermost);
  });

  it("a chain wraps once, and not per request", () => {
    let wrapped = 0;
    const handler = chained([(next) => (wrapped++, next)], () => plainReply);
    handler(madeUpExchange());
    handler(madeUpExchange());
    expect(wrapped).toBe(1);
  });

  it("a chain does not run the plugins after one that answers, and shows its reply to those before", () => {
    trail.length = 0;
    const refusal = { ...plainReply, status: 403 };
    const handler = chained([passing("outer"), () => () => refusal, passing("inner")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(refusal);
    expect(trail).toEqual(["> outer", "< outer"]);
  });

  it("a chain shows a changed copy of the exchange to the next plugins", () => {
    let seen = "";
    const handler = chained([(next) => (exchange) => next(exchange.with({ query: "?changed" }))], (exchange) => {
      seen = exchange.query;
      return plainReply;
    });
    handler(madeUpExchange());
    expect(seen).toBe("?changed");
  });
});

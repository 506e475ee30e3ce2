import { describe, expect, it } from "vitest";
import type { Middleware } from "../../lib/http/handler.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { definePlugin, fold } from "../../lib/plugins/plugin.ts";
import { object } from "../../lib/config/schema.ts";
import { madeUpExchange, plainReply } from "../support/exercise.ts";

describe("fold", () => {
  const trail: string[] = [];
  const passing = (name: string): Middleware => (next) => (exchange) => {
    trail.push(`> ${name}`);
    const reply = next(exchange);
    trail.push(`< ${name}`);
    return reply;
  };

  it("shows the exchange to the first one first, and the reply in reverse", () => {
    trail.length = 0;
    const handler = fold([passing("global"), passing("service"), passing("route")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(plainReply);
    expect(trail).toEqual(["> global", "> service", "> route", "< route", "< service", "< global"]);
  });

  it("of none is the innermost handler itself", () => {
    const innermost = () => plainReply;
    expect(fold([], innermost)).toBe(innermost);
  });

  it("wraps once, when folded, not per request", () => {
    let wrapped = 0;
    const handler = fold([(next) => (wrapped++, next)], () => plainReply);
    handler(madeUpExchange());
    handler(madeUpExchange());
    expect(wrapped).toBe(1);
  });

  it("one that answers keeps those within from running, while those without see its reply", () => {
    trail.length = 0;
    const refusal = { ...plainReply, status: 403 };
    const handler = fold([passing("outer"), () => () => refusal, passing("inner")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(refusal);
    expect(trail).toEqual(["> outer", "< outer"]);
  });

  it("the copy one passes on is what those within see", () => {
    let seen = "";
    const handler = fold([(next) => (exchange) => next(exchange.with({ query: "?changed" }))], (exchange) => {
      seen = exchange.query;
      return plainReply;
    });
    handler(madeUpExchange());
    expect(seen).toBe("?changed");
  });
});

describe("kinds", () => {
  it("the built-in ones have names of their own that configurations can write", () => {
    const names = builtinPlugins.map((plugin) => plugin.name);
    expect(names).toEqual(expect.arrayContaining(["key_auth", "rate_limit"]));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z0-9_]+$/);
  });

  it("definePlugin gives back what it was given", () => {
    const plugin = { name: "x", schema: object({}), create: () => (next: Parameters<Middleware>[0]) => next };
    expect(definePlugin(plugin)).toBe(plugin);
  });
});

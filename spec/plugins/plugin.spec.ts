import { describe, expect, it } from "vitest";
import type { Middleware } from "../../lib/http/handler.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { definePlugin, fold, runningOrder } from "../../lib/plugins/plugin.ts";
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

  it("passes the exchange to the first plugin first, and the reply in reverse", () => {
    trail.length = 0;
    const handler = fold([passing("global"), passing("service"), passing("route")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(plainReply);
    expect(trail).toEqual(["> global", "> service", "> route", "< route", "< service", "< global"]);
  });

  it("returns the innermost handler for no plugins", () => {
    const innermost = () => plainReply;
    expect(fold([], innermost)).toBe(innermost);
  });

  it("wraps once, and not per request", () => {
    let wrapped = 0;
    const handler = fold([(next) => (wrapped++, next)], () => plainReply);
    handler(madeUpExchange());
    handler(madeUpExchange());
    expect(wrapped).toBe(1);
  });

  it("does not run the plugins after one that answers, and shows its reply to those before", () => {
    trail.length = 0;
    const refusal = { ...plainReply, status: 403 };
    const handler = fold([passing("outer"), () => () => refusal, passing("inner")], () => plainReply);
    expect(handler(madeUpExchange())).toBe(refusal);
    expect(trail).toEqual(["> outer", "< outer"]);
  });

  it("shows a changed copy of the exchange to the next plugins", () => {
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
  it("that are built in have different, valid names", () => {
    const names = builtinPlugins.map((plugin) => plugin.name);
    expect(names).toEqual(expect.arrayContaining(["key_auth", "rate_limit"]));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z0-9_]+$/);
  });

  it("are returned by definePlugin as they are", () => {
    const plugin = { name: "x", schema: object({}), create: () => (next: Parameters<Middleware>[0]) => next };
    expect(definePlugin(plugin)).toBe(plugin);
  });
});

describe("runningOrder", () => {
  const kindOf = (name: string) => ({ name, kind: { guards: name.startsWith("g"), stores: name.startsWith("s") } });
  it.each([
    ["", ""],
    ["a b", "a b"],
    ["s a", "s a"],
    ["g s", "g s"],
    ["s g", "g s"],
    ["a s1 b g1 c s2 g2 d s3 e", "a b g1 c g2 s1 s2 d s3 e"],
  ])("runs %s as %s: kinds that store after the last guard, all others as written", (written, runs) => {
    const names = written.split(" ").filter((name) => name !== "");
    expect(runningOrder(names.map(kindOf)).map(({ name }) => name).join(" ")).toBe(runs);
  });

  it("knows the built-in kinds that guard, and those that store", () => {
    const named = (role: "guards" | "stores") => builtinPlugins.filter((kind) => kind[role]).map(({ name }) => name).sort();
    expect(named("guards")).toEqual(["acl", "basic_auth", "bot_protection", "forward_auth", "jwt", "key_auth", "mtls", "request_termination"]);
    expect(named("stores")).toEqual(["response_cache"]);
  });
});

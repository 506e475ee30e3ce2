import { describe, expect, it } from "vitest";
import type { Middleware } from "../../lib/http/handler.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { runningOrder } from "../../lib/plugins/chain.ts";
import { definePlugin } from "../../lib/plugins/kit.ts";
import { object } from "../../lib/config/schema.ts";

describe("kinds", () => {
  it("kinds have different, valid names", () => {
    const names = builtinPlugins.map((plugin) => plugin.name);
    expect(names).toEqual(expect.arrayContaining(["key_auth", "rate_limit"]));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z0-9_]+$/);
  });

  it("kinds pass through definePlugin unchanged", () => {
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
    expect(
      runningOrder(names.map(kindOf))
        .map(({ name }) => name)
        .join(" "),
    ).toBe(runs);
  });

  it("knows the built-in kinds that guard, those that identify the caller, and those that store", () => {
    const named = (role: "guards" | "identifies" | "stores") =>
      builtinPlugins
        .filter((kind) => kind[role])
        .map(({ name }) => name)
        .sort();
    expect(named("guards")).toEqual([
      "acl",
      "authorize",
      "basic_auth",
      "forward_auth",
      "introspection",
      "jwt",
      "key_auth",
      "mcp",
      "mtls",
      "oidc",
      "request_termination",
    ]);
    expect(named("identifies")).toEqual(["basic_auth", "introspection", "jwt", "key_auth", "mtls", "oidc"]);
    expect(named("stores")).toEqual(["response_cache"]);
  });
});

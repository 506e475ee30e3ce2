import { describe, expect, it } from "vitest";
import { createGateway, definePlugin, schema, type KeptState } from "../../lib/index.ts";
import { oneService } from "../support/gateway.ts";

/** A plugin that holds something for each instance, and says what was made and closed. */
function holding(close: () => void | Promise<void> = () => {}) {
  const events: string[] = [];
  const plugin = definePlugin({
    name: "holder",
    schema: schema.object({ settings: schema.string(), broken: schema.withDefault(schema.boolean(), false) }),
    create({ settings, broken }, tools) {
      const held = tools.keep("thing", { settings }, (): KeptState & { readonly name: string } => {
        events.push(`+${settings}`);
        return {
          name: settings,
          close() {
            events.push(`-${settings}`);
            return close();
          },
        };
      });
      if (broken) throw new Error("it does not work");
      return () => () => ({ status: 200, headers: [], body: Buffer.from(held.name) });
    },
  });
  const config = (...settings: string[]) =>
    oneService(9, {
      plugins: settings.map((each) => ({
        name: "holder",
        config: { settings: each.replace("!", ""), broken: each.endsWith("!") },
      })),
    });
  const gateway = createGateway({ config: config("a"), plugins: [plugin] });
  return { events, gateway, config };
}

describe("the state that a plugin instance keeps", () => {
  it("a plugin instance keeps its state over reloads as long as its settings are the same", async () => {
    const { events, gateway, config } = holding();
    await gateway.reload({ ...config("a"), global: { name: "other" } });
    expect(events).toEqual(["+a"]);
    await gateway.reload(config("b"));
    expect(events).toEqual(["+a", "+b", "-a"]);
    expect((await gateway.inject({ url: "/a/x" })).text()).toBe("b");
    await gateway.close(0);
  });

  it("the state of a plugin instance is closed when the instance is removed", async () => {
    const { events, gateway, config } = holding();
    await gateway.reload(config("a", "a"));
    expect(events).toEqual(["+a", "+a"]);
    await gateway.reload(config("a"));
    expect(events).toEqual(["+a", "+a", "-a"]);
    await gateway.close(0);
    expect(events).toEqual(["+a", "+a", "-a", "-a"]);
  });

  it("state that was made for a refused configuration is closed at once, and the state in force stays", async () => {
    const { events, gateway, config } = holding();
    await expect(gateway.reload(config("a", "b!"))).rejects.toThrow("it does not work");
    expect(events).toEqual(["+a", "+b", "-b"]);
    expect((await gateway.inject({ url: "/a/x" })).text()).toBe("a");
    await gateway.close(0);
  });

  it("close waits a limited time for plugins to close their state, and ignores what they throw", async () => {
    let done = false;
    const slow = holding(async () => {
      await new Promise((resolve) => setImmediate(resolve));
      done = true;
    });
    await slow.gateway.close(0);
    expect(done).toBe(true);
    const failing = holding(() => {
      throw new Error("no");
    });
    await failing.gateway.close(0);
    expect(failing.events).toEqual(["+a", "-a"]);
  });
});

describe("the tools of a plugin", () => {
  it("may be spread, taken apart and handed on by a plugin that is not the gateway's own", async () => {
    const kept: KeptState = { close: () => {} };
    const taking = definePlugin({
      name: "taking",
      schema: schema.object({}),
      create(_config, tools) {
        const others = { ...tools, gatewayName: "mine" };
        const { keep, counters, common, tally, client, limiterBy, count, counts, shared, groupsOf, ...data } = others;
        expect(keep("thing", {}, () => kept)).toBe(kept);
        expect(common("all", () => 7)).toBe(7);
        expect(shared("bytes", 8)).toBeNull();
        for (const each of [tally, client, limiterBy, count, counts, groupsOf, counters.limiter])
          expect(each).toBeTypeOf("function");
        expect(Object.keys(data).sort()).toEqual([
          ...["callers", "clock", "gatewayName", "gatewaySecrets", "isTrial", "log", "scope", "secretParameters"],
          "verifiedClaims",
        ]);
        expect(tools.verifyPassword).toBeTypeOf("function");
        return () => () => ({ status: 200, headers: [], body: Buffer.from(data.gatewayName) });
      },
    });
    const gateway = createGateway({ config: oneService(9, { plugins: [{ name: "taking" }] }), plugins: [taking] });
    expect((await gateway.inject({ url: "/a/x" })).text()).toBe("mine");
    await gateway.close(0);
  });
});

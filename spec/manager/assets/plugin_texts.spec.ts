import { describe, expect, it } from "vitest";
import { injectsFaults, pluginText } from "../../../lib/manager/assets/plugin_texts.ts";

describe("the summary of a plugin", () => {
  it.each([
    [{ percent: 10, delay_ms: 200, status: 503 }, "200 ms delay, then 503 for 10 % of requests"],
    [{ percent: 0.5, delay_ms: 1500 }, "1.5 s delay for 0.5 % of requests"],
    [{ status: 500 }, "500 for 100 % of requests"],
    [
      { percent: 100, status: 500, match: { headers: { "X-Trial": "1" } } },
      "500 for 100 % of requests where header X-Trial = 1",
    ],
  ])("says what a fault with %j does", (config, text) => expect(pluginText({ name: "fault", config })).toBe(text));

  it("says which share a mirror copies, and to where", () => {
    expect(pluginText({ name: "mirror", config: { url: "http://copies.internal:8080/base/path", percent: 5 } })).toBe(
      "copies 5 % to http://copies.internal:8080/base/path",
    );
  });

  it.each([
    [{}, "all tools"],
    [{ tools: [] }, "tools none"],
    [
      { tools: ["search", "orders_*"], tools_by_group: { support: ["refund"], staff: ["*"] } },
      "tools search, orders_* · support also refund · staff also *",
    ],
  ])("of an mcp with %j says which tools everybody and each group may use", (config, text) =>
    expect(pluginText({ name: "mcp", config })).toBe(text),
  );

  it("has the first settings of any other kind", () =>
    expect(pluginText({ name: "rate_limit", config: { limit_second: 5, a: 1, b: 2 } }, 2)).toBe(
      "limit_second 5 · a 1 · …",
    ));
});

describe("a plugin that injects faults", () => {
  it("is a fault that affects requests", () => {
    expect(
      [{ status: 500 }, { percent: 0, status: 500 }].map((config) => injectsFaults({ name: "fault", config })),
    ).toEqual([true, false]);
    expect(injectsFaults({ name: "mirror", config: {} })).toBe(false);
  });
});

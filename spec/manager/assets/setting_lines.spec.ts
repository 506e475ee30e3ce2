import { describe, expect, it } from "vitest";
import { MASK, settingLines, summaryOf } from "../../../lib/manager/assets/setting_lines.ts";
import { MASK as OF_THE_GATEWAY } from "../../../lib/config/schema_core.ts";

describe("lines of settings", () => {
  it("lines of settings have the order of the configuration, and the path of each value as name", () => {
    expect(
      settingLines({
        limit_second: 5,
        set: { "X-Team": "shop" },
        keys: [{ id: "web" }],
        on: ["reset", 503],
        off: false,
        none: null,
        list: [],
        empty: {},
      }).map(({ name, value }) => `${name}=${value}`),
    ).toEqual([
      "limit_second=5",
      "set.X-Team=shop",
      "keys[0].id=web",
      "on=reset, 503",
      "off=no",
      "none=none",
      "list=none",
      "empty=none",
    ]);
  });

  it.each([{}, null, undefined, []])("lines of settings show no value for %j", (settings) =>
    expect(settingLines(settings).every(({ value }) => value === "none")).toBe(true),
  );

  it("lines of settings show the first few settings in the one-line form, shortened", () => {
    expect(summaryOf({ key: MASK, path: "x".repeat(100), a: 1, b: 2 })).toBe(
      `key ${MASK} · path ${"x".repeat(31)}… · a 1 · …`,
    );
    expect(summaryOf({})).toBe("");
  });

  it("know the mask that the gateway puts in place of secrets", () => expect(MASK).toBe(OF_THE_GATEWAY));
});

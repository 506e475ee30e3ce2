import { describe, expect, it } from "vitest";
import { cutAt, occurrences } from "../../../lib/manager/assets/json_text.ts";

const CONFIG = {
  name: "shop",
  plugins: [
    {
      name: "key_auth",
      config: {
        keys: [
          { id: "web", key: "s3cr3t" },
          { id: "mobile", key: "${env:MOBILE}" },
        ],
        header: "X-Key",
      },
    },
    { name: "basic_auth", config: { user: "ada", password: "s3cr3t too" } },
  ],
  tokens: ["t-1", "${file:/run/t}"],
  limit: 5,
  open: true,
  none: null,
};

describe("the displayed JSON", () => {
  it("the displayed JSON searches names and values without regard to case, in the order of the text", () => {
    expect(occurrences(CONFIG, "KEY").map((path) => path.join("."))).toEqual([
      "plugins.0.name",
      "plugins.0.config.keys",
      "plugins.0.config.keys.0.key",
      "plugins.0.config.keys.1.key",
      "plugins.0.config.header",
    ]);
    expect(occurrences(CONFIG, "true").map((path) => path.join("."))).toEqual(["open"]);
    expect(occurrences(CONFIG, "")).toEqual([]);
  });

  it("the displayed JSON splits at each match of the search", () => {
    expect(cutAt("beFORe", "for")).toEqual(["be", "FOR", "e"]);
    expect([cutAt("before", ""), cutAt("before", "x")]).toEqual([null, null]);
  });
});

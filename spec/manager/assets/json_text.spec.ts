import { describe, expect, it } from "vitest";
import { cutAt, isHidden, maskedText, occurrences } from "../../../lib/manager/assets/json_text.ts";

const CONFIG = {
  name: "shop",
  plugins: [
    { name: "key_auth", config: { keys: [{ id: "web", key: "s3cr3t" }, { id: "mobile", key: "${env:MOBILE}" }], header: "X-Key" } },
    { name: "basic_auth", config: { user: "ada", password: "s3cr3t too" } },
  ],
  tokens: ["t-1", "${file:/run/t}"],
  limit: 5,
  open: true,
  none: null,
};

describe("the displayed JSON", () => {
  it("the displayed JSON hides secrets, but shows references and the values beside secrets", () => {
    const text = maskedText(CONFIG);
    expect(text).not.toMatch(/s3cr3t|t-1/);
    for (const shown of ["web", "${env:MOBILE}", "${file:/run/t}", "X-Key", "ada", "basic_auth"]) expect(text).toContain(shown);
    expect(JSON.parse(text)).toMatchObject({ limit: 5, open: true, none: null });
  });

  it("the displayed JSON judges the members of a list by the name of the list", () => {
    expect(isHidden(["tokens", 0], "t-1")).toBe(true);
    expect(isHidden(["names", 0], "t-1")).toBe(false);
    expect(isHidden([0], "t-1")).toBe(false);
    expect(isHidden(["password"], "")).toBe(false);
  });

  it("the displayed JSON shows the name of a sticky cookie, which is no secret, and hides its key and the header Cookie", () => {
    const sticky = (name: string) => ["services", 0, "sticky", name];
    expect([sticky("cookie"), sticky("secret"), ["headers", "cookie"]].map((path) => isHidden(path, "route"))).toEqual([false, true, true]);
  });

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

  it("the displayed JSON does not reveal a secret through the search", () => {
    expect(occurrences(CONFIG, "s3cr")).toEqual([]);
    expect(occurrences(CONFIG, "t-1")).toEqual([]);
  });

  it("the displayed JSON splits at each match of the search", () => {
    expect(cutAt("beFORe", "for")).toEqual(["be", "FOR", "e"]);
    expect([cutAt("before", ""), cutAt("before", "x")]).toEqual([null, null]);
  });
});

import { describe, expect, it } from "vitest";
import { suggest } from "../../lib/base/suggest.ts";

const FIELDS = [
  "name",
  "base_path",
  "protocol",
  "upstreams",
  "routes",
  "plugins",
  "limit_second",
  "limit_min",
  "limit_hour",
];

describe("suggest", () => {
  it.each([
    ["nmae", "name"],
    ["basePath", "base_path"],
    ["base-path", "base_path"],
    ["BASE_PATH", "base_path"],
    ["upstream", "upstreams"],
    ["limit_minute", "limit_min"],
    ["limit_hours", "limit_hour"],
    ["protocl", "protocol"],
  ])("maps %s to %s", (word, name) => {
    expect(suggest(word, FIELDS)).toBe(name);
  });

  it.each(["colour", "x", "", "n".repeat(1000)])("suggests nothing for %j, which is not near to any name", (word) => {
    expect(suggest(word, FIELDS)).toBeUndefined();
  });

  it("suggests nothing when no names are known", () => {
    expect(suggest("name", [])).toBeUndefined();
  });

  it("counts a swap of two neighbours as one mistake", () => {
    expect(suggest("prot", ["port"])).toBe("port");
  });

  it("prefers the nearer of two names", () => {
    expect(suggest("routs", ["roots_a", "routes"])).toBe("routes");
  });
});

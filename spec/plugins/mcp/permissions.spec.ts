import { describe, expect, it } from "vitest";
import { mcp } from "../../../lib/plugins/mcp/mcp.ts";
import { NamePatterns } from "../../../lib/plugins/mcp/name_patterns.ts";
import { Permissions } from "../../../lib/plugins/mcp/permissions.ts";
import { checked } from "../../support/exercise.ts";

describe("a pattern", () => {
  it.each([
    ["a", "a", true],
    ["a", "A", false],
    ["a", "ab", false],
    ["*", "", true],
    ["a*", "a", true],
    ["a*", "ba", false],
    ["*a", "aa", true],
    ["a*a", "a", false],
    ["a*a", "aa", true],
    ["a*b*c", "abc", true],
    ["a*b*c", "acb", false],
    ["a*bc*c", "abcc", true],
    ["a*bc*c", "abc", false],
    ["**", "x", true],
    ["a.c", "abc", false],
  ])("%j matches %j: %j", (pattern, name, matches) => {
    expect(new NamePatterns([pattern]).find(name)).toBe(matches ? pattern : null);
  });

  it("with many stars takes time in proportion to the name", () => {
    const patterns = new NamePatterns([`${"a*".repeat(500)}b`]);
    expect(patterns.find("a".repeat(1_000_000))).toBeNull();
  });
});

describe("permissions", () => {
  it("name the pattern that allows, which clients do not choose", () => {
    const permissions = new Permissions({ tools: ["a", "b*"], toolsByGroup: { g: ["c*"], h: ["a"] }, prompts: [] });
    const by = (name: string, ...groups: string[]) => permissions.allowing("tools", name, groups);
    expect([by("a"), by("bb"), by("cc"), by("cc", "g"), by("cc", "h", "g"), by("d", "g")]).toEqual([
      "a",
      "b*",
      null,
      "c*",
      "c*",
      null,
    ]);
    expect([permissions.allowing("prompts", "a", []), permissions.allowing("resources", "a", [])]).toEqual([null, "*"]);
  });

  it("by group need tools", () => {
    expect(checked(mcp.schema, { tools_by_group: { a: ["x"] } }).issues).toEqual([
      'tools_by_group: adds to "tools", without which everybody may use all: write "tools", if need be []',
    ]);
    expect(checked(mcp.schema, { tools: [], tools_by_group: { a: ["x"] } }).issues).toEqual([]);
    expect(checked(mcp.schema, { revisions: ["2025-03-26"] }).issues).toHaveLength(1);
  });
});

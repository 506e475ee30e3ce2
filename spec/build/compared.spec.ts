/** What `npm run compared` writes into CHANGELOG.md; spec/peers/compare.spec.ts runs it on the last release. */
import { describe, expect, it } from "vitest";
import { commitOf, lastRelease, sectionOf, withSection, type Found } from "../../build/compared.ts";

const SAME: Found = {
  old: { version: "1.2.3", accepts: true },
  new: { accepts: true },
  differences: [],
  not_compared: [],
};
const lost = {
  kind: "guards_lost",
  what: "no longer refused (with dots)",
  old: "400 path_ambiguous",
  new: "s / r",
  routes: ["s / r"],
  example: "GET a/..",
};

describe("the section of a changelog", () => {
  it("names each configuration, its differences, and once what was not compared", () => {
    const refused: Found = {
      ...{
        old: { version: "1.2.3", accepts: false },
        new: { accepts: true },
        not_compared: ["requests, as one version refuses the configuration"],
      },
      differences: [
        {
          ...lost,
          kind: "acceptance",
          what: "1.2.3 refuses it",
          old: "a\nb",
          new: "accepted",
          routes: [],
          example: null,
        },
      ],
    };
    const silent = { not_compared: ["verdicts of plugins, which 1.2.3 does not say"] };
    const found = {
      "a.json": { ...SAME, ...silent },
      "b.json": { ...SAME, ...silent, differences: [lost, { ...lost, routes: [], example: null }] },
      "c.json": refused,
    };
    expect(sectionOf(new Map(Object.entries(found)))).toBe(
      [
        "### Compared with 1.2.3",
        "",
        "What `edge-gateway compare` finds for the configurations in `examples/`:",
        "",
        "- `a.json`: nothing differs",
        "- `b.json`: s / r: no longer refused (with dots), 400 path_ambiguous before, s / r now (`GET a/..`); " +
          "no longer refused (with dots), 400 path_ambiguous before, s / r now",
        "- `c.json`: 1.2.3 refuses it",
        "",
        "Not compared: verdicts of plugins, which 1.2.3 does not say.",
      ].join("\n"),
    );
    expect(
      sectionOf(new Map([["a.json", SAME]]))
        .split("\n")
        .at(-1),
    ).toBe("- `a.json`: nothing differs");
  });

  it.each([
    ["at the end", "### Added\n\n- x\n\n", "### Added\n\n- x\n\nS\n\n"],
    ["in an empty one", "\n", "\nS\n\n"],
    [
      "in place of the last one",
      "### Compared with 1.0.0\n\n- `a.json`: $& differs\n\n### Fixed\n\n- y\n\n",
      "### Fixed\n\n- y\n\nS\n\n",
    ],
    ["once", "### Added\n\n- x\n\n### Compared with 1.2.3\n\n- z\n\n", "### Added\n\n- x\n\nS\n\n"],
  ])("stands under Unreleased, %s", (_where, before, after) => {
    const rest = "## [1.2.3] - 2026-01-01\n\n### Compared with 1.2.2\n\n- x\n";
    expect(withSection(`# Changelog\n\n## [Unreleased]\n${before}${rest}`, "S")).toBe(
      `# Changelog\n\n## [Unreleased]\n${after}${rest}`,
    );
    expect(withSection(`## [Unreleased]\n${before}`, "S")).toBe(`## [Unreleased]\n${after}`);
  });

  it("is of the newest release of the changelog, which has both", () => {
    expect(lastRelease("## [Unreleased]\n\n## [1.2.3] - 2026-01-01\n## [1.2.2] - 2025-01-01\n")).toBe("1.2.3");
    expect(() => lastRelease("## [Unreleased]\n")).toThrow("CHANGELOG.md has no release");
    expect(() => withSection("## [1.2.3]\n", "S")).toThrow("CHANGELOG.md has no heading [Unreleased]");
    expect(commitOf("77.0.0")).toBeUndefined();
  });
});

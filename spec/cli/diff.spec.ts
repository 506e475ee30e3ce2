import { describe, expect, it } from "vitest";
import { diffLines } from "../../lib/cli/diff.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const KEY = { name: "key_auth", config: { key: "k" } };
const old: AnyConfigInput = oneService(9, {
  routes: [
    { name: "items", path: "/items", plugins: [KEY] },
    { name: "gone", path: "/gone" },
  ],
});
const next: AnyConfigInput = oneService(
  9,
  {
    routes: [
      { name: "items", path: "/items", methods: ["GET"] },
      { name: "new", path: "/new" },
    ],
  },
  { name: "other" },
);

const run = (...words: string[]) => program(["diff", ...words]).ended;

describe("edge-gateway diff", () => {
  it("prints guards lost first, then routes added, removed and changed, and the rest; exit 1", async () => {
    const { code, stdout, stderr } = await run(fileWith(old), fileWith(next));
    expect([code, stderr]).toEqual([1, ""]);
    expect(stdout.split("\n")).toEqual([
      "guards lost:",
      "  s / items: key_auth (GET http://localhost/a/items)",
      "routes added:",
      "  s / new",
      "routes removed:",
      "  s / gone",
      "routes changed:",
      "  s / items: methods (all) is now GET; plugin key_auth removed",
      "other changes:",
      "  global altered (name)",
      "",
    ]);
  });

  it("prints JSON with --json; exit 1", async () => {
    const { code, stdout } = await run(fileWith(old), fileWith(next), "--json");
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toEqual({
      guards_lost: [
        {
          service: "s",
          route: "items",
          guards: ["key_auth"],
          altered: [],
          before: { service: "s", route: "items" },
          example: "GET http://localhost/a/items",
        },
      ],
      added: [{ service: "s", route: "new" }],
      removed: [{ service: "s", route: "gone" }],
      changed: [{ service: "s", route: "items", changes: ["methods (all) is now GET", "plugin key_auth removed"] }],
      other: ["global altered (name)"],
    });
  });

  it("says that nothing differs; exit 0", async () => {
    const turned = Object.fromEntries(
      Object.entries({
        ...old,
        tests: [{ name: "t", request: { url: "/a/items" }, expect: { status: 401 } }],
      }).reverse(),
    );
    expect(await run(fileWith(old), fileWith(turned))).toMatchObject({
      code: 0,
      stdout: "nothing differs\n",
      stderr: "",
    });
    const { code, stdout } = await run(fileWith(old), fileWith(old), "--json");
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { guards_lost: [], added: [], removed: [], changed: [], other: [] },
    ]);
  });

  it("does not print secrets", async () => {
    const secret = (key: string) => fileWith(oneService(9, { plugins: [{ name: "key_auth", config: { key } }] }));
    const { code, stdout } = await run(secret("hunter1"), secret("hunter2"));
    expect(code).toBe(1);
    expect(stdout).toContain("key_auth (configured differently)");
    expect(stdout).not.toContain("hunter");
  });

  it("reports the errors of one file, or of both; exit 2", async () => {
    const [good, broken, missing] = [fileWith(old), fileWith("{"), `${emptyFolder()}/none.json`];
    for (const [words, expected] of [
      [[good, broken], [broken]],
      [[missing, good], [missing]],
      [
        [broken, missing],
        [broken, missing],
      ],
    ] as const) {
      const { code, stdout, stderr } = await run(...words);
      expect([code, stdout]).toEqual([2, ""]);
      for (const file of expected) expect(stderr).toContain(file);
    }
  });

  it.each([
    [[], "edge-gateway: diff needs two configurations: edge-gateway diff OLD NEW\n"],
    [["a.json"], "edge-gateway: diff needs two configurations: edge-gateway diff OLD NEW\n"],
    [["a", "b", "c"], 'edge-gateway: too many arguments for "diff": edge-gateway diff --help shows its usage\n'],
    [
      ["a", "b", "--config", "c"],
      "edge-gateway: --config is not a flag of this command: it is for starting a gateway\n",
    ],
    [["a", "b", "--jso"], "edge-gateway: --jso is not a known flag; did you mean --json?\n"],
  ])("%j exits 2 with the remedy", async (words, stderr) => {
    expect(await run(...words)).toMatchObject({ code: 2, stdout: "", stderr });
  });
});

describe("diffLines", () => {
  const nothing: Parameters<typeof diffLines>[0] = { guards_lost: [], added: [], removed: [], changed: [], other: [] };
  const routes = (count: number) => Array.from({ length: count }, (_, i) => ({ service: "s", route: `r${i}` }));

  it("puts routes of a service to which the same applies on one line, and names five", () => {
    const changed = [
      ...routes(8).map((place) => ({ ...place, changes: ["service hosts altered"] })),
      { service: "s", route: "x", changes: ["plugin jwt added"] },
    ];
    expect(diffLines({ ...nothing, added: [...routes(5), { service: "t", route: "r0" }], changed })).toEqual([
      "routes added:",
      "  s / r0, r1, r2, r3, r4",
      "  t / r0",
      "routes changed:",
      "  s / r0, r1, r2, r3, r4 and 3 more: service hosts altered",
      "  s / x: plugin jwt added",
    ]);
  });

  it("names the route that had the guards, if it is another one, and guards that are configured differently", () => {
    const lost = {
      service: "s",
      route: "rest",
      guards: ["jwt", "acl"],
      altered: ["acl"],
      before: { service: "s", route: "users" },
      example: null,
    };
    expect(diffLines({ ...nothing, guards_lost: [lost] })).toEqual([
      "guards lost:",
      "  s / rest: jwt, acl (configured differently), which s / users had",
    ]);
  });
});

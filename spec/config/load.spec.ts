import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { countOfIssues } from "../../lib/config/json.ts";
import { formatIssues } from "../../lib/config/load.ts";
import type { RouteDeclaration } from "../../lib/config/declarations.ts";
import * as s from "../../lib/config/whole_schema.ts";
import { checkRoutes, loadConfig, type CheckedOptions } from "../support/schema.ts";

const kinds = [{ name: "key_auth", schema: s.object({ key: s.string({ min: 1 }) }) }];
const options: CheckedOptions = { kinds, environment: { KEY: "hush", PART: "/v{x}", UP: "http://x" } };

const GOOD = `{
  "global": { "plugins": [{ "name": "key_auth", "config": { "key": "\${env:KEY}" } }] },
  "services": [
    { "name": "a", "base_path": "/a", "upstreams": [{ "host": "localhost", "port": 9000 }],
      "routes": [{ "path": "/b/{id}", "methods": ["GET"] }] }
  ]
}`;

let folder: string;
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), "load-"))));
afterAll(() => rmSync(folder, { recursive: true }));

const load = (text: string | Buffer, more: Partial<CheckedOptions> = {}) =>
  loadConfig({ text, file: join(folder, "gw.json") }, { ...options, ...more });

function said(text: string, more: Partial<CheckedOptions> = {}): string[] {
  const result = load(text, more);
  return result.ok ? [] : formatIssues(result.issues, "gw.json").split("\n");
}

describe("loadConfig", () => {
  it(
    "refuses names with half a surrogate pair, which logs and metrics could not tell " + "apart, with line and column",
    () => {
      const text = GOOD.replace('"name": "a"', '"name": "shop\\ud800"').replace(
        '"path": "/b/{id}"',
        '"name": "r\\udfff", "path": "/b/{id}"',
      );
      expect(said(text).map((line) => line.split(/ {2,}/))).toEqual([
        ["gw.json:4:15", "services[0].name", expect.stringMatching(/^contains half a surrogate pair/)],
        ["gw.json:5:28", "services[0].routes[0].name", expect.stringMatching(/^contains half a surrogate pair/)],
      ]);
      const value = {
        services: [{ name: "a\ud800", base_path: "/a", upstreams: [{ host: "h", port: 1 }], routes: [] }],
      };
      const result = loadConfig({ value }, options);
      expect(result.ok ? [] : result.issues.map(({ message }) => message)).toEqual([
        "expected a name of 1–200 characters without control characters, found a string with half a surrogate pair",
      ]);
    },
  );

  it("resolves secrets in the configuration, and not in the displayed one", () => {
    const result = load(GOOD);
    if (!result.ok) throw new Error("not ok");
    expect(result.config.global.plugins[0]!.config).toEqual({ key: "hush" });
    expect(result.shown).toMatchObject({
      global: { name: "edge-gateway", plugins: [{ name: "key_auth", enabled: true, config: { key: "${env:KEY}" } }] },
      services: [{ base_path: "/a", upstreams: [{ id: "localhost:9000" }], routes: [{ name: "GET /b/{id}" }] }],
    });
    expect(JSON.stringify(result.shown)).not.toContain("hush");
  });

  it("gives configurations that are values and have the same meaning the same digest", () => {
    const digest = (text: string) => {
      const result = loadConfig({ value: JSON.parse(text) as unknown }, options);
      return result.ok ? result.digest : "";
    };
    const reordered =
      `{"services": ${JSON.stringify(JSON.parse(GOOD).services)}, "global": ` +
      `${JSON.stringify(JSON.parse(GOOD).global)}}`;
    expect(digest(GOOD)).toMatch(/^[0-9a-f]{12}$/);
    expect(digest(reordered)).toBe(digest(GOOD));
    expect(digest(GOOD.replace('"port": 9000', '"port": 9000, "id": "localhost:9000"'))).toBe(digest(GOOD));
    expect(digest(GOOD.replace("9000", "9001"))).not.toBe(digest(GOOD));
  });

  it("names a file by its bytes, as sha256sum does: 12 digits of it are the digest", () => {
    for (const text of [GOOD, `${GOOD}\n`, `\uFEFF${GOOD}`, GOOD.replace("9000", "9001")]) {
      const result = load(text);
      expect(result.ok && result.digest).toBe(createHash("sha256").update(text).digest("hex").slice(0, 12));
    }
  });

  it("includes every key in the digest, whatever its name", () => {
    const kinds = [{ name: "key_auth", schema: s.record(s.string()) }];
    const digest = (config: string) => {
      const value: unknown = JSON.parse(GOOD.replace('{ "key": "${env:KEY}" }', config));
      const result = loadConfig({ value }, { ...options, kinds });
      return result.ok ? result.digest : "";
    };
    expect(digest('{ "__proto__": "a", "b": "c" }')).toMatch(/^[0-9a-f]{12}$/);
    expect(digest('{ "b": "c", "__proto__": "a" }')).toBe(digest('{ "__proto__": "a", "b": "c" }'));
    expect(digest('{ "__proto__": "d", "b": "c" }')).not.toBe(digest('{ "__proto__": "a", "b": "c" }'));
    expect(digest('{ "b": "c" }')).not.toBe(digest('{ "__proto__": "a", "b": "c" }'));
  });

  it("loads the displayed configuration as the same configuration", () => {
    const first = load(GOOD);
    const again = first.ok && loadConfig({ value: first.shown }, options);
    const {
      secrets: _,
      source: __,
      file: ___,
      digest: ____,
      checked: _____,
      ...same
    } = first as Extract<typeof first, { ok: true }>;
    expect(again).toMatchObject(same);
  });

  it("looks for files in the folder of the configuration", () => {
    writeFileSync(join(folder, "key"), "from-file\n");
    const result = load(GOOD.replace("${env:KEY}", "${file:key}"));
    expect(result.ok && result.config.global.plugins[0]!.config).toEqual({ key: "from-file" });
  });

  it("reads each secret file once for each load", () => {
    const read: string[] = [];
    const readFile = (path: string) => {
      read.push(path);
      return "/x";
    };
    const text = GOOD.replace("${env:KEY}", "${file:/k}${file:/k}");
    expect(load(text, { readFile, checkRoutes: () => [] }).ok).toBe(true);
    expect(read).toEqual(["/k"]);
  });

  it(
    "reports errors of conditions and conflicting conditions with their places, " +
      "and none about a route whose conditions cannot be read",
    () => {
      const issuesOf = (routes: string, global = "{}") => {
        const text =
          `{ "global": ${global}, "services": [{ "name": "a", "base_path": "/a", "upstreams": [{ "host": "h", ` +
          `"port": 80 }], "routes": [\n${routes}\n] }] }`;
        const result = load(text, { checkRoutes });
        return result.ok
          ? []
          : formatIssues(result.issues, "gw.json")
              .split("\n")
              .map((line) => line.replace(/ {2,}/g, "  "));
      };
      expect(
        issuesOf(
          '{ "path": "/x" },\n{ "path": "/x", "name": "y", "match": {} },\n{ "path": "/x", "name": "z", "match": ' +
            '{ "headers": { "a_b": "1" } } }',
        ),
      ).toEqual([
        "gw.json:3:39  services[0].routes[1].match  needs at least one condition, " +
          'such as "headers": { "X-Version": "2" }',
        "gw.json:4:54  services[0].routes[2].match.headers.a_b  cannot be a condition: " +
          'headers with "_" in their names are dropped, unless "underscore_headers" of "global" is "allow"',
      ]);
      expect(
        issuesOf('{ "path": "/x", "match": { "headers": { "a_b": "1" } } }', '{ "underscore_headers": "allow" }'),
      ).toEqual([]);
      expect(
        issuesOf(
          '{ "name": "p", "path": "/x", "match": { "query": { "a": "k" } } },\n{ "name": "q", "path": "/x", ' +
            '"match": { "cookies": { "a": "1" } } }',
        ),
      ).toEqual([
        'gw.json:3:39  services[0].routes[1].match  route "q" of service "a" and route "p" of service "a" both ' +
          ('match all methods of "/x" below "/a", with the same number of conditions, ' +
            ("and one request can fulfil all of them: add a condition to the route that is to come first, " +
              "or give the two different values of one name")),
      ]);
      expect(issuesOf('{ "path": "/x" },\n{ "path": "/x", "match": { "cookies": { "a": "1" } } }')).toEqual([
        'gw.json:3:1  services[0].routes[1].name  "/x" is already used by services[0].routes[0]: write its own "name"',
      ]);
    },
  );

  it("reports everything at once, in the order of the text", () => {
    const text = `{
  "services": [
    { "name": "a", "base_path": "/a", "upstreams": [{ "host": "h:80", "prot": 1, "port": "80a" }],
      "routes": [{ "path": "/v{x}" }, { "path": "/ok" }],
      "name": "again" }
  ],
  "global": { "plugins": [{ "name": "key_auth", "config": { "key": "\${env:NOPE}" } }] }
}`;
    const checkRoutes = (list: readonly RouteDeclaration[]) =>
      list
        .filter(({ route }) => route.path === "/v{x}")
        .map(({ route }) => ({ at: [...route.at, "path"], message: "mixed segment" }));
    expect(said(text, { checkRoutes })).toEqual([
      "gw.json:3:63  services[0].upstreams[0].host  expected a host name or an IP address, " +
        'found "h:80": write no port here',
      'gw.json:3:71  services[0].upstreams[0].prot  is not a known field; did you mean "port"?',
      'gw.json:3:90  services[0].upstreams[0].port  expected an integer 1–65535, found "80a"',
      "gw.json:4:28  services[0].routes[0].path     mixed segment",
      'gw.json:5:7   services[0].name               duplicate key: the first "name" is at 3:7',
      "gw.json:7:68  global.plugins[0].config.key   ${env:NOPE} cannot be resolved: " +
        "the environment variable NOPE is not set",
    ]);
  });

  it("gives one issue for broken syntax", () => {
    expect(said('{"services": [],}')).toEqual([
      'gw.json:1:16  expected a key after ",", found "}": remove the trailing comma',
    ]);
  });

  it("does not look up a reference in a path, and passes no such route to checkRoutes", () => {
    let seen: readonly RouteDeclaration[] = [];
    const lines = (name: string) =>
      said(GOOD.replace("/b/{id}", `/p\${env:${name}}`), { checkRoutes: (list) => ((seen = list), []) });
    expect(lines("PART").join().replace("PART", "NOPE")).toBe(lines("NOPE").join());
    expect(lines("PART")).toEqual([expect.stringContaining("${env:PART} is not replaced here: write the text itself")]);
    expect(seen).toEqual([]);
  });

  it("does not reveal a secret when the check of a field refuses it", () => {
    const lines = said(GOOD.replace('"localhost"', '"${env:UP}"'));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('found "${env:UP}"');
    expect(lines[0]).not.toContain("http://x");
  });

  it("passes checkRoutes the routes of a configuration that has other errors", () => {
    let seen: readonly RouteDeclaration[] = [];
    const value = {
      services: [
        {
          base_path: "/a",
          hosts: ["A.example"],
          routes: [{ path: "/hush", methods: ["GET"] }, { path: 5 }, { path: "/m", methods: [1] }],
        },
        { name: "b", routes: [{ path: "/unknown-base" }] },
        7,
      ],
    };
    const result = loadConfig({ value }, { ...options, checkRoutes: (list) => ((seen = list), []) });
    expect(result.ok).toBe(false);
    expect(seen).toEqual([
      {
        service: { name: "services[0]", basePath: "/a", hosts: ["a.example"], at: ["services", 0] },
        route: { name: "GET /hush", path: "/hush", methods: ["GET"], at: ["services", 0, "routes", 0] },
      },
      {
        service: { name: "b", basePath: null, hosts: [], at: ["services", 1] },
        route: { name: "/unknown-base", path: "/unknown-base", methods: [], at: ["services", 1, "routes", 0] },
      },
    ]);
  });

  it("lists a hundred errors of a text, whoever finds them, in its order, and how many more there are", () => {
    const keys = Array.from({ length: 1000 }, (_, i) => `"unknown_${i}": ${i}`).join(",\n");
    const twice = '"a": 1,\n'.repeat(120);
    const routes = Array.from({ length: 500 }, () => '{ "path": "no slash" }').join(",\n");
    const service =
      `{ "name": "s", "base_path": "/", "upstreams": [{ "host": "h", "port": 1 }],` + ` "routes": [${routes}] }`;
    const counted = (text: string) => {
      const result = load(text);
      const issues = result.ok ? [] : result.issues;
      const lines = issues.flatMap(({ position }) => position?.line ?? []);
      expect(lines).toEqual([...lines].sort((a, b) => a - b));
      return [issues.length, issues.at(-1)!.message, countOfIssues(issues)];
    };
    expect(counted(`{ ${keys}, "services": [] }`)).toEqual([101, "and 900 more errors", 1000]);
    expect(counted(`{ "global": { ${twice} "name": "x" }, "services": [] }`)).toEqual([101, "and 20 more errors", 120]);
    expect(counted(`{ "services": [${service}] }`)[2]).toBe(500);
    expect(counted(`{ ${keys}, "services": [${service}] }`)[2]).toBe(1500);
    const tests = Array.from({ length: 101 }, () => "{}").join();
    expect(counted(`{ "services": [], "tests": [${tests}] }`)[0]).toBe(101);
  });

  it.each([[null], [[]], ["x"], [undefined]])("refuses %j as a whole configuration", (value) => {
    const result = loadConfig({ value }, { ...options, checkRoutes: () => [] });
    expect(result).toMatchObject({ ok: false, issues: [{ at: [], position: null }] });
  });
});

describe("formatIssues", () => {
  it("writes no positions for values that did not come from a text", () => {
    expect(formatIssues([{ at: ["a", 0], message: "is wrong", position: null }])).toBe("a[0]  is wrong");
  });
});

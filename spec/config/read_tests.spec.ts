/**
 * All tests of a configuration together: files of tests, names that occur twice, names of routes that do not exist, and
 * their number.
 */
import { describe, expect, it } from "vitest";
import { formatIssues, type LoadResult } from "../../lib/config/load.ts";
import * as s from "../../lib/config/schema.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { testsOf } from "../../lib/config/tests.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";
import { checkRoutes, loadConfig, type CheckedOptions } from "../support/schema.ts";

const kinds = [{ name: "key_auth", schema: s.object({ key: s.string({ min: 1, secret: true }) }) }];

const services = [
  {
    name: "orders",
    base_path: "/orders",
    upstreams: [{ host: "h", port: 1 }],
    routes: [
      { name: "one", path: "/{id}" },
      { path: "/", methods: ["GET"] },
    ],
  },
  {
    name: "billing",
    base_path: "/b",
    upstreams: [{ host: "h", port: 1 }],
    routes: [{ name: "only-b", path: "/hush" }, { path: "/x/hush" }],
  },
];

const testOf = (name: string, expected: object = { status: 200 }) => ({
  name,
  request: { url: "/" },
  expect: expected,
});

interface Files {
  readonly [path: string]: string | object | Error;
}

function load(config: unknown, files: Files = {}, more: Partial<CheckedOptions> = {}, read = loadConfig): LoadResult {
  const text = typeof config === "string" ? config : JSON.stringify(config);
  const readFile = (path: string) => {
    const content = files[path];
    if (content === undefined) throw Object.assign(new Error(path), { code: "ENOENT" });
    if (content instanceof Error) throw content;
    return typeof content === "string" || Buffer.isBuffer(content) ? content : JSON.stringify(content);
  };
  return read(
    { text, file: "/etc/gw/gw.json" },
    { kinds, environment: { NAME: "billing", PART: "hush", KEY: "k" }, readFile, checkRoutes, ...more },
  );
}

function loaded(...args: Parameters<typeof load>): Extract<LoadResult, { readonly ok: true }> {
  const result = load(...args);
  if (!result.ok) throw new Error(formatIssues(result.issues, "gw.json"));
  return result;
}

/** Rows of place, path and message. */
function issuesOf(...args: Parameters<typeof load>): string[] {
  const result = load(...args);
  return result.ok
    ? []
    : formatIssues(result.issues, "gw.json")
        .split("\n")
        .map((row) => row.replace(/ {2,}/g, "  "));
}

/** The issues without the places in the configuration's own text, which is one line. */
const withoutPlaces = (rows: readonly string[]) => rows.map((row) => row.replace(/^gw\.json:1:\d+ {2}/, ""));

describe("the tests of a configuration", () => {
  it("are those of `tests`, then those of each file of `test_files`, in order", () => {
    const files = { "/etc/gw/a.json": [testOf("in a")], "/srv/b.json": [testOf("in b"), testOf("also in b")] };
    const tests = testsOf(loaded({ test_files: ["a.json", "/srv/b.json"], services, tests: [testOf("own")] }, files));
    expect(tests.map(({ name, at, file }) => [name, at, file])).toEqual([
      ["own", ["tests", 0], undefined],
      ["in a", [0], "/etc/gw/a.json"],
      ["in b", [0], "/srv/b.json"],
      ["also in b", [1], "/srv/b.json"],
    ]);
  });

  it("are none where there are neither `tests` nor `test_files`, and may be empty lists", () => {
    expect(loaded({ services }).tests).toEqual([]);
    expect(loaded({ services, tests: [], test_files: [] }).tests).toEqual([]);
  });

  it("in a file know their line and column in it", () => {
    const tests = testsOf(
      loaded({ services, test_files: ["a.json"] }, { "/etc/gw/a.json": `\n\n  [${JSON.stringify(testOf("a"))}]` }),
    );
    expect(tests[0]!.position).toEqual({ line: 3, column: 4 });
  });

  it("in a file get references resolved, files relative to the folder of the configuration", () => {
    const test = { ...testOf("a"), request: { url: "/", headers: { apiKey: "${env:KEY}", Other: "${file:key}" } } };
    const tests = testsOf(
      loaded(
        { services, test_files: ["tests/a.json"] },
        { "/etc/gw/tests/a.json": [test], "/etc/gw/key": "from-file\n" },
      ),
    );
    expect(tests[0]!.request.headers).toEqual({ apiKey: "k", Other: "from-file" });
  });

  it("are named by files that are listed with all other named files, so that a change is noticed", () => {
    const { files } = loaded(
      { services, test_files: ["a.json", "${env:KEY}.json"] },
      { "/etc/gw/a.json": [], "/etc/gw/k.json": [testOf("a")] },
    );
    expect(files.map(({ path }) => path)).toEqual(["/etc/gw/a.json", "/etc/gw/k.json"]);
  });

  it(
    "are not displayed, since requests may contain credentials, and not part of the digest of a value, " +
      "since the gateway does the same without them",
    () => {
      const plain = loaded({ services });
      const tests = [{ name: "a", request: { url: "/", headers: { apiKey: "hunter2" } }, expect: { status: 200 } }];
      const tested = loaded({ services, tests, test_files: ["a.json"] }, { "/etc/gw/a.json": [testOf("b")] });
      const digest = (value: unknown) =>
        (loadConfig({ value }, { kinds, environment: {} }) as { readonly digest?: string }).digest;
      expect(digest({ services, tests })).toBe(digest({ services }));
      expect(tested.shown).toEqual(plain.shown);
      expect(maskedConfig(tested)).toEqual(maskedConfig(plain));
      expect(Object.keys(tested.config)).toEqual(["global", "services"]);
    },
  );

  it("from a configuration that is a value may be in files of the working folder", () => {
    const options = {
      kinds,
      environment: {},
      readFile: (path: string) => (path === `${process.cwd()}/a.json` ? `[${JSON.stringify(testOf("a"))}]` : ""),
    };
    const result = loadConfig({ value: { services: [], test_files: ["a.json"] } }, options);
    expect(result.ok && result.tests).toHaveLength(1);
  });
});

describe("a wrong file of tests", () => {
  const FILE = "/etc/gw/a.json";

  it("shows its errors with its own lines and columns, sorted, behind those of the configuration, all at once", () => {
    const a = `[
  { "name": "a", "request": { "url": "x" }, "expect": { "service": "ordrs" } },
  { "nam": "b", "request": { "url": "/", "method": "get" }, "expect": {} }
]`;
    const rows = issuesOf(`{ "services": [],\n "tests": 5,\n "test_files": ["a.json",\n  "none.json", "b.json"] }`, {
      [FILE]: a,
      "/etc/gw/b.json": '[{ "name": "c" }]',
    });
    const url =
      'expected a path such as "/items?x=1", or an http:// or https:// URL, in printable ASCII, without "#", ' +
      "user name and password, found a string";
    expect(rows).toEqual([
      "gw.json:2:11  tests  expected an array, found a number",
      "gw.json:4:3  test_files[1]  cannot read /etc/gw/none.json: no such file",
      `${FILE}:2:38  [0].request.url  ${url}`,
      `${FILE}:2:68  [0].expect.service  expected the name of a service, found "ordrs"`,
      `${FILE}:3:3  [1].name  is required (a name of 1–200 characters without control characters)`,
      `${FILE}:3:5  [1].nam  is not a known field; did you mean "name"?`,
      `${FILE}:3:52  [1].request.method  expected an HTTP method in upper case, found "get": ` +
        `methods are case-sensitive, write "GET"`,
      `${FILE}:3:71  [1].expect  needs at least one member, such as "status": 200`,
      "/etc/gw/b.json:1:2  [0].request  is required (The request.)",
      "/etc/gw/b.json:1:2  [0].expect  is required (What is expected; at least one member.)",
    ]);
  });

  it.each<[string, string | Buffer, string]>([
    ["no JSON", "[{]", `${FILE}:1:3  [0]  expected a key in double quotes, found "]"`],
    ["empty", "", `${FILE}:1:1  expected a value, found the end of the file`],
    ["not a list", '{ "tests": [] }', `${FILE}:1:1  expected an array, found an object`],
    [
      "a key twice",
      '[{ "name": "a", "name": "b", "request": { "url": "/" }, "expect": { "status": 200 } }]',
      `${FILE}:1:17  [0].name  duplicate key: the first "name" is at 1:4`,
    ],
    [
      "not UTF-8",
      Buffer.from([0x5b, 0xff, 0x5d]),
      `${FILE}:1:2  expected UTF-8, found bytes that are not UTF-8: save the file as UTF-8`,
    ],
    ["an item that is no test", "[5]", `${FILE}:1:2  [0]  expected an object, found a number`],
  ])("is reported once, with its line and column: %s", (_what, content, row) => {
    expect(issuesOf({ services, test_files: ["a.json"] }, { [FILE]: content })).toEqual([row]);
  });

  it("is reported where the configuration names it if it cannot be read", () => {
    const denied = Object.assign(new Error(""), { code: "EACCES" });
    expect(
      withoutPlaces(issuesOf({ services, test_files: ["a.json", "${env:KEY}", "", 5, "[\n]"] }, { [FILE]: denied })),
    ).toEqual([
      "test_files[0]  cannot read /etc/gw/a.json: permission denied",
      "test_files[1]  cannot read ${env:KEY}: no such file",
      'test_files[2]  expected the path of a file, found ""',
      "test_files[3]  expected the path of a file or an object, found 5",
      "test_files[4]  expected the path of a file, found the content of a file: " +
        "save it to a file and write its path here",
    ]);
    expect(withoutPlaces(issuesOf({ services, test_files: "a.json" }))).toEqual([
      'test_files  expected an array, found "a.json"',
    ]);
  });

  it("is reported if it is named twice, and not test by test", () => {
    expect(
      withoutPlaces(issuesOf({ services, test_files: ["a.json", "/etc/gw/a.json"] }, { [FILE]: [testOf("a")] })),
    ).toEqual(["test_files[1]  is the same file as test_files[0]"]);
  });

  it("is shown with its position also where the configuration is a value", () => {
    const result = loadConfig(
      { value: { services: [], test_files: ["/a.json"] } },
      { kinds: [], environment: {}, readFile: () => "[5]" },
    );
    expect(!result.ok && formatIssues(result.issues)).toBe("/a.json:1:2  [0]  expected an object, found a number");
    expect(!result.ok && result.issues[0]).toMatchObject({
      at: [0],
      file: "/a.json",
      position: { line: 1, column: 2 },
    });
  });
});

describe("the name of a test", () => {
  it("belongs to one test, also across files", () => {
    const files = {
      "/etc/gw/a.json": [testOf("in a"), testOf("own")],
      "/etc/gw/b.json": [testOf("k"), testOf("in a")],
    };
    const rows = issuesOf(
      { services, tests: [testOf("own"), testOf("k"), testOf("own")], test_files: ["a.json", "b.json"] },
      files,
    );
    expect(withoutPlaces(rows)).toEqual([
      'tests[2].name  "own" is already used by tests[0]',
      '/etc/gw/a.json:1:72  [1].name  "own" is already used by tests[0]',
      '/etc/gw/b.json:1:10  [0].name  "k" is already used by tests[1]',
      '/etc/gw/b.json:1:69  [1].name  "in a" is already used by [0] of /etc/gw/a.json',
    ]);
  });

  it("is also compared with names of tests that have other errors", () => {
    const rows = withoutPlaces(issuesOf({ services, tests: [{ name: "a" }, testOf("a")] }));
    expect(rows).toContain('tests[1].name  "a" is already used by tests[0]');
  });
});

describe("an expected service or route", () => {
  it.each<[string, object]>([
    ["a service", { service: "orders" }],
    ["a route of a service", { service: "orders", route: "one" }],
    ["a route by the name that it gets by default", { service: "orders", route: "GET /" }],
    ["a route of any service", { route: "only-b" }],
    ["no service and no route", { service: null, route: null }],
    ["patterns", { service: { matches: "x" }, route: { matches: "y" } }],
    ["a route of a service that a pattern stands for", { service: { matches: "ord" }, route: "one" }],
  ])("may be %s", (_what, expected) => {
    expect(issuesOf({ services, tests: [testOf("a", expected)] })).toEqual([]);
  });

  it.each<[string, object, string]>([
    [
      "an unknown service",
      { service: "order" },
      'service  expected the name of a service, found "order": did you mean "orders"?',
    ],
    [
      "an unknown service beside a route",
      { service: "x", route: "y" },
      'service  expected the name of a service, found "x"',
    ],
    [
      "an unknown route",
      { service: "orders", route: "on" },
      'route  expected the name of a route of the service "orders", found "on": did you mean "one"?',
    ],
    [
      "a route of another service",
      { service: "orders", route: "only-b" },
      'route  expected the name of a route of the service "orders", found "only-b"',
    ],
    [
      "an unknown route of any service",
      { route: "only-c" },
      'route  expected the name of a route, found "only-c": did you mean "only-b"?',
    ],
    [
      "an unknown route of a service that a pattern stands for",
      { service: { matches: "a" }, route: "two" },
      'route  expected the name of a route, found "two"',
    ],
    [
      "a reference, which no name is",
      { service: "${env:NAME}" },
      "service  ${env:NAME} is not replaced here: write the text itself (references are for secrets and " +
        "addresses, not for names, ids, paths, hosts, methods and conditions)",
    ],
  ])("is reported if it does not exist, with the nearest name: %s", (_what, expected, row) => {
    expect(withoutPlaces(issuesOf({ services, tests: [testOf("a", expected)] }))).toEqual([`tests[0].expect.${row}`]);
  });

  it("is checked together with other errors of the configuration, unless they could hide its name", () => {
    const tests = [testOf("a", { service: "orders", route: "two" })];
    const routes = [
      { name: "one", path: "/{id}" },
      { name: "three", path: "x" },
    ];
    const messages = (service: object) =>
      withoutPlaces(issuesOf({ services: [{ ...services[0], ...service }], tests }, {}, { checkRoutes: () => [] }));
    const unknown = 'tests[0].expect.route  expected the name of a route of the service "orders", found "two"';
    expect(messages({ upstreams: [] })).toContain(unknown);
    expect(messages({ routes })).toContain(unknown);
    for (const hidden of [
      { name: 5 },
      { routes: 5 },
      { routes: [{ path: "x" }] },
      { routes: [{ path: "/", name: "${env:NOPE}" }] },
      { routes: [{ path: "/", methods: [5] }] },
    ]) {
      expect(messages(hidden).length).toBeGreaterThan(0);
      expect(messages(hidden).join("\n")).not.toContain("expect.route");
    }
    for (const broken of [{ services: 5, tests }, { tests }])
      expect(issuesOf(broken).join("\n")).not.toContain("expect.service");
  });

  it("is found under the first and the second of two services of one name, which is the only error", () => {
    const twice = [services[0]!, { ...services[0]!, base_path: "/c", routes: [{ name: "two", path: "/" }] }];
    const rows = issuesOf({
      services: twice,
      tests: [testOf("a", { service: "orders", route: "one" }), testOf("b", { service: "orders", route: "two" })],
    });
    expect(withoutPlaces(rows)).toEqual(['services[1].name  "orders" is already used by services[0]']);
  });
});

describe("many tests", () => {
  const many = (length: number, prefix: string) => Array.from({ length }, (_, i) => testOf(`${prefix}${i}`));

  it("up to 10,000 are loaded", () => {
    expect(
      loaded({ services, tests: many(9_999, "a"), test_files: ["a.json"] }, { "/etc/gw/a.json": many(1, "b") }).tests,
    ).toHaveLength(10_000);
  });

  it("more than 10,000 are one error, where they become too many", () => {
    const brokenToo = [...many(9_999, "a"), {}, {}];
    expect(withoutPlaces(issuesOf({ services, tests: brokenToo }))).toEqual([
      "tests  expected at most 10000 tests in all, found 10001",
    ]);
    const files = { "/etc/gw/a.json": many(9_999, "a"), "/etc/gw/b.json": many(2, "b") };
    expect(issuesOf({ services, test_files: ["a.json", "b.json"] }, files)).toEqual([
      "/etc/gw/b.json:1:1  expected at most 10000 tests in all, found 10001",
    ]);
  });

  it.each<[string, (i: number) => object]>([
    ["right names", (i) => ({ service: "s0", route: `r${i}` })],
    ["unknown services", (i) => ({ service: `s${i}x` })],
    ["unknown routes", (i) => ({ route: `r${i}x` })],
    ["unknown routes of a service", (i) => ({ service: "s0", route: `r${i}x` })],
  ])(
    "take time in proportion to their number, with as many services and routes: %s",
    { timeout: 60_000 },
    async (_what, expected) => {
      const fresh = await counted(() => import("../support/schema.ts"));
      const configuration = (size: number) => ({
        services: Array.from({ length: size }, (_, i) => {
          return {
            name: `s${i}`,
            base_path: `/${i}`,
            upstreams: [{ host: "h", port: 1 }],
            routes: i > 0 ? [] : Array.from({ length: size }, (_, j) => ({ name: `r${j}`, path: `/r${j}` })),
          };
        }),
        tests: Array.from({ length: size }, (_, i) => testOf(`a${i}`, expected(i))),
      });
      const texts = new Map([100, 800].map((size) => [size, JSON.stringify(configuration(size))]));
      expect(
        growth((size) => void load(texts.get(size)!, {}, { checkRoutes: () => [] }, fresh.loadConfig), 100),
      ).toBeLessThan(LINEAR);
    },
  );
});

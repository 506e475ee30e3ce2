/**
 * `edge-gateway compare`: what it finds between versions with planted changes, and what it says of folders, files and
 * versions that are no use.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/base/version.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

interface Found {
  readonly differences: readonly {
    readonly kind: string;
    readonly what: string;
    readonly old: string;
    readonly new: string;
    readonly routes: string[];
    readonly requests: number;
    readonly example: string | null;
  }[];
  readonly requests: Readonly<Record<string, number>>;
  readonly access_log: object | null;
  readonly not_compared: readonly string[];
  readonly old: { readonly version: string; readonly accepts: boolean; readonly issues: readonly string[] };
}

/** A copy of this version with other texts in some files of dist/lib. */
function planted(changes: Readonly<Record<string, readonly [old: string, now: string]>>, name = "version"): string {
  const folder = join(emptyFolder(), name);
  mkdirSync(folder);
  for (const each of ["package.json", "dist"]) cpSync(join(ROOT, each), join(folder, each), { recursive: true });
  for (const [path, [old, now]] of Object.entries(changes)) {
    const file = join(folder, "dist/lib", path);
    const text = existsSync(file) ? readFileSync(file, "utf8") : "";
    expect(text).toContain(old);
    writeFileSync(
      file,
      text.replace(old, () => now),
    );
  }
  return folder;
}

/** A folder of a version whose interface for programs is this text. */
function written(text: string, more: object = {}): string {
  const folder = emptyFolder();
  mkdirSync(join(folder, "dist/lib"), { recursive: true });
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "edge-gateway", version: "9.9.9", type: "module", ...more }),
  );
  writeFileSync(join(folder, "dist/lib/index.js"), text);
  return folder;
}

const compare = (old: string, next: string, words: readonly string[], environment: Record<string, string> = {}) =>
  program(["compare", old, next, ...words], { environment }).ended;

async function found(
  old: string,
  next: string,
  config: object | string,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<Found> {
  const file = typeof config === "string" ? config : fileWith(config);
  const { stdout, stderr, code } = await compare(old, next, ["--config", file, "--json", ...words], environment);
  expect(stderr).toBe("");
  const view = JSON.parse(stdout) as Found;
  expect(code).toBe(view.differences.length === 0 ? 0 : 1);
  return view;
}

const kindsOf = ({ differences }: Found) => [...new Set(differences.map(({ kind }) => kind))];

const SECRET = "a-key-that-nobody-may-see";
const PASSWORD = "a password that nobody may see";
const HASH = `scrypt$1024$8$1$${"A".repeat(22)}$${"A".repeat(42)}E`;
const CONFIG = {
  global: { plugins: [{ name: "key_auth", config: { key: SECRET, from: ["query:k"] } }] },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ host: "orders.internal", port: 3000 }],
      plugins: [{ name: "rate_limit", config: { limit_min: 9 } }],
      routes: [
        { name: "item", path: "/items/{id}" },
        { name: "rest", path: "/{rest*}", methods: ["GET"] },
      ],
    },
    {
      name: "open",
      base_path: "/open",
      hosts: ["a.example"],
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ name: "x", path: "/x" }],
    },
    {
      ...{
        name: "inner",
        base_path: "/inner",
        upstreams: [{ host: "127.0.0.1", port: 9 }],
        routes: [{ name: "y", path: "/y" }],
      },
      plugins: [
        {
          name: "basic_auth",
          config: {
            users: [
              { username: "eve", password: HASH },
              { username: "ada", password: PASSWORD },
            ],
          },
        },
      ],
    },
  ],
  // A line of text ends at U+2028 for some readers.
  tests: [
    { name: "no key", request: { url: "/shop/items/7" }, expect: { status: 401 } },
    { name: "a\u2028b", request: { url: "/nowhere" }, expect: { status: 404 } },
  ],
};

describe("compare", { timeout: 60_000 }, () => {
  it("finds nothing between a version and itself, or its copy behind a link in a path with spaces", async () => {
    const copy = planted({}, "a version");
    const link = join(emptyFolder(), "link to it");
    symlinkSync(copy, link);
    const view = await found(ROOT, link, CONFIG);
    expect(view).toMatchObject({ differences: [], not_compared: [], old: { version, accepts: true } });
    expect(Object.keys(view.requests)).toEqual(
      expect.arrayContaining([
        "a route",
        "a route, with its key",
        "a route, with its key and password",
        "an overlap of routes",
        "of a test",
        "with %2F",
        "with dots",
        "with another method",
      ]),
    );
    const { code, stdout } = await compare(ROOT, ROOT, ["--config", fileWith(CONFIG)]);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^\S+ \(.*\) and \S+ \(.*\): \d+ requests compared\nnothing differs\n$/),
    ]);
  });

  it(
    "finds planted changes in the decoding of paths, the order of guards, a default, " +
      "forwarded paths and headers, and shows no key",
    async () => {
      const changed = planted({
        "route/path.js": ["return BACKSLASH_FOUND", 'segment = "other"'],
        "plugins/chain.js": [
          "export function runningOrder(written) {",
          "export function runningOrder(written) { return written.toReversed();",
        ],
        "plugins/key_auth.js": ['request is forwarded." }), false)', 'request is forwarded." }), true)'],
        "route/table.js": ['below || "/"', "`${below}/`"],
        "upstream/heads.js": ['"X-Request-Id", call.id', '"X-Trace-Id", call.id'],
      });
      const file = fileWith(CONFIG);
      const view = await found(ROOT, changed, file);
      const said = (kind: string, what: RegExp) =>
        view.differences.find((each) => each.kind === kind && what.test(each.what));
      expect(said("guards_lost", /^no longer refused \(with a backslash\)$/)).toMatchObject({
        old: "400 path_ambiguous",
        new: "shop / rest",
        routes: ["shop / rest"],
        requests: 1,
        example: expect.stringContaining("\\") as string,
      });
      expect(said("verdict", /^its plugins run in another order$/)).toMatchObject({
        old: "key_auth of the global, rate_limit of the service",
        new: "rate_limit of the service, key_auth of the global",
      });
      expect(said("defaults", /hide_credentials$/)).toMatchObject({
        what: "global.plugins[].config.hide_credentials",
        old: "false",
        new: "true",
        example: null,
      });
      expect(said("forwarded_path", /^another path \(a route, with its key\)$/)).toMatchObject({
        old: expect.stringMatching(/k=\*{8}$/) as string,
      });
      expect(said("upstream_headers", /^x-request-id is gone$/)).toMatchObject({
        new: "nothing",
        routes: ["shop / item", "shop / rest", "open / x", "inner / y"],
      });
      expect(kindsOf(view)[0]).toBe("guards_lost");
      const { code, stdout } = await compare(ROOT, changed, ["--config", file]);
      expect([code, stdout]).toEqual([
        1,
        expect.stringMatching(
          new RegExp(
            String.raw`\nguards lost:\n {2}shop \/ rest: no longer refused[^]*\nother headers for ` +
              String.raw`the upstream:\n[^]*: read them before you upgrade\n$`,
          ),
        ),
      ]);
      for (const secret of [SECRET, PASSWORD, Buffer.from(`ada:${PASSWORD}`).toString("base64")])
        expect(stdout + JSON.stringify(view)).not.toContain(secret);
    },
  );

  it(
    "finds a guard that admits everybody, another result of a test and lines of an access log, " +
      "and counts lines that cannot be read",
    async () => {
      const changed = planted({
        "plugins/key_auth.js": [
          "{ gatewayName, scope, callers, clock }) {",
          "{ gatewayName, scope, callers, clock }) { return (next) => next;",
        ],
      });
      const line = { method: "GET", host: "a.example", path: "/open/x", service: "open", route: "x", status: 401 };
      const log = [
        ...Array.from({ length: 500 }, () => JSON.stringify(line)),
        '192.0.2.1 - - [28/Nov/2026:06:00:00 +0000] "POST /shop/items/8 HTTP/1.1" 401 9 "-" "curl"',
        "{",
        "no line",
        "x".repeat(100_000),
        "",
      ].join("\n");
      const view = await found(ROOT, changed, CONFIG, ["--access-log", fileWith(log)]);
      expect(view.differences[0]).toMatchObject({
        kind: "guards_lost",
        what: "no longer refused: key_auth of the global answers 401 key_missing",
        new: "passed on",
      });
      expect(view.differences.find(({ kind }) => kind === "tests")).toMatchObject({ what: "no key", requests: 0 });
      expect([view.access_log, view.requests["of the access log"]]).toEqual([{ lines: 504, unreadable: 3 }, 2]);
    },
  );

  it("exits with 1 if one version refuses the configuration, and with 2 if both do", async () => {
    const changed = planted({ "plugins/key_auth.js": ['name: "key_auth"', 'name: "key_door"'] });
    const view = await found(changed, ROOT, CONFIG);
    expect(view).toMatchObject({ differences: [{ kind: "acceptance", new: "accepted" }], old: { accepts: false } });
    expect(view.old.issues.join()).toContain("key_auth");
    expect(await compare(ROOT, ROOT, ["--config", fileWith({ services: [{ name: "s" }] })])).toMatchObject({
      code: 2,
      stdout: "",
      stderr: expect.stringMatching(/both versions refuse the configuration:\n\S+: .*base_path/) as string,
    });
  });

  it(
    "gives a version no right to write, to start programs or to dial, " +
      "and no variable that the configuration does not name",
    async () => {
      const outside = fileWith("secret");
      const spy = `
      import { readFileSync, writeFileSync } from "node:fs";
            import { spawnSync } from "node:child_process";
      import net from "node:net";
      const tried = [() => writeFileSync("written", ""), () => spawnSync("true"), () => \
readFileSync(${JSON.stringify(outside)})].map((each) => { try { each(); return "done"; } catch (error) { return \
error.code; } });
      const dialled = await new Promise((resolve) => net.connect(9, "127.0.0.1").on("error", ({ message }) => \
resolve(message)));
      console.log("x".repeat(100_000));
      export const loadPluginModules = async () => ({});
      export function createGateway() { throw new Error(JSON.stringify([tried, dialled, Object.keys(process.env), \
process.env.NAMED])); }`;
      const { stderr } = await compare(
        written(spy),
        written(spy),
        ["--config", fileWith({ ...CONFIG, x: "\${env:NAMED}" })],
        { NAMED: "1", OTHER: "2" },
      );
      expect(stderr).toContain(
        JSON.stringify([
          ["ERR_ACCESS_DENIED", "ERR_ACCESS_DENIED", "ERR_ACCESS_DENIED"],
          "nothing is dialled here",
          ["NAMED"],
          "1",
        ]),
      );
    },
  );

  it.each(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
    "leaves no version behind at %s, also if that hangs",
    async (signal) => {
      const hangs = written("for (;;);");
      const { child, ended } = program(["compare", hangs, hangs, "--config", fileWith(CONFIG)]);
      const versions = () =>
        readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim().split(" ").filter(Boolean);
      let pids: string[] = [];
      // Behind "exec" of both, which are then in the endless loop or on the way to it.
      while (pids.length < 2) [pids] = [versions(), await new Promise((resolve) => setTimeout(resolve, 10))];
      onTestFinished(() => pids.filter(runs).forEach((pid) => process.kill(Number(pid), "SIGKILL")));
      child.kill(signal);
      expect((await ended).signal).toBe(signal);
      while (pids.some(runs)) await new Promise((resolve) => setTimeout(resolve, 10));
    },
  );

  it.each<readonly [string, () => readonly [string, string, ...string[]], RegExp]>([
    ["without NEW", () => [ROOT, ""], /^edge-gateway: compare needs the folders of two versions/],
    [
      "with a folder that is not there",
      () => [ROOT, "/nowhere"],
      /\/nowhere is no version of edge-gateway: its package.json cannot be read: no such file/,
    ],
    ["with a file", () => [fileWith("x"), ROOT], /its package.json cannot be read: no such file/],
    ["with a broken package.json", () => [brokenPackage(), ROOT], /its package.json cannot be read: .*JSON/],
    ["with another package", () => [written("", { name: "express" }), ROOT], /its package.json is that of "express"/],
    [
      "with a clone that is not built",
      () => [join(written(""), "."), withoutDist()],
      /has no dist\/lib\/index.js and no .*npm run build/,
    ],
    ["with a build that cannot explain", () => [ROOT, buildWithout()], /a package of build --with explain --with test/],
    [
      "with a version that crashes",
      () => [written("throw new TypeError('broken')"), ROOT],
      /\(edge-gateway 9\.9\.9\) cannot be run: it ended with exit code 1: TypeError: broken/,
    ],
    ["with a version that ends", () => [written("process.exit(3)"), ROOT], /cannot be run: it ended with exit code 3/],
    [
      "with a version that has no explain",
      () => [written("export const loadPluginModules = () => {}; export const createGateway = () => ({})"), ROOT],
      new RegExp(
        String.raw`cannot be run: it ended with exit code 1: Error: it has no createGateway with ` +
          String.raw`explain, as versions since 0.2.0 have`,
      ),
    ],
    [
      "with a package that is no gateway",
      () => [written("export const createServer = 1"), ROOT],
      /cannot be run: .*it has no createGateway with explain/,
    ],
    [
      "with a version that answers garbage",
      () => [written("import { writeSync } from 'node:fs'; writeSync(3, '[1]\\n')"), ROOT],
      /its answers have another form/,
    ],
    [
      "with a version that answers no JSON",
      () => [written("import { writeSync } from 'node:fs'; writeSync(3, 'what?\\n')"), ROOT],
      /cannot be run/,
    ],
    [
      "without its configuration",
      () => [ROOT, ROOT, "--config", "/nowhere/gw.json"],
      /cannot read \/nowhere\/gw.json: no such file/,
    ],
    ["with a configuration that is no JSON", () => [ROOT, ROOT, "--config", fileWith("{")], /cannot read .*: .*JSON/],
    ["without its access log", () => [ROOT, ROOT, "--access-log", "/nowhere"], /cannot read \/nowhere: no such file/],
  ])("exits with 2 %s", async (_what, made, message) => {
    const [old, next, ...words] = made();
    const { code, stdout, stderr } = await compare(
      old,
      next,
      words.includes("--config") ? words : ["--config", fileWith(CONFIG), ...words],
    );
    expect([code, stdout, stderr]).toEqual([2, "", expect.stringMatching(message)]);
  });
});

/** Whether the process runs: nobody may have taken note of the end of an orphan. */
function runs(pid: string): boolean {
  return existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
}

function brokenPackage(): string {
  const folder = emptyFolder();
  writeFileSync(join(folder, "package.json"), "{");
  return folder;
}

/** What `build --with compare` makes. */
function buildWithout(): string {
  const folder = withoutDist();
  mkdirSync(join(folder, "dist/lib/cli"), { recursive: true });
  writeFileSync(join(folder, "dist/lib/cli/config_file.js"), "export const openCandidate = () => {};");
  return folder;
}

function withoutDist(): string {
  const folder = emptyFolder();
  writeFileSync(join(folder, "package.json"), '{"name":"edge-gateway","version":"1.0.0"}');
  return folder;
}

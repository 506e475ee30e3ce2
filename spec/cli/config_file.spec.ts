import { describe, expect, it } from "vitest";
import { warningLines } from "../../lib/cli/warning_text.ts";
import { oneService } from "../support/gateway.ts";
import { CLIENT, SERVER } from "../support/certs.ts";
import { fileWith, program } from "../support/process.ts";

const guarded = oneService(9, { plugins: [{ name: "key_auth", config: { key: "k" } }] });
const PASSES = { name: "needs a key", request: { url: "/a/x" }, expect: { status: 401 } };
const FAILS = { name: "is open", request: { url: "/a/x" }, expect: { status: 200 } };
const withTests = (...tests: unknown[]) => fileWith({ ...guarded, tests });

const run = (...words: string[]) => program(["validate", ...words]).ended;

describe("edge-gateway validate", () => {
  it("runs the tests, and says how many passed; exit 0", async () => {
    const file = withTests(PASSES, { ...PASSES, name: "second" });
    const { code, stdout, stderr } = await run(file);
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout.startsWith(`${file} is valid (1 service, 2 routes; 2 tests passed)`)).toBe(true);
  });

  it("reports every test that fails with its place; exit 2", async () => {
    const file = withTests(PASSES, FAILS, { ...FAILS, name: "second" });
    const { code, stdout, stderr } = await run(file);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr.split("\n")).toEqual([
      expect.stringMatching(
        /gw\.json:1:\d+ +tests\[1\] +"is open" failed: status: expected 200, found 401; the error code is key_missing$/,
      ),
      expect.stringMatching(
        /gw\.json:1:\d+ +tests\[2\] +"second" failed: status: expected 200, found 401; the error code is key_missing$/,
      ),
      "The configuration has 2 errors; nothing was started.",
      "",
    ]);
  });

  it("runs no tests with --no-tests, and says so; exit 0", async () => {
    const { code, stdout, stderr } = await run(withTests(FAILS), "--no-tests");
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/ is valid \(1 service, 2 routes; tests not run\)\n$/);
  });

  it("prints JSON with --json, also of a configuration with errors", async () => {
    const json = async (file: string, ...words: string[]) => {
      const { code, stdout, stderr } = await run(file, "--json", ...words);
      expect(stderr).toBe("");
      return { code, ...(JSON.parse(stdout) as object) };
    };
    const counts = { services: 1, routes: 2, upstreams: 1 };
    const digest: unknown = expect.stringMatching(/^[0-9a-f]{12}$/);
    const result = (name: string, found: number, expected: number, differences: string[]) => ({
      name,
      passed: differences.length === 0,
      expected: { status: expected },
      found: { status: found },
      differences,
      differing: differences.length === 0 ? [] : ["status"],
    });
    const passed = result("needs a key", 401, 401, []);
    const failed = result("is open", 401, 200, ["status: expected 200, found 401", "the error code is key_missing"]);
    expect(await json(withTests(PASSES))).toEqual({
      code: 0,
      valid: true,
      digest,
      counts,
      tests: { passed: 1, failed: 0, tests: [passed] },
      warnings: [],
      undecided: [],
      issues: [],
    });
    expect(await json(withTests(FAILS), "--no-tests")).toEqual({
      code: 0,
      valid: true,
      digest,
      counts,
      tests: null,
      warnings: [],
      undecided: [],
      issues: [],
    });
    const file = withTests(FAILS);
    const issue = {
      file,
      line: 1,
      column: expect.any(Number) as unknown,
      path: "tests[0]",
      message: '"is open" failed: status: expected 200, found 401; the error code is key_missing',
    };
    expect(await json(file)).toEqual({
      code: 2,
      valid: false,
      digest,
      counts,
      tests: { passed: 0, failed: 1, tests: [failed] },
      warnings: [],
      undecided: [],
      issues: [issue],
    });
    const broken = fileWith('{\n"services": 1}');
    const expected = {
      file: broken,
      line: 2,
      column: 13,
      path: "services",
      message: expect.stringMatching(/^expected an array/) as unknown,
    };
    expect(await json(broken)).toEqual({
      code: 2,
      valid: false,
      digest: null,
      counts: null,
      tests: null,
      warnings: [],
      undecided: [],
      issues: [expected],
    });
  });

  it("names the warnings and errors of a start that settings decide about", async () => {
    const plugins = [{ name: "quota", config: { limit: 5, per: "day" } }, { name: "mtls" }];
    const file = fileWith(oneService(9, { plugins } as never, { https_redirect: {} }));
    const { stdout } = await run(file, "--settings", "none");
    expect(stdout).toContain("; the settings decide about quota_not_durable, mtls_idle, https_redirect)");
    expect(JSON.parse((await run(file, "--json", "--settings", "none")).stdout)).toMatchObject({
      undecided: ["quota_not_durable", "mtls_idle", "https_redirect"],
    });
  });

  describe("with the settings of run", () => {
    const redirecting = () => fileWith(oneService(9, {}, { https_redirect: {} }));
    const certificate = () => ["--server-cert-path", fileWith(SERVER.cert), "--server-key-path", fileWith(SERVER.key)];

    it("refuses a redirect to HTTPS without a certificate, as run does, and takes it with one", async () => {
      const file = redirecting();
      const { code, stderr } = await run(file);
      expect([code, stderr]).toEqual([2, expect.stringContaining("global.https_redirect  needs an HTTPS listener")]);
      expect(await run(file, ...certificate())).toMatchObject({ code: 0, stdout: expect.stringContaining("is valid") });
      expect((await run(file, "--settings", "none")).code).toBe(0);
    });

    it.each<readonly [string, () => readonly string[], string]>([
      [
        "a certificate without its key",
        () => ["--server-cert-path", fileWith(SERVER.cert)],
        "SERVER_CERT_PATH needs SERVER_KEY_PATH",
      ],
      [
        "a key of another certificate",
        () => ["--server-cert-path", fileWith(SERVER.cert), "--server-key-path", fileWith(CLIENT.key)],
        "does not belong to the certificate",
      ],
      ["a port that is none", () => ["--http-port", "99999"], "--http-port: expected an integer"],
      ["another word for no settings", () => ["--settings", "all"], '--settings: expected none, found "all"'],
    ])("refuses %s", async (_what, words, message) => {
      const { code, stderr } = await run(fileWith(oneService(9)), ...words());
      expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    });

    it("leaves the settings out with --settings none, whatever they are", async () => {
      const words = ["--settings", "none", "--server-cert-path", "/nowhere"];
      expect((await run(fileWith(oneService(9)), ...words)).code).toBe(0);
    });
  });

  describe("with warnings", () => {
    const bypassed = oneService(9, {
      routes: [
        { name: "items", path: "/items/{id}", plugins: [{ name: "key_auth", config: { key: "k" } }] },
        { name: "news", path: "/items/news" },
      ],
    });
    const text = (config: object) => JSON.stringify(config, null, 2);
    const warning = (file: string) => [
      expect.stringMatching(
        new RegExp(
          `^${file}:\\d+:\\d+  guard_bypassed  services\\.s\\.routes\\.items by services\\.s\\.routes\\.news  `,
        ),
      ),
      expect.stringMatching(/^ {4}example: GET http:\/\/\S+\/a\/items\/news$/),
      expect.stringMatching(/^ {4}remedy: \S/),
    ];

    it("prints each with its place, an example and a remedy to standard error, and their number; exit 0", async () => {
      const file = fileWith(text(bypassed));
      const { code, stdout, stderr } = await run(file);
      expect(code).toBe(0);
      expect(stderr.split("\n")).toEqual([...warning(file), ""]);
      const line = text(bypassed)
        .split("\n")
        .findIndex((each) => each.includes('"path": "/items/{id}"'));
      expect(Number(/:(\d+):/.exec(stderr)![1])).toBe(line + 1);
      expect(stdout).toMatch(/ is valid \(1 service, 2 routes; 1 warning\)\n$/);
    });

    it("exits 2 with --strict, unless they are accepted", async () => {
      const file = fileWith(text(bypassed));
      const strict = await run(file, "--strict");
      expect([strict.code, strict.stdout]).toEqual([2, expect.stringContaining(" is valid (")]);
      expect(strict.stderr.split("\n")).toEqual([
        ...warning(file),
        "edge-gateway: --strict accepts no warning: correct it, or name it in global.accept_warnings",
        "",
      ]);
      const entry = "guard_bypassed:services.s.routes.items by services.s.routes.news";
      const accepted = { ...bypassed, global: { accept_warnings: [entry] } };
      expect(await run(fileWith(accepted), "--strict")).toMatchObject({ code: 0, stderr: "" });
      expect(await run(fileWith({ ...accepted, services: [] }), "--strict")).toMatchObject({
        code: 2,
        stderr: expect.stringContaining("stale_acceptance  global.accept_warnings[0]") as string,
      });
      expect(await run(fileWith(guarded), "--strict")).toMatchObject({ code: 0, stderr: "" });
    });

    it("lists them in the JSON of --json; exit 2 with --strict", async () => {
      const { code, stdout, stderr } = await run(fileWith(text(bypassed)), "--json", "--strict");
      expect(code).toBe(2);
      expect(stderr).toBe(
        "edge-gateway: --strict accepts no warning: correct it, or name it in global.accept_warnings\n",
      );
      const { valid, warnings } = JSON.parse(stdout) as { valid: boolean; warnings: object[] };
      expect([valid, warnings]).toEqual([
        true,
        [
          {
            code: "guard_bypassed",
            path: "services.s.routes.items by services.s.routes.news",
            message: expect.any(String),
            example: expect.any(String),
            remedy: expect.any(String),
          },
        ],
      ]);
    });

    it("prints them also for a configuration whose test fails; exit 2", async () => {
      const file = fileWith(text({ ...bypassed, tests: [{ ...FAILS, request: { url: "/a/items/7" } }] }));
      const { code, stderr } = await run(file);
      expect(code).toBe(2);
      expect(stderr.split("\n").slice(0, 4)).toEqual([...warning(file), expect.stringContaining('"is open" failed')]);
    });
  });

  it.each([
    [["--strict=1"], "edge-gateway: --strict takes no value\n"],
    [["--stric"], "edge-gateway: --stric is not a known flag; did you mean --strict?\n"],
    [["--junit", "x"], "edge-gateway: --junit is not a known flag\n"],
  ])("%j exits 2 with the remedy", async (words, stderr) => {
    expect(await run(...words)).toMatchObject({ code: 2, stdout: "", stderr });
  });
});

describe("warningLines", () => {
  const warning = {
    code: "guard_bypassed",
    path: "services.shop.routes.items",
    message: "It can be passed by.",
    example: "GET http://h/x",
    remedy: "Guard both.",
  };

  it("has place, code, path and message on a line, then the example and the remedy", () => {
    const lines = [
      "gw.json:12:5  guard_bypassed  services.shop.routes.items  It can be passed by.",
      "    example: GET http://h/x",
      "    remedy: Guard both.",
    ];
    expect(warningLines([{ ...warning, line: 12, column: 5 }], "gw.json")).toEqual(lines);
  });

  it("leaves out what is not known", () => {
    expect(warningLines([{ ...warning, path: null, example: null, line: null, column: null }], "gw.json")).toEqual([
      "gw.json  guard_bypassed  It can be passed by.",
      "    remedy: Guard both.",
    ]);
    expect(warningLines([{ ...warning, example: null }], null)[0]).toBe(
      "guard_bypassed  services.shop.routes.items  It can be passed by.",
    );
  });
});

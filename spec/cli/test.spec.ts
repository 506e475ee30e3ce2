import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { inColour, plain } from "../../lib/cli/terminal.ts";
import { reportText } from "../../lib/cli/test.ts";
import type { TestResult } from "../../lib/index.ts";
import { oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const guarded = oneService(9, { plugins: [{ name: "key_auth", config: { key: "k" } }] });
const NEEDS_KEY = { name: "needs a key", request: { url: "/a/x" }, expect: { status: 401, code: "key_missing" } };
const PASSES = {
  name: "passes with the key",
  request: { url: "/a/x", headers: { apiKey: "k" } },
  expect: { status: 200, upstream_path: "/x" },
};
const WRONG = { name: "is open", request: { url: "/a/x" }, expect: { status: 200 } };
const withTests = (...tests: unknown[]) => fileWith({ ...guarded, tests });

const run = (...words: string[]) => program(["test", ...words]).ended;

describe("edge-gateway test", () => {
  it("prints a line for each test and the counts; exit 0 if all pass", async () => {
    const ended = await run(withTests(NEEDS_KEY, PASSES));
    expect(ended).toEqual({
      code: 0,
      signal: null,
      stdout: "ok    needs a key\nok    passes with the key\n2 passed\n",
      stderr: "",
    });
  });

  it("prints expected and found side by side for a test that fails; exit 1", async () => {
    const { code, stdout, stderr } = await run("--config", withTests(NEEDS_KEY, WRONG));
    expect([code, stderr]).toEqual([1, ""]);
    expect(stdout).toBe(
      "ok    needs a key\nFAIL  is open\n              expected  found\n    > status  200       401\n    the " +
        "error code is key_missing\n1 passed, 1 failed\n",
    );
  });

  it("prints JSON with --json", async () => {
    const { code, stdout } = await run(withTests(NEEDS_KEY, WRONG), "--json");
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toEqual({
      passed: 1,
      failed: 1,
      tests: [
        {
          name: "needs a key",
          passed: true,
          expected: { status: 401, code: "key_missing" },
          found: { status: 401, code: "key_missing" },
          differences: [],
          differing: [],
        },
        {
          name: "is open",
          passed: false,
          expected: { status: 200 },
          found: { status: 401 },
          differences: ["status: expected 200, found 401", "the error code is key_missing"],
          differing: ["status"],
        },
      ],
    });
  });

  it("runs only the tests whose names contain the text of --only; exit 2 if there are none", async () => {
    const file = withTests(NEEDS_KEY, WRONG);
    expect(await run(file, "--only", "key")).toMatchObject({ code: 0, stdout: "ok    needs a key\n1 passed\n" });
    expect(await run(file, "--only", "Key", "--junit", join(dirname(file), "out.xml"))).toMatchObject({
      code: 2,
      stdout: "",
      stderr: `edge-gateway: --only: none of the 2 tests in ${file} has "Key" in its name\n`,
    });
    expect(existsSync(join(dirname(file), "out.xml"))).toBe(false);
  });

  it("says that a configuration has no tests; exit 0", async () => {
    const file = fileWith(guarded);
    expect(await run(file)).toMatchObject({ code: 0, stdout: `${file} has no tests\n`, stderr: "" });
    expect(await run(file, "--only", "x")).toMatchObject({
      code: 2,
      stderr: `edge-gateway: --only: none of the 0 tests in ${file} has "x" in its name\n`,
    });
  });

  it("also writes JUnit XML to the file of --junit", async () => {
    const file = withTests(NEEDS_KEY, WRONG);
    const junit = join(emptyFolder(), "results.xml");
    expect(await run(file, "--junit", junit)).toMatchObject({
      code: 1,
      stdout: expect.stringContaining("FAIL  is open") as string,
    });
    const xml = readFileSync(junit, "utf8");
    expect(xml).toContain('tests="2" failures="1"');
    expect(xml).toContain(
      'name="is open">\n      <failure message="status: expected 200, found 401; the error code is key_missing">',
    );
  });

  it.each([
    ["a folder", ".", "it is a folder"],
    ["a file in a folder that is not there", "none/out.xml", "there is no such folder"],
  ])("runs no test if --junit names %s; exit 2", async (_what, name, why) => {
    const path = join(emptyFolder(), name);
    expect(await run(withTests(WRONG), "--junit", path)).toMatchObject({
      code: 2,
      stdout: "",
      stderr: `edge-gateway: cannot write ${path} (--junit): ${why}; no tests were run\n`,
    });
  });

  it("reports the errors of the configuration; exit 2", async () => {
    const { code, stdout, stderr } = await run(withTests({ ...WRONG, expect: {} }, WRONG));
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/gw\.json:1:\d+ +tests\[0\]\.expect /);
  });

  it.each([
    [["a.json", "--config", "b.json"], "edge-gateway: name one file, as --config FILE or as FILE\n"],
    [["a.json", "b.json"], 'edge-gateway: too many arguments for "test": edge-gateway test --help shows its usage\n'],
    [["--only"], "edge-gateway: --only needs a value: TEXT\n"],
    [["--junit", "--json"], "edge-gateway: --junit needs a value: FILE\n"],
    [["--strict"], "edge-gateway: --strict is not a known flag\n"],
    [["--config"], "edge-gateway: --config needs a value: the path of a file, or a URL\n"],
    [["--json=yes"], "edge-gateway: --json takes no value\n"],
  ])("%j exits 2 with the remedy", async (words, stderr) => {
    expect(await run(...words)).toMatchObject({ code: 2, stdout: "", stderr });
  });

  it("dials nothing and writes nothing", async () => {
    let asked = 0;
    const server = createServer(() => asked++).listen(0, "127.0.0.1");
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as AddressInfo;
    const url = `http://127.0.0.1:${port}`;
    const plugins = [
      { name: "http_log", config: { http_endpoint: url } },
      { name: "forward_auth", config: { url } },
    ];
    const config = oneService(port, { plugins, health: { enabled: true } }, { access_log: { file: "access.log" } });
    const file = fileWith({ ...config, tests: [{ ...PASSES, answers: [{ url, status: 200 }] }] });
    expect(await run(file)).toMatchObject({ code: 0, stderr: "" });
    expect([asked, existsSync(join(dirname(file), "access.log"))]).toEqual([0, false]);
  });
});

describe("reportText", () => {
  const failed = (result: Partial<TestResult>): TestResult => ({
    name: "t",
    passed: false,
    expected: {},
    found: {},
    differences: [],
    differing: [],
    ...result,
  });
  const text = (result: Partial<TestResult>) =>
    reportText({ passed: 0, failed: 1, tests: [failed(result)] }, "gw.json", plain)
      .split("\n")
      .slice(1, -2);

  it("has a row for each member and for each header, and marks those that differ", () => {
    const expected = {
      status: { matches: "^2" },
      headers: { "X-A": "a", "X-B": null },
      upstream_headers: { "X-C": "c" },
      body: { a: 1 },
    };
    const found = { status: 404, headers: { "X-A": "a", "X-B": "b" }, upstream_headers: null, body: null };
    const differences = [
      "status: expected a match of ^2, found 404",
      'headers.X-B: expected null, found "b"',
      "upstream_headers: …",
      "body: …",
    ];
    const differing = ["status", "headers.X-B", "upstream_headers", "body"];
    expect(text({ expected, found, differences, differing })).toEqual([
      "                        expected       found",
      "    > status            a match of ^2  404",
      '      headers.X-A       "a"            "a"',
      '    > headers.X-B       null           "b"',
      '    > upstream_headers  {"X-C":"c"}    null',
      '    > body              {"a":1}        null',
    ]);
  });

  it("prints what kept a test from a reply", () => {
    expect(text({ expected: { status: 200 }, differences: ["no reply within 2 s: plugin p did not answer"] })).toEqual([
      "              expected  found",
      "      status  200       (nothing)",
      "    no reply within 2 s: plugin p did not answer",
    ]);
  });

  it("cuts long values, and replaces control characters", () => {
    const lines = text({
      name: "n\u001b[31m",
      expected: { body: "x".repeat(200) },
      found: { body: "y\u0007\n" },
      differences: ["body: …"],
      differing: ["body"],
    });
    expect(lines[1]!.length).toBeLessThan(100);
    expect(
      reportText({ passed: 0, failed: 1, tests: [failed({ name: "n\u001b[31m\n" })] }, "gw.json", plain),
    ).not.toMatch(/[^\n\x20-\x7e]/);
  });

  it("cuts values that begin alike shortly before their first difference", () => {
    const [, line] = text({
      expected: { body: `${"x".repeat(80)}a` },
      found: { body: `${"x".repeat(80)}b` },
      differences: ["body: …"],
      differing: ["body"],
    });
    expect(line).toBe(`    > body  …${"x".repeat(20)}a"  …${"x".repeat(20)}b"`);
  });

  it("uses colours only if asked", () => {
    expect(reportText({ passed: 1, failed: 0, tests: [failed({ passed: true })] }, "gw.json", inColour)).toContain(
      "\u001b[32mok",
    );
  });
});

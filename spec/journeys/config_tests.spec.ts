import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import {
  fileWith,
  fileWithKind,
  logLines,
  program,
  runningFile,
  runningProgram,
  textOf,
  type RunningProgram,
} from "../support/process.ts";
import { ask } from "../support/raw_client.ts";

const REFUSED = /"message":"reload refused, configuration [0-9a-f]{12} stays in force"/;

/** A configuration with this base_path, and a test that GET /a/x has this status. */
function tested(port: number, status: number, basePath = "/a", more = {}) {
  return {
    ...oneService(port, { base_path: basePath }),
    tests: [{ name: "a is served", request: { url: "/a/x" }, expect: { status } }],
    ...more,
  };
}

async function started(status = 200) {
  const origin = await backend();
  const running = await runningProgram(tested(origin.port, status), [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
  return { ...running, origin };
}

/** Requests of a logged-in administrator to a running program. */
async function admin({ started }: RunningProgram) {
  const port = Number(new URL(String(started.admin)).port);
  const login = await ask(port, {
    method: "POST",
    path: "/login",
    headers: { Authorization: `Basic ${Buffer.from("a:b").toString("base64")}` },
  });
  const Cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
  return async (method: string, path: string) => {
    const { status, body } = await ask(port, { method, path, headers: { Cookie } });
    return { status, json: JSON.parse(body.toString()) as any };
  };
}

describe("tests of the configuration of a running program", () => {
  it(
    "the start ends with exit code 2 when a test fails, names its place, " + "and nothing listens or asks an upstream",
    async () => {
      const origin = await backend();
      const file = fileWith(tested(origin.port, 404));
      const ended = await program([
        "--config",
        file,
        "--http-port",
        "0",
        "--admin-port",
        "0",
        "--listen-host",
        "127.0.0.1",
      ]).ended;
      expect([ended.code, ended.stdout]).toEqual([2, ""]);
      expect(ended.stderr).toMatch(
        new RegExp(
          String.raw`gw\.json:1:\d+ +tests\[0\] +"a is served" failed: status: expected 404, found ` +
            String.raw`200\nThe configuration has an error; nothing was started\.\n$`,
        ),
      );
      expect(ended.stderr).not.toMatch(/ started"/);
      expect(origin.connections.total).toBe(0);
    },
  );

  it("the start goes on with a warning when tests only run out of time, and a reload is refused by them", async () => {
    const origin = await backend();
    const file = fileWithKind(
      "create: (_config, { isTrial }) => (next) => (exchange) => (isTrial ? new Promise(() => {}) : next(exchange))",
    );
    writeFileSync(
      file,
      textOf({
        ...tested(origin.port, 200),
        ...JSON.parse(readFileSync(file, "utf8")),
        services: oneService(origin.port, { base_path: "/a", plugins: [{ name: "own" }] }).services,
      }),
    );
    const running = await runningFile(file);
    await running.says("tests ran out of time; the gateway starts, a reload would be refused");
    const reason = "no reply within 2 s: plugin own did not answer (timers of plugins stand still in a test)";
    expect(logLines(running.stderr()).find(({ message }) => String(message).startsWith("tests ran out"))).toMatchObject(
      { level: "warn", tests: 1, first: "a is served", reason },
    );
    expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
    running.child.kill("SIGHUP");
    await running.says(REFUSED);
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      issues: [expect.stringMatching(/tests\[0\]  "a is served" ran out of time: no reply within 2 s: plugin own/)],
    });
    const { code, stderr } = await program(["validate", file]).ended;
    expect([code, stderr]).toEqual([2, expect.stringContaining('"a is served" ran out of time')]);
  });

  it(
    "a file with tests that changes while the configuration which names it " + "first is tested is read again",
    async () => {
      const origin = await backend();
      const slow =
        '(exchange) => { if (!isTrial) return next(exchange); console.error("tried"); ' +
        "return new Promise((resolve) => setTimeout(() => resolve(next(exchange)), 500)); }";
      const file = fileWithKind(`create: (_config, { isTrial }) => (next) => ${slow}`);
      const config = {
        ...JSON.parse(readFileSync(file, "utf8")),
        services: oneService(origin.port, { plugins: [{ name: "own" }] }).services,
      };
      writeFileSync(file, textOf(config));
      const running = await runningFile(file);
      const tests = (status: number) =>
        writeFileSync(
          join(dirname(file), "t.json"),
          JSON.stringify([{ name: "t", request: { url: "/a/x" }, expect: { status } }]),
        );
      tests(404);
      writeFileSync(file, textOf({ ...config, test_files: ["t.json"] }));
      await running.says("tried");
      tests(200);
      await running.says(REFUSED);
      await running.says('"message":"configuration reloaded"');
    },
  );

  it("neither the start nor a reload runs the tests with --no-tests", async () => {
    const origin = await backend();
    const running = await runningProgram(tested(origin.port, 404), ["--no-tests"]);
    expect(running.started).toMatchObject({ tests: "skipped" });
    expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
    writeFileSync(running.file, textOf(tested(origin.port, 404, "/moved")));
    await running.says("configuration reloaded");
    expect((await ask(running.port, { path: "/moved/x" })).status).toBe(200);
  });

  it(
    "a change of the file, SIGHUP and POST /gateway/reload are refused while a test fails, " +
      "and the old configuration serves",
    async () => {
      const running = await started();
      const asAdmin = await admin(running);
      const { digest } = running.started;
      expect((await asAdmin("GET", "/gateway/tests")).json).toMatchObject({
        digest,
        passed: 1,
        failed: 0,
        tests: [
          { name: "a is served", passed: true, expected: { status: 200 }, found: { status: 200 }, differences: [] },
        ],
      });
      writeFileSync(running.file, textOf(tested(running.origin.port, 200, "/moved")));
      await running.says(REFUSED);
      expect(logLines(running.stderr()).at(-1)).toMatchObject({
        by: "file",
        issues: [expect.stringContaining('tests[0]  "a is served" failed: status: expected 200, found 404')],
      });
      running.child.kill("SIGHUP");
      await running.says(/"by":"signal"/);
      const refused = await asAdmin("POST", "/gateway/reload");
      expect(refused.json).toMatchObject({
        code: "configuration_refused",
        digest,
        issues: [{ path: "tests[0]", message: expect.stringContaining('"a is served" failed') as string }],
      });
      const { json } = await asAdmin("GET", "/gateway/status");
      expect(json).toMatchObject({
        digest,
        tests: { passed: 0, failed: 1 },
        last_reload: { outcome: "refused", by: "admin" },
      });
      const last = (await asAdmin("GET", "/gateway/tests")).json;
      expect(last).toMatchObject({
        passed: 0,
        failed: 1,
        tests: [
          {
            found: { status: 404 },
            differences: ["status: expected 200, found 404", "the error code is route_not_found"],
          },
        ],
      });
      expect(last.digest).not.toBe(digest);
      expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
      writeFileSync(running.file, textOf({ ...tested(running.origin.port, 404, "/moved") }));
      await running.says("configuration reloaded");
      expect((await ask(running.port, { path: "/moved/x" })).status).toBe(200);
    },
  );

  it("a change of a file with tests is a reload, which a failing test refuses", async () => {
    const origin = await backend();
    const tests = fileWith("[]", "tests.json");
    const running = await runningProgram({ ...oneService(origin.port), test_files: [tests] });
    writeFileSync(tests, JSON.stringify(tested(origin.port, 404).tests));
    await running.says(REFUSED);
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      by: "file",
      issues: [expect.stringMatching(/^\S+tests\.json:1:2 .*"a is served" failed: status: expected 404, found 200$/)],
    });
    writeFileSync(tests, JSON.stringify(tested(origin.port, 200).tests));
    await running.says(/configuration read again/);
  });

  it("files with tests are found beside the configuration", async () => {
    const file = fileWith({ ...oneService(9), test_files: ["beside.json"] });
    writeFileSync(join(dirname(file), "beside.json"), JSON.stringify(tested(9, 418).tests));
    const ended = await program(["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"]).ended;
    expect(ended.code).toBe(2);
    expect(ended.stderr).toMatch(/beside\.json:1:2 .*expected 418, found 200/);
  });
});

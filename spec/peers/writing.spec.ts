/**
 * PUT /gateway/source of the built program: with workers, on a disk that is full, in a build of its parts, and under
 * Node's permission model.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { logLines, runningFile, type RunningProgram } from "../support/process.ts";
import { CREDENTIALS, emptyFolder, PROGRAM } from "./built.ts";
import { probeModule, withWorkers } from "./workers.ts";

const ADMIN = { ADMIN_USER: CREDENTIALS.user, ADMIN_PASSWORD: CREDENTIALS.password, ADMIN_WRITE: "true" };
const digestOf = (text: string | Buffer) => createHash("sha256").update(text).digest("hex").slice(0, 12);
const config = (path: string, more: object = {}) =>
  JSON.stringify({
    services: [{ name: "s", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path }], ...more }],
  });
const besides = (folder: string) => readdirSync(folder).filter((name) => name !== ".gw.json.history");

/** Replaces the file through the admin interface: status, and body. */
async function put({ started, file }: RunningProgram, text: string): Promise<readonly [number, any]> {
  const url = started.admin as string;
  const authorization = `Basic ${Buffer.from(`${CREDENTIALS.user}:${CREDENTIALS.password}`).toString("base64")}`;
  const login = await fetch(`${url}/login`, { method: "POST", headers: { authorization } });
  const headers = {
    cookie: login.headers.getSetCookie()[0]!.split(";", 1)[0]!,
    "content-type": "application/json",
    "if-match": `"${digestOf(readFileSync(file))}"`,
  };
  const answer = await fetch(`${url}/gateway/source`, { method: "PUT", headers, body: text });
  return [answer.status, await answer.json()];
}

function fileIn(folder: string, text: string): string {
  const file = join(folder, "gw.json");
  writeFileSync(file, text);
  return file;
}

describe("PUT /gateway/source", () => {
  it(
    "with workers is taken by all of them, or by none, and then the file stays; " + "the watcher reloads nothing",
    async () => {
      const plugin_modules = [probeModule()];
      const probed = (set: number, refused_in: number) =>
        JSON.stringify({
          global: { plugin_modules },
          ...(JSON.parse(config("/a", { plugins: [{ name: "probe", config: { set, refused_in } }] })) as object),
        });
      const running = await withWorkers(JSON.parse(probed(0, -1)), { environment: { ADMIN_WRITE: "true" } });
      expect(await put(running, probed(1, -1))).toMatchObject([
        200,
        { digest: digestOf(probed(1, -1)), changed: true },
      ]);
      const [status, refused] = await put(running, probed(2, 1));
      expect([status, refused.code, JSON.stringify(refused.issues)]).toEqual([
        422,
        "configuration_refused",
        expect.stringContaining("thread 1 refuses 2"),
      ]);
      expect(readFileSync(running.file, "utf8")).toBe(probed(1, -1));
      expect(await put(running, probed(3, -1))).toMatchObject([200, { digest: digestOf(probed(3, -1)) }]);
      const status3 = JSON.parse(await running.admin("/gateway/status")) as Record<string, unknown>;
      expect(status3).toMatchObject({
        digest: digestOf(probed(3, -1)),
        last_reload: { by: "admin", outcome: "taken" },
      });
      expect(
        logLines(running.stderr()).flatMap(({ message, by }) =>
          /^configuration re/.test(String(message)) ? [by] : [],
        ),
      ).toEqual(["admin", "admin"]);
    },
  );

  it(
    "on a disk that is full leaves the file and nothing beside it, " +
      "and succeeds once there is room (where the system lets mount)",
    async ({ skip }) => {
      const folder = emptyFolder();
      if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", folder]).status !== 0)
        return skip("this system lets nobody mount");
      onTestFinished(() => void spawnSync("umount", ["-l", folder]));
      const running = await runningFile(fileIn(folder, config("/a")), [], ADMIN);
      expect(() => {
        for (let i = 0; ; i++) writeFileSync(join(folder, `filler-${i}`), Buffer.alloc(4_096));
      }).toThrow(/ENOSPC/);
      const before = besides(folder);
      const [status, problem] = await put(running, config("/b"));
      expect([status, problem.code, problem.detail]).toEqual([
        409,
        "conflict",
        expect.stringMatching(/ cannot be replaced: the disk is full\.$/),
      ]);
      expect([readFileSync(running.file, "utf8"), besides(folder)]).toEqual([config("/a"), before]);
      for (const name of before) if (name !== "gw.json") rmSync(join(folder, name));
      expect((await put(running, config("/b")))[0]).toBe(200);
      expect([readFileSync(running.file, "utf8"), besides(folder)]).toEqual([config("/b"), ["gw.json"]]);
    },
  );

  it(
    "that would make the file larger than the limit of the process leaves the file and nothing beside it " +
      "(where there is prlimit)",
    async ({ skip }) => {
      const running = await runningFile(fileIn(emptyFolder(), config("/a")), [], ADMIN);
      if (spawnSync("prlimit", ["--pid", String(running.child.pid), "--fsize=65536:65536"]).status !== 0)
        return skip("this system has no prlimit");
      const [status, problem] = await put(running, config("/b") + " ".repeat(100_000));
      expect([status, problem.detail]).toEqual([
        409,
        expect.stringMatching(/ cannot be replaced: it would be larger than files may be\.$/),
      ]);
      expect([readFileSync(running.file, "utf8"), besides(join(running.file, ".."))]).toEqual([
        config("/a"),
        ["gw.json"],
      ]);
    },
  );

  it("works in a build that was made with ADMIN_WRITE", async () => {
    const file = fileIn(emptyFolder(), config("/a"));
    const output = join(emptyFolder(), "build");
    const built = spawnSync(process.execPath, [PROGRAM, "build", "--config", file, "--output", output], {
      env: { PATH: process.env.PATH, ...ADMIN },
      encoding: "utf8",
    });
    expect([built.status, built.stderr]).toEqual([0, ""]);
    const running = await runningFile(file, [], ADMIN, process.execPath, join(output, "dist/bin/edge-gateway.js"));
    expect([(await put(running, config("/b")))[0], readFileSync(file, "utf8")]).toEqual([200, config("/b")]);
    const [status, { code, issues }] = await put(
      running,
      config("/c", { plugins: [{ name: "key_auth", config: { key: "k" } }] }),
    );
    expect([status, code, JSON.stringify(issues)]).toEqual([
      422,
      "configuration_refused",
      expect.stringContaining("is not in this build"),
    ]);
    expect(readFileSync(file, "utf8")).toBe(config("/b"));
  });

  it("works under the flags of audit --permission", async () => {
    const file = fileIn(realpathSync(emptyFolder()), config("/a"));
    const environment = { ...ADMIN, CONFIG_FILE_PATH: file };
    const flags = spawnSync(process.execPath, [PROGRAM, "audit", "--permission"], {
      env: { PATH: process.env.PATH, ...environment },
      encoding: "utf8",
    });
    expect([flags.status, flags.stderr]).toEqual([0, ""]);
    const running = await runningFile(file, [], {
      ...environment,
      NODE_OPTIONS: ["--no-warnings", ...flags.stdout.trim().split("\n")].join(" "),
    });
    expect(await put(running, config("/b"))).toMatchObject([200, { digest: digestOf(config("/b")) }]);
    expect([readFileSync(file, "utf8"), besides(join(file, ".."))]).toEqual([config("/b"), ["gw.json"]]);
  });
});

/** The setting STATE_DIR of the program: what outlives it. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, logLines, program, runningFile, runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";

async function quotaOf(limit: number, config: object = {}) {
  const origin = await backend();
  return oneService(origin.port, {
    plugins: [{ name: "quota", config: { limit, per: "month", limit_by: "all", ...config } }],
  });
}

const statuses = async (port: number, times: number) =>
  (await Promise.all(Array.from({ length: times }, () => ask(port, { path: "/a/x" }))))
    .map(({ status }) => status)
    .sort();

/** What the only caller in the file has used. */
function written(folder: string): number {
  if (!existsSync(join(folder, "quotas"))) return 0;
  const content = readFileSync(join(folder, "quotas"));
  return content.includes('"callers":1') ? content.readDoubleLE(content.length - 16) : 0;
}

describe("STATE_DIR", () => {
  it("what was counted half a second ago outlives kill -9, and all of it SIGTERM", async () => {
    const [config, folder] = [await quotaOf(10), emptyFolder()];
    const first = await runningProgram(config, [], { STATE_DIR: folder });
    expect(await statuses(first.port, 4)).toEqual([200, 200, 200, 200]);
    await eventually(() => written(folder) === 4);
    first.child.kill("SIGKILL");
    await first.ended;
    const second = await runningProgram(config, ["--state-dir", folder]);
    expect(await statuses(second.port, 3)).toEqual([200, 200, 200]);
    second.child.kill("SIGTERM");
    expect((await second.ended).code).toBe(0);
    expect(readdirSync(folder)).toEqual(["quotas"]);
    const third = await runningProgram(config, [], { STATE_DIR: folder });
    expect(await statuses(third.port, 5)).toEqual([200, 200, 200, 429, 429]);
  });

  it("a second signal books what is in flight before it ends the program", async () => {
    const origin = await backend(
      (_request, response) => void response.writeHead(200, { "Content-Type": "application/json" }).write("{"),
    );
    const cost = { response_json: "usage", default: 7 };
    const config = oneService(origin.port, {
      plugins: [{ name: "quota", config: { limit: 10, per: "month", limit_by: "all", cost } }],
    });
    const folder = emptyFolder();
    const { port, child, says, ended } = await runningProgram(config, [], { STATE_DIR: folder });
    const answer = expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    child.kill("SIGTERM");
    await answer;
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(1);
    expect(logLines(stdout)).toMatchObject([{ path: "/a/x", code: "client_closed" }]);
    expect(logLines(stderr).at(-1)).toMatchObject({ message: "SIGTERM again: ending at once" });
    expect(written(folder)).toBe(7);
  });

  it(
    "a second process with the same folder is refused with exit code 2, " + "and the first one is not disturbed",
    async () => {
      const [config, folder] = [await quotaOf(10), emptyFolder()];
      const first = await runningProgram(config, [], { STATE_DIR: folder });
      const second = await program(["--config", fileWith(config), "--http-port", "0"], {
        environment: { STATE_DIR: folder },
      }).ended;
      expect(second.code).toBe(2);
      expect(second.stderr).toMatch(
        new RegExp(
          String.raw`STATE_DIR \(--state-dir\): another process uses .*: give each gateway a ` +
            String.raw`folder of its own, or let them count together with global\.counters`,
        ),
      );
      expect(await statuses(first.port, 1)).toEqual([200]);
      await eventually(() => written(folder) === 1);
    },
  );

  it.each(["quotas", "configurations", "taken_out", "sessions"])(
    "a folder or FIFO in place of %s is refused by its name",
    async (name) => {
      for (const [make, why] of [
        ["mkdir", "it is a folder"],
        ["mkfifo", "it is a FIFO, not a file"],
      ] as const) {
        const folder = emptyFolder();
        execFileSync(make, [join(folder, name)]);
        expect(
          await program(["--config", fileWith(oneService(9)), "--http-port", "0", "--state-dir", folder]).ended,
        ).toMatchObject({
          code: 2,
          stderr: `edge-gateway: STATE_DIR (--state-dir): ${folder}/${name} cannot be read: ${why}\n`,
        });
      }
    },
  );

  it("a damaged file and a folder that cannot be made are refused with exit code 2 and what to do", async () => {
    const [config, folder] = [await quotaOf(10), emptyFolder()];
    writeFileSync(join(folder, "quotas"), "x");
    const start = (STATE_DIR: string) =>
      program(["--config", fileWith(config), "--http-port", "0"], { environment: { STATE_DIR } }).ended;
    expect(await start(folder)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /STATE_DIR .*quotas is damaged: put a copy in its place, or move it away/,
      ) as string,
    });
    expect(await start("/dev/null/state")).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/STATE_DIR .*cannot be made/) as string,
    });
    expect(readFileSync(join(folder, "quotas"), "utf8")).toBe("x");
  });

  it(
    "a folder that cannot be written while the gateway runs is logged and counted, " + "and quotas hold all the same",
    async () => {
      const [config, folder] = [await quotaOf(2), emptyFolder()];
      mkdirSync(join(folder, "quotas.new"));
      const { port, started, stderr } = await runningProgram(config, [], { STATE_DIR: folder, PROBE_PORT: "0" });
      expect(await statuses(port, 3)).toEqual([200, 200, 429]);
      await eventually(() =>
        logLines(stderr()).some(
          ({ level, message }) =>
            level === "error" && message === "quotas cannot be written, and are counted in memory alone",
        ),
      );
      const metrics = async () => (await fetch(`${String(started.probes)}/metrics`)).text();
      expect(await metrics()).toMatch(/^edge_gateway_state_errors_total [1-9]/m);
      rmdirSync(join(folder, "quotas.new"));
      await eventually(() => written(folder) === 2);
    },
  );

  it("without it, and without global.counters, there is a warning", async () => {
    const config = await quotaOf(10);
    const warnings = (stderr: string) => logLines(stderr).filter(({ code }) => code === "quota_not_durable");
    const { stderr } = await runningProgram(config);
    await eventually(() => warnings(stderr()).length === 1);
    const durable = await runningProgram(config, [], { STATE_DIR: emptyFolder() });
    expect(warnings(durable.stderr())).toEqual([]);
  });
});

describe("the serial of signed configurations in STATE_DIR", () => {
  const keys = signingKeys();
  const withSerial = async (serial: number) => signed(fileWith({ ...(await quotaOf(10)), serial }), keys);
  const environmentOf = (folder: string) => ({
    STATE_DIR: folder,
    CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
  });
  const kept = (folder: string) =>
    existsSync(join(folder, "configurations"))
      ? (JSON.parse(readFileSync(join(folder, "configurations"), "utf8")) as { serial: number }).serial
      : null;

  it("an older file is refused after a restart, and by validate while the gateway runs", async () => {
    const [folder, older, newer] = [emptyFolder(), await withSerial(6), await withSerial(7)];
    const environment = environmentOf(folder);
    const first = await runningFile(newer, [], environment);
    await eventually(() => kept(folder) === 7);
    const validate = (file: string, flags: string[] = []) =>
      program(["validate", file, ...flags], { environment }).ended;
    expect(await validate(older)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/:1:\d+ +serial +6 is older than 7, which has been in force/) as string,
    });
    expect(await validate(newer)).toMatchObject({ code: 0 });
    first.child.kill("SIGKILL");
    await first.ended;
    expect(await program(["--config", older, "--http-port", "0"], { environment }).ended).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("6 is older than 7") as string,
    });
    expect(kept(folder)).toBe(7);
  });

  it("a damaged file is refused with exit code 2 and what to do", async () => {
    const [folder, file] = [emptyFolder(), await withSerial(6)];
    writeFileSync(join(folder, "configurations"), '{"serial":"7"}');
    const environment = environmentOf(folder);
    const damaged = {
      code: 2,
      stderr: expect.stringMatching(
        /STATE_DIR .*configurations is damaged: put a copy in its place, or move it away/,
      ) as string,
    };
    expect(await program(["--config", file, "--http-port", "0"], { environment }).ended).toMatchObject(damaged);
    expect(await program(["validate", file], { environment }).ended).toMatchObject(damaged);
  });

  it("a start whose tests fail keeps nothing", async () => {
    const [folder, origin] = [emptyFolder(), await backend()];
    const tests = [{ name: "t", request: { url: "/a/x" }, expect: { status: 418 } }];
    const file = signed(fileWith({ ...oneService(origin.port), serial: 9, tests }), keys);
    expect(
      await program(["--config", file, "--http-port", "0"], { environment: environmentOf(folder) }).ended,
    ).toMatchObject({ code: 2 });
    expect(kept(folder)).toBeNull();
  });
});

/** The setting AUDIT_LOG of the program: which events its file has, who asked for what, and how it ends. */
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { digestOf } from "../admin/writable.ts";
import { oneService } from "../support/gateway.ts";
import { loggedIn as session } from "../support/logged_in.ts";
import { emptyFolder, fileWith, program, PROGRAM, runningFile, runningProgram, textOf } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";

const ADMIN = {
  ADMIN_USER: "anna",
  ADMIN_PASSWORD: "a-password",
  ADMIN_VIEWER_USER: "vera",
  ADMIN_VIEWER_PASSWORD: "v-password",
  ADMIN_WRITE: "true",
};
const linesOf = (path: string) =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
const eventsOf = (path: string) => linesOf(path).map(({ event }) => event);
const verified = (...words: string[]) => program(["verify-log", ...words]).ended;

const loggedIn = (port: number, name: string, password: string) =>
  session(port, { ADMIN_USER: name, ADMIN_PASSWORD: password });

/** A user for whom permissions count. */
const USER = process.getuid!() === 0 ? { uid: 65534, gid: 65534 } : {};
const CAN_RUN = spawnSync(process.execPath, [PROGRAM, "--version"], USER).status === 0;

describe("AUDIT_LOG", () => {
  it("has who did what and from where, and no secret; verify-log finds it whole", async () => {
    const path = join(emptyFolder(), "audit.log");
    const running = await runningProgram(
      oneService(9, { plugins: [{ name: "key_auth", config: { key: "the-key" } }] }),
      [],
      { ...ADMIN, AUDIT_LOG: path, AUDIT_REFUSALS: "true" },
    );
    const port = Number(new URL(String(running.started.admin)).port);
    await ask(running.port, { path: "/a/x?apiKey=wrong-key" });
    await loggedIn(port, 'x\n{"seq" 1}' + "y".repeat(100), "no-password");
    await loggedIn(port, "vera", "v-password");
    const admin = await loggedIn(port, "anna", "a-password");
    const before = readFileSync(running.file, "utf8");
    const text = before.replace("the-key", "another-key");
    expect((await admin("PUT", "/gateway/source", text, { "if-match": `"${digestOf(before)}"` })).status).toBe(200);
    expect(
      (await admin("PUT", "/gateway/source", '{"services":[{}]}', { "if-match": `"${digestOf(text)}"` })).status,
    ).toBe(422);
    await admin("POST", "/gateway/reload");
    running.child.kill("SIGHUP");
    await running.says(/"by":"signal"/);
    running.child.kill("SIGTERM");
    await running.ended;
    const from = { address: "127.0.0.1", request_id: expect.any(String) as string };
    const by = { by: "admin", user: "anna", ...from };
    const digests = { before: digestOf(before), digest: digestOf(text) };
    expect(linesOf(path)).toMatchObject([
      { event: "start", by: "start" },
      { event: "configuration_applied", by: "start", digest: digests.before },
      { event: "request_refused", address: "127.0.0.1", plugin: "key_auth", code: "key_invalid" },
      { event: "login_failed", user: ('x\n{"seq" 1}' + "y".repeat(100)).slice(0, 64), ...from },
      { event: "login", by: "viewer", user: "vera", ...from },
      { event: "login", ...by },
      { event: "configuration_applied", ...by, ...digests },
      { event: "admin_change", ...by, action: "source", before: digests.before, after: digests.digest },
      {
        event: "configuration_refused",
        ...by,
        in_force: digests.digest,
        issues: expect.arrayContaining([expect.stringContaining("required")]) as unknown,
      },
      { event: "configuration_applied", ...by, digest: digests.digest },
      { event: "configuration_applied", by: "signal", digest: digests.digest },
      { event: "stop", by: "signal" },
    ]);
    expect(readFileSync(path, "utf8")).not.toMatch(/the-key|another-key|wrong-key|password/);
    expect(await verified(path)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("first seq 1, last seq 12, ") as string,
    });
  });

  it(
    "and the history agree on what replaced what, and by whom, when the administrator, signals and the file " +
      "ask for reloads at once",
    async () => {
      const path = join(emptyFolder(), "audit.log");
      const text = (n: number) => textOf(oneService(9, {}, { name: `n${n}` }));
      const running = await runningFile(fileWith(text(0)), [], { ...ADMIN, AUDIT_LOG: path });
      const admin = await loggedIn(Number(new URL(String(running.started.admin)).port), "anna", "a-password");
      const rounds = 6;
      for (let n = 1; n <= rounds; n++) {
        const headers = { "if-match": `"${digestOf(readFileSync(running.file))}"` };
        const put = admin("PUT", "/gateway/source", text(2 * n), headers);
        running.child.kill("SIGHUP");
        const answers = await Promise.all([put, ...[1, 2, 3].map(() => admin("POST", "/gateway/reload"))]);
        expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
        writeFileSync(running.file, text(2 * n + 1));
        await running.says(new RegExp(`"digest":"${digestOf(text(2 * n + 1))}","by":"file"`));
      }
      const { body } = await admin("GET", "/gateway/history");
      running.child.kill("SIGTERM");
      await running.ended;
      const applied = linesOf(path).filter(({ event }) => event === "configuration_applied");
      expect(applied.map(({ before }) => before)).toEqual(
        [undefined, ...applied.map(({ digest }) => digest)].slice(0, -1),
      );
      const { entries } = JSON.parse(body.toString()) as { entries: { digest: string; by: object }[] };
      expect(entries).toHaveLength(1 + 2 * rounds);
      expect(entries.map(({ digest, by }) => ({ digest, by })).reverse()).toEqual(
        applied
          .filter(({ before, digest }) => before !== digest)
          .map(({ digest, by: cause, user, address }) => ({
            digest,
            by: user === undefined ? { cause } : { user, address },
          })),
      );
    },
  );

  it("goes on after kill -9, and behind a torn line", async () => {
    const path = join(emptyFolder(), "audit.log");
    const config = oneService(9);
    const first = await runningProgram(config, [], { AUDIT_LOG: path });
    await eventually(() => eventsOf(path).length === 2, "two lines");
    first.child.kill("SIGKILL");
    await first.ended;
    writeFileSync(path, '{"seq":3,"ti', { flag: "a" });
    expect(await verified(path)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("line 3 is torn") as string,
    });
    const second = await runningProgram(config, [], { AUDIT_LOG: path });
    second.child.kill("SIGTERM");
    await second.ended;
    expect(await verified(path)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/last seq 5, .*\n6 lines in 1 file/) as string,
    });
  });

  it("has a start that is refused: a configuration with errors, and one that is not signed", async () => {
    const [wrong, unsigned] = [1, 2].map(() => join(emptyFolder(), "audit.log")) as [string, string];
    const [keys, other] = [signingKeys(), signingKeys()];
    const start = (file: string, environment: Record<string, string>) =>
      program(["--config", file, "--http-port", "0"], { environment }).ended;
    expect(await start(fileWith({ services: [{}] }), { AUDIT_LOG: wrong })).toMatchObject({ code: 2 });
    expect(
      await start(signed(fileWith(oneService(9)), other), {
        AUDIT_LOG: unsigned,
        CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
      }),
    ).toMatchObject({ code: 2 });
    expect([wrong, unsigned].map(eventsOf)).toEqual([
      ["start", "configuration_refused", "stop"],
      ["start", "signature_refused", "stop"],
    ]);
  });

  it("has a changed file whose signature is missing as signature_refused, by the file", async () => {
    const [path, keys] = [join(emptyFolder(), "audit.log"), signingKeys()];
    const running = await runningFile(signed(fileWith(oneService(9)), keys), [], {
      AUDIT_LOG: path,
      CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
    });
    writeFileSync(running.file, JSON.stringify(oneService(10)));
    await eventually(() => eventsOf(path).length === 3, "a line");
    expect(linesOf(path)[2]).toMatchObject({ event: "signature_refused", by: "file" });
  });

  it("with AUDIT_FAIL=closed a start without it is exit code 2; with open it starts", async () => {
    const folder = join(emptyFolder(), "audit.log");
    mkdirSync(folder);
    const closed = await program(["--config", fileWith(oneService(9)), "--http-port", "0"], {
      environment: { AUDIT_LOG: folder, AUDIT_FAIL: "closed" },
    }).ended;
    expect(closed).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`AUDIT_LOG (--audit-log): cannot write to ${folder}: it is a folder`) as string,
    });
    const open = await runningProgram(oneService(9), [], { AUDIT_LOG: folder });
    expect(open.stderr()).toContain("the audit log cannot be written");
  });

  it.skipIf(!CAN_RUN)(
    "with closed does not start where its user may not write: a folder, " +
      "or the file of another owner (skipped where user 65534 cannot read the program)",
    async () => {
      const [folder, config] = [emptyFolder(), fileWith(oneService(9))];
      const path = join(folder, "audit.log");
      const start = () =>
        spawnSync(process.execPath, [PROGRAM, "--config", config, "--http-port", "0"], {
          env: { AUDIT_LOG: path, AUDIT_FAIL: "closed" },
          encoding: "utf8",
          ...USER,
        });
      chmodSync(join(config, ".."), 0o755);
      chmodSync(folder, 0o555);
      expect(start()).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(`cannot write to ${path}: permission denied`) as string,
      });
      chmodSync(folder, 0o755);
      writeFileSync(path, "", { mode: process.getuid!() === 0 ? 0o600 : 0o400 });
      expect(start()).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(`cannot write to ${path}: permission denied`) as string,
      });
      if (process.getuid!() !== 0) return;
      chmodSync(path, 0o666);
      expect(start()).toMatchObject({
        status: 2,
        stderr: expect.stringContaining(`cannot write to ${path}: other users may open it: chmod 600`) as string,
      });
    },
  );

  it(
    "a second process on one file is exit code 2 with closed; with open it writes once the first has ended, " +
      "and counts what was lost: the chain is whole",
    async () => {
      const path = join(emptyFolder(), "audit.log");
      const config = oneService(9);
      const first = await runningProgram(config, [], { AUDIT_LOG: path, AUDIT_FAIL: "closed" });
      const closed = await program(["--config", fileWith(config), "--http-port", "0"], {
        environment: { AUDIT_LOG: path, AUDIT_FAIL: "closed" },
      }).ended;
      expect(closed).toMatchObject({
        code: 2,
        stderr: expect.stringContaining(
          `cannot write to ${path}: another process writes it: name a file for each`,
        ) as string,
      });
      const open = await runningProgram(config, [], { AUDIT_LOG: path });
      await open.says(/"message":"the audit log cannot be written".*another process writes it/);
      open.child.kill("SIGHUP");
      await open.says(/"by":"signal"/);
      expect(eventsOf(path)).toEqual(["start", "configuration_applied"]);
      first.child.kill("SIGTERM");
      await first.ended;
      open.child.kill("SIGTERM");
      await open.ended;
      const [lines, lost] = [linesOf(path), linesOf(path).reduce((sum, line) => sum + Number(line.lost ?? 0), 0)];
      expect([lines[2]!.event, lines.at(-1)!.event, lines.length + lost]).toEqual(["stop", "stop", 7]);
      expect(await verified(path)).toMatchObject({ code: 0 });
    },
  );

  it.each<[Record<string, string>, string]>([
    [{ AUDIT_REFUSALS: "true" }, "AUDIT_REFUSALS needs AUDIT_LOG"],
    [{ AUDIT_FAIL: "closed" }, "AUDIT_FAIL needs AUDIT_LOG"],
    [{ AUDIT_LOG: "a.log", AUDIT_FAIL: "shut" }, "AUDIT_FAIL"],
    [{ ...ADMIN, ADMIN_AUDIT_LOG: "a.log" }, "ADMIN_AUDIT_LOG is gone: set AUDIT_LOG"],
  ])("%j is exit code 2", async (environment, why) => {
    expect(
      await program(["--config", fileWith(oneService(9))], { environment, cwd: emptyFolder() }).ended,
    ).toMatchObject({ code: 2, stderr: expect.stringContaining(why) as string });
  });

  it(
    "verify-log reads several files, the oldest first, " + "and finds one that is missing or in another place",
    async () => {
      const folder = emptyFolder();
      const path = join(folder, "audit.log");
      for (let i = 0; i < 2; i++)
        await program(["--config", fileWith({ services: [{}] }), "--http-port", "0"], {
          environment: { AUDIT_LOG: path },
        }).ended;
      const lines = readFileSync(path, "utf8").split("\n");
      const parts = [0, 2, 4].map((from, i) => {
        const part = join(folder, `audit.log.${i}`);
        writeFileSync(part, `${lines.slice(from, from + 2).join("\n")}\n`);
        return part;
      }) as [string, string, string];
      const [a, b, c] = parts;
      expect(await verified(a, b, c)).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/first seq 1, last seq 6, .*\n6 lines in 3 files: whole\n$/) as string,
      });
      expect(await verified(a, c)).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("audit.log.2 line 1 has seq 5, and 3 must follow 2") as string,
      });
      expect(await verified(a, c, b)).toMatchObject({ code: 1 });
    },
  );

  it("audit lists the file among those that are read and written", async () => {
    const { stdout } = await program(["audit", "--json", "--config", fileWith(oneService(9))], {
      environment: { AUDIT_LOG: "/var/log/a.log" },
    }).ended;
    expect(JSON.parse(stdout)).toMatchObject({
      writes: expect.arrayContaining(["/var/log/a.log"]) as unknown,
      reads: expect.arrayContaining(["/var/log/a.log"]) as unknown,
    });
  });
});

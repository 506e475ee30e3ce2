/** Sessions of the admin interface of a running program, over restarts. */
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, program, runningFile, type RunningProgram } from "../support/process.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "a-password" };

async function logIn({ started }: RunningProgram): Promise<string> {
  const authorization = `Basic ${Buffer.from("anna:a-password").toString("base64")}`;
  const reply = await fetch(`${String(started.admin)}/login`, { method: "POST", headers: { authorization } });
  expect(reply.status).toBe(200);
  return reply.headers.getSetCookie()[0]!.split(";")[0]!;
}

const status = async ({ started }: RunningProgram, cookie: string) =>
  (await fetch(`${String(started.admin)}/gateway/session`, { headers: { cookie } })).status;

async function logOut({ started }: RunningProgram, cookie: string): Promise<void> {
  expect((await fetch(`${String(started.admin)}/logout`, { method: "DELETE", headers: { cookie } })).status).toBe(204);
}

async function killed({ child, ended }: RunningProgram): Promise<void> {
  child.kill("SIGKILL");
  await ended;
}

function setting(environment: Record<string, string> = {}) {
  const [file, folder] = [fileWith(oneService(9)), emptyFolder()];
  return {
    folder,
    start: (more: Record<string, string> = {}) =>
      runningFile(file, [], { ...CREDENTIALS, STATE_DIR: folder, ...environment, ...more }),
  };
}

describe("sessions of the admin interface with STATE_DIR", () => {
  it("outlive kill -9, but for those that were logged out and those of another password", async () => {
    const { folder, start } = setting();
    const first = await start();
    const [kept, ended] = [await logIn(first), await logIn(first)];
    await logOut(first, ended);
    await killed(first);
    const file = join(folder, "sessions");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, "utf8")).not.toContain(kept.split("=")[1]!);
    const second = await start();
    expect([await status(second, kept), await status(second, ended)]).toEqual([200, 401]);
    await logOut(second, kept);
    await killed(second);
    const third = await start();
    expect([await status(third, kept), await status(third, ended)]).toEqual([401, 401]);
    const cookie = await logIn(third);
    await killed(third);
    expect(await status(await start({ ADMIN_PASSWORD: "another-password" }), cookie)).toBe(401);
  });

  it("keep what was logged out with ADMIN_JWT_SECRET, too, whose key is in no file", async () => {
    const secret = "a secret of at least thirty-two bytes";
    const { folder, start } = setting({ ADMIN_JWT_SECRET: secret });
    const first = await start();
    const [kept, ended] = [await logIn(first), await logIn(first)];
    await logOut(first, ended);
    await killed(first);
    expect(readFileSync(join(folder, "sessions"), "utf8")).not.toContain(secret);
    const second = await start();
    expect([await status(second, kept), await status(second, ended)]).toEqual([200, 401]);
  });

  it("end with the program where the file cannot be written, and the log says so", async () => {
    const { folder, start } = setting();
    mkdirSync(join(folder, "sessions.new"));
    const first = await start();
    const cookie = await logIn(first);
    expect(await status(first, cookie)).toBe(200);
    await first.says(/sessions of the admin interface cannot be kept: after a restart users sign in again/);
    await killed(first);
    expect(await status(await start(), cookie)).toBe(401);
  });

  it.each([
    "",
    "x",
    "{}",
    '{"secret":"short","revoked":[],"refused":[]}',
    '{"secret":null,"revoked":[["anna",1,2]],"refused":[]}',
    '{"secret":null,"revoked":[],"refused":[["anna","1"]]}',
  ])("are refused with exit code 2 and what to do where their file has %j", async (content) => {
    const folder = emptyFolder();
    writeFileSync(join(folder, "sessions"), content);
    const environment = { ...CREDENTIALS, STATE_DIR: folder };
    expect(
      await program(["--config", fileWith(oneService(9)), "--http-port", "0", "--admin-port", "0"], { environment })
        .ended,
    ).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        new RegExp(
          String.raw`sessions is damaged: put a copy in its place, or move it away, and all users ` +
            String.raw`of the admin interface sign in again`,
        ),
      ) as string,
    });
  });
});

it("sessions of the admin interface end with the program without STATE_DIR", async () => {
  const file = fileWith(oneService(9));
  const first = await runningFile(file, [], CREDENTIALS);
  const cookie = await logIn(first);
  await killed(first);
  expect(await status(await runningFile(file, [], CREDENTIALS), cookie)).toBe(401);
});

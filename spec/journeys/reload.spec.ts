import { renameSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, logLines, program, runningProgram, type RunningProgram } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";

async function started() {
  const origin = await backend();
  const running = await runningProgram(oneService(origin.port), [], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
  const next = JSON.stringify(oneService(origin.port, { base_path: "/next" }));
  return { ...running, origin, next };
}

const RELOADED = /"message":"configuration reloaded"/;
const REFUSED = /"message":"reload refused, configuration [0-9a-f]{12} stays in force"/;

async function statuses({ port }: RunningProgram): Promise<number[]> {
  return [(await ask(port, { path: "/a/x" })).status, (await ask(port, { path: "/next/x" })).status];
}

describe("the configuration file", () => {
  it("written in place is taken, without a signal", async () => {
    const running = await started();
    expect(await statuses(running)).toEqual([200, 404]);
    writeFileSync(running.file, running.next);
    await running.says(RELOADED);
    expect(await statuses(running)).toEqual([404, 200]);
    const line = logLines(running.stderr()).at(-1)!;
    expect(line.digest).not.toBe(running.started.digest);
    expect(line).toMatchObject({ services: 1, routes: 2, upstreams: 1 });
  });

  it("replaced by a rename, as editors save, is taken, and so is the next one", async () => {
    const running = await started();
    for (const text of [running.next, JSON.stringify(oneService(running.origin.port))]) {
      const seen = logLines(running.stderr()).length;
      writeFileSync(`${running.file}.new`, text);
      renameSync(`${running.file}.new`, running.file);
      await running.says(new RegExp(`^(.*\\n){${seen}}.*configuration reloaded`));
    }
    expect(await statuses(running)).toEqual([200, 404]);
  });

  it("is read again on SIGHUP, and it is said when only secrets may have changed", async () => {
    const running = await started();
    running.child.kill("SIGHUP");
    await running.says("configuration read again: its text is the same, its secrets were resolved anew");
    expect(logLines(running.stderr()).at(-1)).toMatchObject({ digest: running.started.digest });
  });

  it("what it refers to is read again on SIGHUP", async () => {
    const origin = await backend();
    const running = await runningProgram({ services: [] });
    const key = `${running.file}.key`;
    writeFileSync(key, "first\n");
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { key: `\${file:${key}}` } }] });
    writeFileSync(running.file, JSON.stringify(config));
    await running.says(RELOADED);
    expect((await ask(running.port, { path: "/a/x?apiKey=first" })).status).toBe(200);
    writeFileSync(key, "second\n");
    running.child.kill("SIGHUP");
    await running.says("configuration read again");
    expect((await ask(running.port, { path: "/a/x?apiKey=first" })).status).toBe(401);
    expect((await ask(running.port, { path: "/a/x?apiKey=second" })).status).toBe(200);
  });

  it.each([
    ["is broken JSON", '{ "services": [', ":1:"],
    ["has errors", '{\n  "services": [{}],\n  "servces": []\n}', ":3:3"],
    ["is empty", "", ":1:1"],
  ])("that %s is refused: the last good one stays, and every error is in the log with its place", async (_what, text, place) => {
    const running = await started();
    writeFileSync(running.file, text);
    await running.says(REFUSED);
    const line = logLines(running.stderr()).find(({ message }) => /^reload refused/.test(String(message)))!;
    expect(line).toMatchObject({ level: "error", file: running.file });
    expect((line.issues as string[]).join("\n")).toContain(`${running.file}${place}`);
    expect(line.message).toContain(running.started.digest);
    expect(await statuses(running)).toEqual([200, 404]);
    writeFileSync(running.file, running.next);
    await running.says(RELOADED);
    expect(await statuses(running)).toEqual([404, 200]);
  });

  it("that is refused is told line by line with LOG_FORMAT text", async () => {
    const file = fileWith(oneService(9));
    const running = program(["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1", "--log-format", "text"]);
    await running.says(/^ {2}reload/m);
    writeFileSync(file, "{}");
    const text = await running.says(/error .*\n\S+ error .*\n/);
    expect(text).toMatch(/error +reload refused, configuration [0-9a-f]{12} stays in force file=\S+gw\.json by=file\n\S+ error +\S+gw\.json:1:1 .*services.*\n$/);
  });

  it("is shown by GET /gateway as it is in force, after a reload too", async () => {
    const running = await started();
    const admin = Number(new URL(running.started.admin as string).port);
    const login = await ask(admin, { method: "POST", path: "/login", headers: { Authorization: `Basic ${Buffer.from("a:b").toString("base64")}` } });
    const Cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
    const shown = async () => {
      const { body } = await ask(admin, { path: "/gateway", headers: { Cookie } });
      return (JSON.parse(body.toString()) as { services: { base_path: string }[] }).services.map((service) => service.base_path);
    };
    expect(await shown()).toEqual(["/a"]);
    writeFileSync(running.file, running.next);
    await running.says(RELOADED);
    expect(await shown()).toEqual(["/next"]);
  });
});

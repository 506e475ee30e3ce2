/** What became of requests stays known over restarts of a running program with STATE_DIR. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { loggedIn } from "../support/logged_in.ts";
import { emptyFolder, fileWith, logLines, runningFile, type RunningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "a-password" };
const LIMIT = { name: "rate_limit", id: "per-ip", config: { limit_hour: 1 } };

const config = async (parts: object = {}, global: object = {}) =>
  oneService((await backend()).port, { plugins: [LIMIT as never], ...parts }, global);

const startedWith = (content: unknown, folder: string, environment: Record<string, string> = {}) =>
  runningFile(fileWith(content), [], { ...CREDENTIALS, STATE_DIR: folder, ...environment });

async function ended({ child, ended: end }: RunningProgram, signal: "SIGKILL" | "SIGTERM") {
  child.kill(signal);
  await end;
}

/** Sends so many requests; returns their ids. */
async function requests({ port }: RunningProgram, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) ids.push(String((await ask(port, { path: "/a/x" })).headers["x-request-id"]));
  return ids;
}

async function decisionsOf({ started }: RunningProgram, ids: readonly string[]) {
  const admin = await loggedIn(Number(new URL(String(started.admin)).port), CREDENTIALS);
  const found: Record<string, unknown>[] = [];
  for (const id of ids) {
    const { status, body } = await admin("GET", `/gateway/requests/${id}`);
    if (status === 200) found.push(JSON.parse(body.toString()) as Record<string, unknown>);
  }
  return found;
}

const isWritten = (folder: string, ids: readonly string[]) => () => {
  const content = existsSync(join(folder, "decisions")) ? readFileSync(join(folder, "decisions"), "latin1") : "";
  return ids.every((id) => content.includes(id));
};
const REFUSED = { status: 429, by: "rate_limit", plugin: "services.s.plugins.per-ip", rule: "limit_hour" };

describe("what became of requests, with STATE_DIR", () => {
  it("outlives kill -9 once it is written, and SIGTERM as a whole", async () => {
    const [content, folder] = [await config(), emptyFolder()];
    const first = await startedWith(content, folder);
    const ids = await requests(first, 3);
    await eventually(isWritten(folder, ids), "three decisions in the file");
    await ended(first, "SIGKILL");
    const second = await startedWith(content, folder);
    ids.push(...(await requests(second, 2)));
    await ended(second, "SIGTERM");
    const third = await startedWith(content, folder);
    const found = await decisionsOf(third, ids);
    expect(found.map(({ id }) => id)).toEqual(ids);
    expect(found[0]).toMatchObject({ status: 200, by: "upstream", service: "s", tries: [{ status: 200 }] });
    expect(found[1]).toMatchObject(REFUSED);
    expect(found[4]).toMatchObject(REFUSED);
    expect(logLines(third.stderr()).filter(({ level }) => level === "warn" || level === "error")).toEqual([]);
  });

  it("keeps its names under another configuration that has none of them, and another number is kept", async () => {
    const folder = emptyFolder();
    const first = await startedWith(await config(), folder);
    const ids = await requests(first, 5);
    await ended(first, "SIGTERM");
    const second = await startedWith(await config({ name: "other", plugins: [] }, { decisions: 2 }), folder);
    const found = await decisionsOf(second, ids);
    expect(found.map(({ id }) => id)).toEqual(ids.slice(3));
    expect(found[1]).toMatchObject({ ...REFUSED, service: "s", route: "/{rest*}" });
    await ended(second, "SIGTERM");
  });

  it("is gone where decisions is 0, and is kept again from a reload on that remembers some", async () => {
    const folder = emptyFolder();
    const first = await startedWith(await config(), folder);
    const ids = await requests(first, 1);
    await ended(first, "SIGTERM");
    expect(readdirSync(folder).sort()).toEqual(["decision_names", "decisions"]);
    const file = fileWith(await config({}, { decisions: 0 }));
    const second = await runningFile(file, [], { ...CREDENTIALS, STATE_DIR: folder });
    expect(readdirSync(folder).filter((name) => name.startsWith("decision"))).toEqual([]);
    writeFileSync(file, JSON.stringify(await config({}, { decisions: 100 })));
    second.child.kill("SIGHUP");
    await second.says("reload");
    ids.push(...(await requests(second, 1)));
    await eventually(isWritten(folder, ids.slice(1)), "a decision in the file");
    await ended(second, "SIGKILL");
    const third = await startedWith(await config(), folder);
    expect((await decisionsOf(third, ids)).map(({ id }) => id)).toEqual(ids.slice(1));
  });

  it("is not written without an admin interface, which alone can ask for it, and is removed then", async () => {
    const folder = emptyFolder();
    for (const name of ["decisions", "decision_names"])
      for (const end of ["", ".new"]) writeFileSync(join(folder, `${name}${end}`), "x");
    const first = await runningFile(fileWith(await config()), [], { STATE_DIR: folder });
    await requests(first, 1);
    await ended(first, "SIGTERM");
    expect(readdirSync(folder)).toEqual([]);
  });

  it("of a file that cannot be read is logged and is no reason not to start", async () => {
    const [content, folder] = [await config(), emptyFolder()];
    writeFileSync(join(folder, "decisions"), "x");
    const first = await startedWith(content, folder);
    expect(logLines(first.stderr())).toContainEqual(
      expect.objectContaining({
        level: "warn",
        message: "decisions of the previous run cannot be used",
        file: join(folder, "decisions"),
        error: "it is damaged",
      }),
    );
    const ids = await requests(first, 1);
    await ended(first, "SIGTERM");
    expect((await decisionsOf(await startedWith(content, folder), ids)).length).toBe(1);
  });

  it("that cannot be written is logged and counted, and requests are served and remembered", async () => {
    const [content, folder] = [await config({ plugins: [] }), emptyFolder()];
    const program = await startedWith(content, folder, { PROBE_PORT: "0" });
    mkdirSync(join(folder, "decisions.new"));
    const ids = await requests(program, 2);
    await program.says("decisions cannot be written, and are kept in memory only");
    expect((await decisionsOf(program, ids)).length).toBe(2);
    const metrics = await (await fetch(`${String(program.started.probes)}/metrics`)).text();
    expect(metrics).toMatch(/^edge_gateway_state_errors_total [1-9]/m);
  });
});

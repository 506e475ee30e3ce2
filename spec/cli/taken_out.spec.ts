/** Upstreams that an administrator has taken out of the traffic of a running program, over restarts. */
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { loggedIn } from "../support/logged_in.ts";
import { emptyFolder, fileWith, logLines, program, runningFile, type RunningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "a-password" };
const SETTINGS = { ...CREDENTIALS, ADMIN_WRITE: "true" };

async function configuration() {
  const origins = [
    await backend((_request, response) => void response.end("a")),
    await backend((_request, response) => void response.end("b")),
  ];
  const upstreams = origins.map(({ port }, i) => ({ id: "ab"[i]!, host: "127.0.0.1", port }));
  return oneService([], { upstreams });
}

async function answers({ port }: RunningProgram, times = 4): Promise<string> {
  const found: string[] = [];
  for (let i = 0; i < times; i++) found.push((await ask(port, { path: "/a/x" })).body.toString());
  return found.sort().join("");
}

async function set({ started }: RunningProgram, id: string, state: string) {
  const admin = await loggedIn(Number(new URL(String(started.admin)).port), CREDENTIALS);
  return (await admin("POST", `/gateway/upstreams/s/${id}`, JSON.stringify({ state }))).status;
}

async function killed({ child, ended }: RunningProgram, signal: "SIGKILL" | "SIGTERM" = "SIGKILL") {
  child.kill(signal);
  await ended;
}

const kept = (folder: string) => JSON.parse(readFileSync(join(folder, "taken_out"), "utf8")) as unknown;

describe("an upstream that an administrator has taken out", () => {
  it(
    "stays out over kill -9 with STATE_DIR, from the answer on, until it is used, " + "which outlives kill -9, too",
    async () => {
      const [file, folder] = [fileWith(await configuration()), emptyFolder()];
      const started = () => runningFile(file, [], { ...SETTINGS, STATE_DIR: folder });
      const first = await started();
      expect(await set(first, "a", "eject")).toBe(200);
      await killed(first);
      expect(kept(folder)).toEqual([{ service: "s", id: "a", state: "eject", since: expect.any(Number) }]);
      expect(statSync(join(folder, "taken_out")).mode & 0o777).toBe(0o600);
      const second = await started();
      expect(await answers(second)).toBe("bbbb");
      expect(logLines(second.stderr())).toContainEqual(
        expect.objectContaining({
          level: "warn",
          message: "upstream stays taken out after a restart",
          service: "s",
          upstream: "a",
          state: "eject",
        }),
      );
      expect(await set(second, "a", "use")).toBe(200);
      await killed(second);
      expect(kept(folder)).toEqual([]);
      expect(await answers(await started())).toBe("aabb");
    },
  );

  it("gets requests after a restart without STATE_DIR", async () => {
    const file = fileWith(await configuration());
    const first = await runningFile(file, [], SETTINGS);
    expect(await set(first, "a", "eject")).toBe(200);
    await killed(first, "SIGTERM");
    expect(await answers(await runningFile(file, [], SETTINGS))).toBe("aabb");
  });

  it(
    "whose id the configuration has no longer is in the log and the audit log, of a reload and of a start, " +
      "and gets requests where the id comes back",
    async () => {
      const config = await configuration();
      const [file, folder] = [fileWith(config), emptyFolder()];
      const audit = join(emptyFolder(), "audit.log");
      const started = () => runningFile(file, [], { ...SETTINGS, STATE_DIR: folder, AUDIT_LOG: audit });
      const [a, b] = config.services[0]!.upstreams as [object, object];
      const write = (upstreams: readonly object[]) =>
        writeFileSync(file, JSON.stringify({ ...config, services: [{ ...config.services[0], upstreams }] }));
      const returned = () =>
        logLines(readFileSync(audit, "utf8"))
          .filter(({ event }) => event === "upstream_returned")
          .map(({ service, upstream, was }) => [service, upstream, was]);
      const first = await started();
      expect([await set(first, "a", "eject"), await set(first, "b", "drain")]).toEqual([200, 200]);
      write([{ ...a, id: "c" }, b]);
      await first.says(/upstream is no longer taken out: .*\n/);
      await eventually(() => returned().length === 1, "the line of the audit log");
      await eventually(
        () => /^\[{"service":"s","id":"b","state":"drain","since":\d+}\]$/.test(JSON.stringify(kept(folder))),
        "the file",
      );
      await killed(first);
      write([a, { ...b, id: "d" }]);
      const second = await started();
      await eventually(() => returned().length === 2, "the line of the audit log");
      expect(returned()).toEqual([
        ["s", "a", "eject"],
        ["s", "b", "drain"],
      ]);
      expect(logLines(second.stderr())).toContainEqual(
        expect.objectContaining({
          message: "upstream is no longer taken out: the configuration has it no longer",
          ...{ service: "s", upstream: "b", was: "drain" },
        }),
      );
      await eventually(() => JSON.stringify(kept(folder)) === "[]", "the file");
      await killed(second);
      write([a, b]);
      expect(await answers(await started())).toBe("aabb");
    },
  );

  it("is forgotten by no start that fails, whatever its configuration has", async () => {
    const config = await configuration();
    const [file, folder] = [fileWith(config), emptyFolder()];
    const first = await runningFile(file, [], { ...SETTINGS, STATE_DIR: folder });
    expect(await set(first, "a", "eject")).toBe(200);
    await killed(first);
    const [a, b] = config.services[0]!.upstreams as [object, object];
    const other = { ...config, services: [{ ...config.services[0], upstreams: [{ ...a, id: "c" }, b] }] };
    const taken = await backend();
    const { code, stderr } = await program(
      ["--config", fileWith(other), "--http-port", String(taken.port), "--listen-host", "127.0.0.1"],
      { environment: { STATE_DIR: folder } },
    ).ended;
    expect([code, stderr]).toEqual([1, expect.stringContaining("the port is already in use")]);
    expect(stderr).not.toContain("no longer taken out");
    expect(kept(folder)).toEqual([{ service: "s", id: "a", state: "eject", since: expect.any(Number) }]);
    expect(await answers(await runningFile(file, [], { ...SETTINGS, STATE_DIR: folder }))).toBe("bbbb");
  });

  it.each(["", "x", "{}", "[1]", '[{"service":"s","id":"a"}]', '[{"service":"s","id":"a","state":"use"}]', "[[]]"])(
    "in a damaged file, %j, is a start that is refused with exit code 2 and what to do",
    async (content) => {
      const folder = emptyFolder();
      writeFileSync(join(folder, "taken_out"), content);
      const { code, stderr } = await program(["--config", fileWith(await configuration()), "--http-port", "0"], {
        environment: { STATE_DIR: folder },
      }).ended;
      expect(code).toBe(2);
      expect(stderr).toContain(
        `STATE_DIR (--state-dir): ${folder}/taken_out is damaged: put a copy in its place, or move it away, ` +
          "and upstreams that were taken out get requests again",
      );
      expect(readFileSync(join(folder, "taken_out"), "utf8")).toBe(content);
    },
  );

  it("in a folder that cannot be written stays out while the program runs, and log and metric say so", async () => {
    const [file, folder] = [fileWith(await configuration()), emptyFolder()];
    const running = await runningFile(file, [], { ...SETTINGS, STATE_DIR: folder, PROBE_PORT: "0" });
    mkdirSync(join(folder, "taken_out.new"));
    expect(await set(running, "a", "eject")).toBe(200);
    expect(await answers(running)).toBe("bbbb");
    await running.says(/the state of upstreams cannot be kept/);
    const metrics = await fetch(`${String(running.started.probes)}/metrics`);
    expect(await metrics.text()).toMatch(/^edge_gateway_state_errors_total 1$/m);
  });
});

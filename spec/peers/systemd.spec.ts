/**
 * The examples for a machine with systemd: its units through systemd-analyze, socket activation and system calls with
 * the built gateway, logrotate.
 */
import { execFile, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import { found, read, root } from "../support/documents.ts";
import { oneService } from "../support/gateway.ts";
import { freePort, origin } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { emptyFolder, PROGRAM, startBuilt } from "./built.ts";

const run = promisify(execFile);
const SERVICE = read("examples/systemd/edge-gateway.service");

/** The units in a folder, with a program that is there. */
function units(change = (text: string) => text): string[] {
  const folder = emptyFolder();
  cpSync(`${root}/examples/systemd`, folder, { recursive: true });
  const service = join(folder, "edge-gateway.service");
  writeFileSync(service, change(SERVICE.replace("/usr/local/bin/edge-gateway", process.execPath)));
  return [service, join(folder, "edge-gateway.socket")];
}

describe("the units for systemd", () => {
  const verify = (files: readonly string[]) =>
    spawnSync("systemd-analyze", ["verify", "--man=no", ...files], { encoding: "utf8" });
  const exposure = (file: string) => {
    const { status, stdout } = spawnSync(
      "systemd-analyze",
      ["security", "--offline=true", "--threshold=20", "--no-pager", file],
      { encoding: "utf8" },
    );
    return { status, level: Number(/Overall exposure level for edge-gateway.service: ([\d.]+)/.exec(stdout)![1]) };
  };

  it("systemd-analyze verify accepts the units without a message, and finds a misspelt directive", () => {
    const { status, stdout, stderr } = verify(units());
    expect([status, stdout, stderr]).toEqual([0, "", ""]);
    expect(verify(units((text) => text.replace("ProtectClock", "ProtectClok"))).stderr).toContain(
      "Unknown key 'ProtectClok'",
    );
  });

  it("systemd-analyze security gives the service at most 2.0, and more without its restrictions", () => {
    const { status, level } = exposure(units()[0]!);
    expect(status).toBe(0);
    expect(level).toBeLessThanOrEqual(2);
    expect(
      exposure(units((text) => text.replace(/^(SystemCallFilter|CapabilityBoundingSet).*$/gm, ""))[0]!),
    ).toMatchObject({ status: 1 });
  });

  it("the service waits longer than the gateway drains, and the program accepts its environment", () => {
    const environment = Object.fromEntries(
      found(SERVICE, /^Environment=(.+)$/gm)
        .flatMap((line) => line.split(" "))
        .map((each) => each.split("=", 2) as [string, string]),
    );
    const result = readSettings({}, environment);
    if (!result.ok) throw new Error(result.issues.join("\n"));
    const { shutdownGraceS, preStopDelayS, probe, admin } = result.settings;
    expect([probe!.host, admin]).toEqual(["127.0.0.1", null]);
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(SERVICE)![1])).toBeGreaterThan(shutdownGraceS + preStopDelayS);
  });

  it(
    "the system calls that the service may make are enough: to start, serve, " + "reload, reopen logs and drain",
    async () => {
      const [added = [], removed = []] = found(SERVICE, /^SystemCallFilter=~?(.+)$/gm).map((groups) =>
        groups.split(" "),
      );
      expect(found(SERVICE, /^(SystemCallFilter=~?@|SystemCallErrorNumber=EPERM)/gm)).toEqual([
        "SystemCallFilter=@",
        "SystemCallFilter=~@",
        "SystemCallErrorNumber=EPERM",
      ]);
      const allowed = new Set((await Promise.all(added.map(callsOf))).flatMap((calls) => [...calls]));
      for (const calls of await Promise.all(removed.map(callsOf))) for (const call of calls) allowed.delete(call);
      const trace = join(emptyFolder(), "trace");
      const upstream = await origin();
      onTestFinished(() => upstream.close());
      const log = join(emptyFolder(), "access.log");
      const strace = ["strace", "-f", "-qq", "-o", trace, process.execPath, PROGRAM];
      const {
        url,
        process: child,
        file,
      } = await startBuilt(
        oneService(upstream.port, {}, { access_log: { enabled: true, file: log } }),
        { PROBE_PORT: "0" },
        strace,
      );
      expect((await fetch(`${url}/a/x`)).status).toBe(200);
      const pid = Number(/^(\d+) /.exec(readFileSync(trace, "utf8"))![1]); // of the gateway: strace is its parent
      onTestFinished(() => void (child.exitCode === null && process.kill(pid, "SIGKILL")));
      let said = "";
      child.stderr!.on("data", (chunk: Buffer) => (said += chunk.toString()));
      writeFileSync(
        file,
        JSON.stringify(oneService(upstream.port, { base_path: "/b" }, { access_log: { enabled: true, file: log } })),
      );
      process.kill(pid, "SIGHUP");
      await eventually(() => said.includes("configuration reloaded"), "a reload");
      process.kill(pid, "SIGUSR1");
      expect((await fetch(`${url}/b/x`)).status).toBe(200);
      process.kill(pid, "SIGTERM");
      expect(await once(child, "exit")).toEqual([0, null]);
      const used = new Set(found(readFileSync(trace, "utf8"), /^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)/gm));
      expect(used.size).toBeGreaterThan(30);
      // Node raises its limit of open files by itself: refused, it keeps the limit of the unit.
      expect([...used].filter((call) => !allowed.has(call) && call !== "prlimit64")).toEqual([]);
    },
  );
});

/** The system calls of a group, those of groups inside it included. */
async function callsOf(group: string): Promise<Set<string>> {
  const { stdout } = await run("systemd-analyze", ["syscall-filter", "--no-pager", group]);
  const words = stdout
    .split("\n")
    .slice(1)
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  const inner = await Promise.all(words.filter((word) => word.startsWith("@")).map(callsOf));
  return new Set([...words, ...inner.flatMap((calls) => [...calls])]);
}

describe("socket activation", () => {
  it(
    "systemd-socket-activate passes sockets by name: the gateway serves on them " + "from the first connection on",
    async () => {
      const upstream = await origin();
      onTestFinished(() => upstream.close());
      const file = join(emptyFolder(), "gw.json");
      writeFileSync(file, JSON.stringify(oneService(upstream.port)));
      const port = await freePort();
      const words = [
        "-l",
        `127.0.0.1:${port}`,
        "--fdname=http",
        process.execPath,
        PROGRAM,
        "--config",
        file,
        "--http-port",
        "0",
      ];
      const child = ended(
        spawn("systemd-socket-activate", words, {
          stdio: ["ignore", "ignore", "pipe"],
          env: { PATH: process.env.PATH },
        }),
      );
      let said = "";
      child.stderr!.on("data", (chunk: Buffer) => (said += chunk.toString()));
      await eventually(() => said.includes("Listening on"), "systemd-socket-activate");
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(said).toContain(`"http":["http://127.0.0.1:${port}"]`);
      child.kill("SIGTERM"); // it has become the gateway
      expect(await once(child, "exit")).toEqual([0, null]);
    },
  );
});

function ended(child: ChildProcess): ChildProcess {
  const exit = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await exit;
  });
  return child;
}

describe("the example for logrotate", () => {
  const CONFIG = read("examples/logrotate/edge-gateway");

  it("logrotate renames the access log, and the gateway goes on in a new one without losing a line", async () => {
    const folder = emptyFolder();
    const logs = join(folder, "logs");
    mkdirSync(logs, { mode: 0o750 });
    const log = join(logs, "access.log");
    const upstream = await origin();
    onTestFinished(() => upstream.close());
    const { url, process: child } = await startBuilt(
      oneService(upstream.port, {}, { access_log: { enabled: true, file: log } }),
    );
    const get = async (path: string) => void (await (await fetch(`${url}/a/${path}`)).text());
    const linesOf = (file: string) => found(readFileSync(file, "utf8"), /"path":"\/a\/(\w+)"/g);
    await get("before");
    await eventually(() => linesOf(log).length === 1, "a line");
    const own = CONFIG.replaceAll("/var/log/edge-gateway/", `${logs}/`).replace(
      /systemctl kill .*/,
      `kill -USR1 ${child.pid}`,
    );
    expect(own).toContain(`kill -USR1 ${child.pid}`);
    const config = join(folder, "rotate");
    writeFileSync(config, own, { mode: 0o644 });
    await run("logrotate", ["--force", "--state", join(folder, "state"), config]);
    await eventually(() => statSync(log, { throwIfNoEntry: false }) !== undefined, "a new file");
    await get("after");
    await eventually(() => linesOf(log).length === 1, "a line in the new file");
    expect([linesOf(`${log}.1`), linesOf(log)]).toEqual([["before"], ["after"]]);
  });

  it("logrotate renames the audit log, and its chain goes on in a new one", async () => {
    const folder = emptyFolder();
    const logs = join(folder, "logs");
    mkdirSync(logs, { mode: 0o750 });
    const log = join(logs, "audit.log");
    const plugins = [{ name: "key_auth", config: { key: "the-key" } }];
    const { url, process: child } = await startBuilt(oneService(9, { plugins }), {
      AUDIT_LOG: log,
      AUDIT_REFUSALS: "true",
      AUDIT_FAIL: "closed",
    });
    expect((await fetch(`${url}/a/before`)).status).toBe(401);
    const config = join(folder, "rotate");
    writeFileSync(
      config,
      CONFIG.replaceAll("/var/log/edge-gateway/", `${logs}/`).replace(/systemctl kill .*/, `kill -USR1 ${child.pid}`),
      { mode: 0o644 },
    );
    await run("logrotate", ["--force", "--state", join(folder, "state"), config]);
    await eventually(() => statSync(log, { throwIfNoEntry: false }) !== undefined, "a new file");
    expect((await fetch(`${url}/a/after`)).status).toBe(401);
    const refused = (file: string) => found(readFileSync(file, "utf8"), /"seq":(\d+),.*"event":"request_refused"/g);
    expect([refused(`${log}.1`), refused(log)]).toEqual([["3"], ["4"]]);
    const { stdout } = await run(process.execPath, [PROGRAM, "verify-log", `${log}.1`, log]);
    expect(stdout).toMatch(/^audit log: first seq 1, last seq 4, .*\n4 lines in 2 files: whole\n$/);
  });

  it("the signal in the example is sent to the service of the units", () => {
    expect(CONFIG).toContain("--signal=SIGUSR1 edge-gateway.service");
    expect(SERVICE).toContain("LogsDirectory=edge-gateway\n");
  });
});

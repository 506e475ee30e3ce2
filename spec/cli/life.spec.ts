import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, program, runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

function fifo(): string {
  const path = join(emptyFolder(), "gw.json");
  execFileSync("mkfifo", [path]);
  return path;
}

it("a FIFO in place of the configuration is refused with exit status 2, and never waited for", async () => {
  const path = fifo();
  const { code, stderr } = await program(["--config", path]).ended;
  expect([code, stderr]).toEqual([2, expect.stringContaining(`cannot read ${path}: it is a FIFO, not a file`)]);
});

it.each([
  ["a password", "ADMIN_PASSWORD_FILE", { ADMIN_USER: "anna" }],
  ["the server certificate", "SERVER_CERT_PATH", { SERVER_KEY_PATH: "/dev/null" }],
  [
    "the certificates of a collector",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    { OTEL_EXPORTER_OTLP_ENDPOINT: "https://127.0.0.1:4318" },
  ],
])("a FIFO in place of %s is refused with exit status 2, and never waited for", async (_what, variable, others) => {
  const { port } = await backend();
  const path = fifo();
  const { code, stderr } = await program(["--config", fileWith(oneService(port))], {
    environment: { ...others, [variable]: path },
  }).ended;
  expect([code, stderr]).toEqual([
    2,
    expect.stringMatching(
      new RegExp(`${variable}.*it is a FIFO, not a file|${path}.*${variable}.*it is a FIFO, not a file`),
    ),
  ]);
});

it("a device in place of the configuration is refused by validate", async () => {
  const { code, stderr } = await program(["validate", "/dev/zero"]).ended;
  expect([code, stderr]).toEqual([2, expect.stringContaining("it is a device, not a file")]);
});

it("SIGHUP and SIGUSR1 end no gateway that is starting, and SIGTERM ends it with 0", async () => {
  const { port } = await backend();
  // The first handler is the first code of the program: the signals meet it while its modules are loaded.
  const { child, port: gateway } = await runningProgram(oneService(port), [], {
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(SIGNALS)}`,
  });
  expect((await ask(gateway, { path: "/a/x" })).status).toBe(200);
  child.kill("SIGTERM");
  await eventually(() => child.exitCode !== null, "the end");
  expect(child.exitCode).toBe(0);
});

/** Sends both signals in the first turn in which the program handles SIGHUP. */
const SIGNALS =
  `const timer = setInterval(() => { if (process.listenerCount("SIGHUP") === 0) return; clearInterval(timer); ` +
  `process.kill(process.pid, "SIGHUP"); process.kill(process.pid, "SIGUSR1"); }, 1); timer.unref();`;

it(
  "SIGTERM that arrives while the last code of a start runs, " + "before it takes over the signals, is obeyed",
  async () => {
    const built = (name: string) => new URL(`../../dist/lib/cli/${name}.js`, import.meta.url).href;
    const code = `const { handleEarlySignals } = await import("${built("early_signals")}");
    const { untilStopped } = await import("${built("shutdown")}");
    handleEarlySignals(["run"]);
    process.kill(process.pid, "SIGTERM");
    for (const until = performance.now() + 50; performance.now() < until; );
    setTimeout(() => process.exit(3), 5000);
    process.exit(await untilStopped(async () => console.log("ended"), { info() {}, warn() {} }));`;
    const { stdout, status } = spawnSync(process.execPath, ["--input-type=module", "--eval", code], {
      encoding: "utf8",
    });
    expect([stdout, status]).toEqual(["ended\n", 0]);
  },
);

it("SIGTERM between the first open port and the end of the start drains the gateway", async () => {
  const { port } = await backend();
  const environment = {
    ADMIN_USER: "anna",
    ADMIN_PASSWORD: "a long password",
    ADMIN_PORT: "0",
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(LISTENING)}`,
  };
  const { code, stderr } = await program(["--config", fileWith(oneService(port))], {
    environment: { HTTP_PORT: "0", LOG_FORMAT: "json", ...environment },
  }).ended;
  expect([code, stderr]).toEqual([0, expect.stringMatching(/"message":"SIGTERM: draining".*\n.*"message":"stopped"/)]);
});

/** Sends SIGTERM when the first port is open. */
const LISTENING = `import net from "node:net"; const { listen } = net.Server.prototype; let isFirst = true;
net.Server.prototype.listen = function (...given) { if (isFirst) this.once("listening", () => \
process.kill(process.pid, "SIGTERM")); isFirst = false; return listen.apply(this, given); };`;

it("the process ends by the grace although a name look-up hangs in Node's thread pool", async () => {
  const { port } = await backend();
  const running = await runningProgram(oneService(port), ["--shutdown-grace-s", "1"], {
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(HANGING)}`,
  });
  running.child.kill("SIGTERM");
  const { signal, stderr } = await running.ended;
  expect([signal, stderr]).toEqual(["SIGKILL", expect.stringContaining("a name look-up does not end")]);
});

it("the process ends by the grace although the disk of the audit log hangs in Node's thread pool", async () => {
  const { port } = await backend();
  const environment = {
    AUDIT_LOG: join(emptyFolder(), "audit.log"),
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(hangingDisk(fifo()))}`,
  };
  const running = await runningProgram(oneService(port), ["--shutdown-grace-s", "1"], environment);
  await running.says("the disk takes longer than a second");
  const from = performance.now();
  running.child.kill("SIGTERM");
  const { signal, stderr } = await running.ended;
  expect([signal, stderr]).toEqual([
    "SIGKILL",
    expect.stringContaining("the process is killed, since a call of a plugin, of the disk or"),
  ]);
  expect(performance.now() - from).toBeGreaterThan(900);
});

/** No write ever ends: the opening of a FIFO waits for its other end. */
const hangingDisk = (path: string) =>
  `import fs from "node:fs"; import { syncBuiltinESMExports } from "node:module"; fs.write = (...given) ` +
  `=> fs.open(${JSON.stringify(path)}, "r", given.at(-1)); syncBuiltinESMExports();`;

/** A look-up that never ends keeps the process: both are made up, since no real one lasts for ever. */
const HANGING = `process.getActiveResourcesInfo = () => ["GetAddrInfoReqWrap"]; setInterval(() => {}, 1000);`;

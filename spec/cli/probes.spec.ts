import { describe, expect, it, onTestFinished, vi } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { drain } from "../../lib/cli/shutdown.ts";
import type { Settings } from "../../lib/config/settings_types.ts";
import { backend, oneService } from "../support/gateway.ts";
import { closedPort, socketOrigin } from "../support/origin.ts";
import { fileWith, program, runningProgram } from "../support/process.ts";
import { ask, eventually, refused } from "../support/raw_client.ts";

const TOKEN = "a-token-of-the-scraper";

/** A running program with a listener for probes. */
async function probed(environment: Record<string, string> = {}) {
  const held: (() => void)[] = [];
  const origin = await backend((_request, response) => void held.push(() => response.end("done")));
  const running = await runningProgram(oneService(origin.port), [], { PROBE_PORT: "0", ...environment });
  const probePort = Number(new URL(String(running.started.probes)).port);
  return { ...running, origin, probePort, finish: () => held.forEach((each) => each()) };
}

const healthcheck = (words: readonly string[], environment: Record<string, string>) =>
  program(["healthcheck", ...words], { environment }).ended;

describe("PROBE_PORT", () => {
  it(
    "PROBE_PORT opens a listener on 127.0.0.1 that answers probes and scrapes " + "without an admin interface",
    async () => {
      const { probePort, started } = await probed();
      expect(started.admin).toMatch(/^off/);
      expect(started.probes).toBe(`http://127.0.0.1:${probePort}`);
      const answers = await Promise.all(
        ["/healthz", "/readyz", "/metrics", "/gateway"].map((path) => ask(probePort, { path })),
      );
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 404]);
      expect(answers[2]!.body.toString()).toContain("edge_gateway_build_info{");
    },
  );

  it("METRICS_TOKEN opens /metrics of the admin interface and of PROBE_PORT, which requires it then", async () => {
    const { probePort, started } = await probed({ METRICS_TOKEN: TOKEN, ADMIN_USER: "anna", ADMIN_PASSWORD: "pw" });
    const ports = [probePort, Number(new URL(String(started.admin)).port)];
    const statuses = (headers: Record<string, string>) =>
      Promise.all(ports.map(async (port) => (await ask(port, { path: "/metrics", headers })).status));
    expect(await statuses({ Authorization: `Bearer ${TOKEN}` })).toEqual([200, 200]);
    expect(await statuses({})).toEqual([401, 401]);
  });

  it(
    "while requests finish after SIGTERM, /readyz answers 503 and /healthz 200, " + "until the program ends with 0",
    async () => {
      const { child, port, probePort, origin, says, ended, finish } = await probed();
      const answer = ask(port, { path: "/a/slow" });
      await eventually(() => origin.seen.length === 1);
      child.kill("SIGTERM");
      await says("SIGTERM: draining");
      expect([
        (await ask(probePort, { path: "/readyz" })).status,
        (await ask(probePort, { path: "/healthz" })).status,
      ]).toEqual([503, 200]);
      expect((await refused(port)).code).toMatch(/ECONNREFUSED|ECONNRESET/);
      expect((await ask(probePort, { path: "/readyz" })).status).toBe(503);
      finish();
      expect((await answer).body.toString()).toBe("done");
      expect((await ended).code).toBe(0);
    },
  );

  it("during PRE_STOP_DELAY_S /readyz answers 503 while traffic is still served", async () => {
    const { child, port, probePort, origin, says, finish } = await probed({ PRE_STOP_DELAY_S: "3600" });
    child.kill("SIGTERM");
    await says("not ready any more, still serving");
    expect((await ask(probePort, { path: "/readyz" })).status).toBe(503);
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1);
    finish();
    expect((await answer).status).toBe(200);
  });

  it(
    "the listener for probes is closed last, after the gateway, " + "the admin interface and the management UI",
    async () => {
      vi.useFakeTimers(); // of the real ones, one ends the process
      onTestFinished(() => void vi.useRealTimers());
      const closed: string[] = [];
      const part = (name: string) => ({ close: async () => void closed.push(name) });
      const gateway = { ...part("gateway"), inFlight: 0 };
      const parts = {
        gateway,
        probes: part("probes"),
        admin: part("admin"),
        manager: part("manager"),
        certificates: () => null,
      } as unknown as Parameters<typeof drain>[1];
      await drain("SIGTERM", parts, { preStopDelayS: 0, shutdownGraceS: 0 } as Settings, silentLog);
      expect(closed).toEqual(["gateway", "admin", "manager", "probes"]);
    },
  );

  it("a port in use ends the start with 1, and names PROBE_PORT", async () => {
    const other = await socketOrigin((socket) => socket.destroy());
    onTestFinished(() => other.close());
    const words = [
      "--config",
      fileWith(oneService(9)),
      "--http-port",
      "0",
      "--listen-host",
      "127.0.0.1",
      "--probe-port",
      String(other.port),
    ];
    const { code, stderr } = await program(words).ended;
    expect([code, stderr]).toEqual([1, expect.stringContaining("choose another port with PROBE_PORT (--probe-port)")]);
  });
});

describe("edge-gateway healthcheck", () => {
  it("healthcheck exits with 0 while the gateway is ready, by PROBE_PORT or by the admin interface", async () => {
    const { probePort, started } = await probed({ METRICS_TOKEN: TOKEN, ADMIN_USER: "anna", ADMIN_PASSWORD: "pw" });
    const url = `http://127.0.0.1:${probePort}/readyz`;
    expect(await healthcheck([], { PROBE_PORT: String(probePort) })).toMatchObject({
      code: 0,
      stdout: `${url} answered 200\n`,
      stderr: "",
    });
    const admin = new URL(String(started.admin));
    const environment = { ADMIN_USER: "anna", ADMIN_PORT: admin.port };
    expect(await healthcheck(["--live"], environment)).toMatchObject({
      code: 0,
      stdout: `${admin.origin}/healthz answered 200\n`,
    });
  });

  it("healthcheck exits with 1 while the gateway drains, and with --live with 0", async () => {
    const { child, port, probePort, origin, says, finish } = await probed();
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1);
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    const words = ["--probe-port", String(probePort)];
    const found = await healthcheck(words, {});
    expect(found).toMatchObject({
      code: 1,
      stderr: `edge-gateway: http://127.0.0.1:${probePort}/readyz answered 503: it is not ready\n`,
    });
    expect((await healthcheck([...words, "--live"], {})).code).toBe(0);
    finish();
    await answer;
  });

  it(
    "healthcheck exits with 1 if nothing listens, if another program answers, and if none answers within 3 s",
    { timeout: 20_000 },
    async () => {
      const nothing = await healthcheck([], { PROBE_PORT: String(await closedPort()) });
      expect(nothing).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^edge-gateway: cannot ask \S+\/readyz: nothing listens there\n$/) as string,
      });
      const other = await backend(
        (_request, response) => void response.writeHead(302, { Location: "http://192.0.2.1/" }).end(),
      );
      expect(await healthcheck([], { PROBE_PORT: String(other.port) })).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("answered 302, which is no answer of a gateway") as string,
      });
      const silent = await socketOrigin(() => {});
      onTestFinished(() => silent.close());
      expect(await healthcheck([], { PROBE_PORT: String(silent.port) })).toMatchObject({
        code: 1,
        stderr: expect.stringContaining("it did not answer within 3 s") as string,
      });
    },
  );

  it.each([
    [[], {}, "there is nothing to ask: set PROBE_PORT"],
    [["--config", "x"], { PROBE_PORT: "1" }, "--config is not a flag of this command"],
    [["--live", "--probe-port", "0"], {}, "PROBE_PORT is 0"],
    [["extra"], { PROBE_PORT: "1" }, "too many arguments"],
    [["--live=yes"], { PROBE_PORT: "1" }, "--live takes no value"],
  ])("healthcheck %j with %j exits with 2 and says why", async (words, environment, message) => {
    const found = await healthcheck(words, environment as Record<string, string>);
    expect([found.code, found.stderr]).toEqual([2, expect.stringContaining(message)]);
  });
});

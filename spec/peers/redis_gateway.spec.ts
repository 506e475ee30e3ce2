import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { Gateway } from "../../lib/index.ts";
import { oneService, running, type Running } from "../support/gateway.ts";
import { origin } from "../support/origin.ts";
import { logLines } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { CREDENTIALS, emptyFolder, startBuilt } from "./built.ts";
import { cluster, redis, until, type Redis } from "./redis.ts";
import { clientOn, probeModule, withWorkers } from "./workers.ts";

type CountersInput = NonNullable<NonNullable<AnyConfigInput["global"]>["counters"]>;

/** Time limits do not matter here, and the machine may be busy. */
const PATIENT = 5_000;

function configOf(
  port: number,
  counters: Partial<CountersInput> | null,
  limit: Record<string, unknown> = { limit_min: 30 },
): AnyConfigInput {
  return oneService(
    port,
    { plugins: [{ name: "rate_limit", config: limit }] },
    counters === null ? {} : { counters: { store: "redis", url: "", timeout_ms: PATIENT, ...counters } },
  );
}

async function backend(): Promise<number> {
  const started = await origin();
  onTestFinished(() => started.close());
  return started.port;
}

interface Started extends Running {
  readonly log: string[];
}

async function started(config: AnyConfigInput): Promise<Started> {
  const log: string[] = [];
  const made = await running(config, { log: createLog({ format: "json", write: (line) => log.push(line) }) });
  return { ...made, log };
}

const urlOf = ({ port }: Redis) => `redis://127.0.0.1:${port}`;

async function statuses(port: number, count: number): Promise<number[]> {
  return Promise.all(Array.from({ length: count }, async () => (await ask(port, { path: "/a/x" })).status));
}

const countOf = (list: readonly number[], status: number) => list.filter((each) => each === status).length;

async function shares(gateway: Gateway): Promise<void> {
  await until(
    () => gateway.status.counters?.state === "up",
    () => JSON.stringify(gateway.status.counters),
  );
}

/** The connections of clients other than redis-cli, by id. */
async function clientsOf(server: Redis): Promise<string[]> {
  const lines = (await server.cli("CLIENT", "LIST")).split("\n");
  return lines.filter((line) => !line.includes("cmd=client")).map((line) => /^id=(\d+)/.exec(line)![1]!);
}

function metric({ gateway }: Running, name: string): string[] {
  return gateway
    .metrics()
    .split("\n")
    .filter((line) => line.startsWith(name));
}

describe("gateways that share counters", () => {
  it("admit together exactly N of many concurrent requests, and their replies count down together", async () => {
    const server = await redis();
    const port = await backend();
    const both = [
      await started(configOf(port, { url: urlOf(server) })),
      await started(configOf(port, { url: urlOf(server) })),
    ];
    const all = (await Promise.all(both.map((each) => statuses(each.port, 60)))).flat();
    expect([countOf(all, 200), countOf(all, 429)]).toEqual([30, 90]);
    const { status, headers } = await ask(both[0]!.port, { path: "/a/x" });
    expect([status, headers["ratelimit"]]).toEqual([429, expect.stringMatching(/^"minute";r=0;t=\d+$/)]);
  });

  it("as built programs: exactly N of N by a limit each minute, over a Cluster, too", async () => {
    const nodes = await cluster(3);
    const port = await backend();
    const config = configOf(port, { url: nodes.map(urlOf) }, { limit_min: 25, limit_by: "header:X-Tenant" });
    const both = [await startBuilt(config), await startBuilt(config)];
    for (const tenant of ["a", "b", "c", "d", "e"]) {
      const answers = await Promise.all(
        Array.from(
          { length: 60 },
          async (_, i) => (await ask(both[i % 2]!.port, { path: "/a/x", headers: { "X-Tenant": tenant } })).status,
        ),
      );
      expect([tenant, countOf(answers, 200), countOf(answers, 429)]).toEqual([tenant, 25, 35]);
    }
  });

  it(
    "as a built program: status and metrics are on the admin interface, " + "and SIGTERM ends it with its connection",
    async () => {
      const server = await redis();
      const { adminUrl, port, process: child } = await startBuilt(configOf(await backend(), { url: urlOf(server) }));
      expect(await statuses(port, 2)).toEqual([200, 200]);
      const authorization = `Basic ${Buffer.from(`${CREDENTIALS.user}:${CREDENTIALS.password}`).toString("base64")}`;
      const login = await fetch(`${adminUrl}/login`, { method: "POST", headers: { Authorization: authorization } });
      const headers = { Cookie: login.headers.get("set-cookie")!.split(";")[0]! };
      const status = (await (await fetch(`${adminUrl}/gateway/status`, { headers })).json()) as Record<string, unknown>;
      expect(status.counters).toEqual({
        store: "redis",
        state: "up",
        on_error: "local",
        since: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
        servers: [{ address: `127.0.0.1:${server.port}`, state: "up", reason: null }],
      });
      expect(await clientsOf(server)).toHaveLength(1);
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      expect(await ended).toBe(0);
      await until(async () => (await clientsOf(server)).length === 0);
    },
  );

  it('count a plugin with "counters": "memory" by themselves', async () => {
    const server = await redis();
    const port = await backend();
    const config = configOf(port, { url: urlOf(server) }, { limit_min: 30, counters: "memory" });
    const both = [await started(config), await started(config)];
    for (const each of both) expect(countOf(await statuses(each.port, 40), 200)).toBe(30);
    expect(
      (await server.cli("KEYS", "*"))
        .split("\n")
        .filter((key) => !key.includes("{probe}"))
        .join(""),
    ).toBe("");
  });

  it("with other prefixes count apart", async () => {
    const server = await redis();
    const port = await backend();
    for (const prefix of ["a:", "b:"]) {
      expect(
        countOf(await statuses((await started(configOf(port, { url: urlOf(server), prefix }))).port, 40), 200),
      ).toBe(30);
    }
  });

  it("reach a server with TLS, a client certificate, a user and a password by rediss://", async () => {
    const server = await redis([], true);
    await server.cli(
      "ACL",
      "SETUSER",
      "gateway",
      "on",
      ">p@ss/word",
      "~edge-gateway:*",
      "+eval",
      "+evalsha",
      "+get",
      "+set",
      "+time",
    );
    const tls = {
      ca: join(server.folder, "ca.pem"),
      cert: join(server.folder, "client.pem"),
      key: join(server.folder, "client.key"),
    };
    const made = await started(
      configOf(await backend(), { url: `rediss://gateway:p%40ss%2Fword@localhost:${server.port}`, tls }),
    );
    await shares(made.gateway);
    expect(countOf(await statuses(made.port, 40), 200)).toBe(30);
    const said = JSON.stringify([made.log, made.gateway.status, made.gateway.maskedConfig, made.gateway.metrics()]);
    expect(said).not.toMatch(/p@ss|p%40ss/);
    expect(said).toContain(`rediss://********@localhost:${server.port}`);
  });
});

describe("a gateway whose counters cannot be reached", () => {
  it.each([
    ["local", 30, 10, 429],
    ["allow", 40, 0, 0],
    ["deny", 0, 40, 503],
  ] as const)(
    "answers by on_error %s, counts that, shows it and logs it once; then shares again",
    async (on_error, served, refused, status) => {
      const server = await redis();
      const made = await started(configOf(await backend(), { url: urlOf(server), on_error }));
      await shares(made.gateway);
      expect(metric(made, "edge_gateway_counters")).toEqual([
        "edge_gateway_counters_up 1",
        'edge_gateway_counters_errors_total{reason="timeout"} 0',
        'edge_gateway_counters_errors_total{reason="connection"} 0',
        'edge_gateway_counters_errors_total{reason="server"} 0',
        'edge_gateway_counters_errors_total{reason="queue"} 0',
      ]);
      await server.stop();
      await until(() => made.gateway.status.counters!.state === "down");
      const answers = await statuses(made.port, 40);
      expect([countOf(answers, 200), countOf(answers, status)]).toEqual([served, refused]);
      if (on_error === "deny")
        expect((await ask(made.port, { path: "/a/x" })).body.toString()).toContain('"code":"limiter_unavailable"');
      expect(metric(made, "edge_gateway_counters_up")).toEqual(["edge_gateway_counters_up 0"]);
      expect(metric(made, 'edge_gateway_counters_errors_total{reason="connection"}')).toEqual([
        `edge_gateway_counters_errors_total{reason="connection"} ${on_error === "deny" ? 41 : 40}`,
      ]);
      expect(made.gateway.status.counters).toMatchObject({
        store: "redis",
        state: "down",
        onError: on_error,
        servers: [{ state: "down", reason: expect.stringMatching(/./) }],
      });
      await server.restart();
      await shares(made.gateway);
      expect(countOf(await statuses(made.port, 40), 200)).toBe(30);
      expect(
        made.log
          .filter((line) => line.includes("rate counters"))
          .map((line) => (JSON.parse(line) as { level: string }).level),
      ).toEqual(["info", "warn", "info"]);
    },
  );

  it(
    "as a built program with workers: logs the outage and its end once, " + "also when a worker ends meanwhile",
    async () => {
      const server = await redis();
      const plugins = [{ name: "probe" }, { name: "rate_limit", config: { limit_min: 30 } }];
      const config = oneService(
        await backend(),
        { plugins },
        { plugin_modules: [probeModule()], counters: { store: "redis", url: urlOf(server), timeout_ms: PATIENT } },
      );
      const gateway = await withWorkers(config, { workers: 3 });
      /** The connections to the server, of which each worker has one. */
      const connected = () => until(async () => (await clientsOf(server)).length === 3);
      const logged = () =>
        logLines(gateway.stderr())
          .filter(({ message }) => String(message).startsWith("rate counters"))
          .map(({ level }) => level);
      const state = async () =>
        (JSON.parse(await gateway.admin("/gateway/status")) as { counters: { state: string } }).counters.state;
      await connected();
      const expected = ["info"];
      const areLogged = () => until(async () => logged().length >= expected.length);
      for (const isWorkerEnded of [false, true]) {
        await areLogged();
        await server.stop();
        expected.push("warn");
        await areLogged();
        await until(async () => (await state()) === "down");
        if (isWorkerEnded) {
          await expect((await clientOn(gateway.port, () => true)).ask("/a/x?exit")).rejects.toThrow();
          await gateway.says("a worker serves again");
        }
        await server.restart();
        await connected();
        await until(async () => (await state()) === "up");
        expected.push("info");
        await areLogged();
      }
      // What other workers would have logged stands before its last lines.
      gateway.child.kill("SIGTERM");
      await gateway.ended;
      expect(logged()).toEqual(expected);
    },
  );

  it("serves from its first request on, though the server was never there", async () => {
    const server = await redis();
    await server.stop();
    const made = await started(configOf(await backend(), { url: urlOf(server) }));
    expect(countOf(await statuses(made.port, 40), 200)).toBe(30);
    await until(() => made.gateway.status.counters!.state === "down");
  });

  it("waits for a server that hangs no longer than timeout_ms", async () => {
    const server = await redis();
    const made = await started(configOf(await backend(), { url: urlOf(server), timeout_ms: 50 }));
    await shares(made.gateway);
    server.process.kill("SIGSTOP");
    expect(countOf(await statuses(made.port, 40), 200)).toBe(30);
    server.process.kill("SIGCONT");
    await shares(made.gateway);
  });
});

describe("a reload of a gateway that shares counters", () => {
  it("with the same settings keeps the connection and the counts", async () => {
    const server = await redis();
    const port = await backend();
    const made = await started(configOf(port, { url: urlOf(server) }));
    expect(countOf(await statuses(made.port, 20), 200)).toBe(20);
    const before = await clientsOf(server);
    await made.gateway.reload({ ...configOf(port, { url: urlOf(server) }, { limit_min: 25 }) });
    expect(countOf(await statuses(made.port, 20), 200)).toBe(5);
    expect(await clientsOf(server)).toEqual(before);
    expect(before).toHaveLength(1);
  });

  it(
    "with other settings opens another connection and closes the old one; " + "requests in progress lose nothing",
    async () => {
      const [first, second] = [await redis(), await redis()];
      const port = await backend();
      const made = await started(configOf(port, { url: urlOf(first), on_error: "deny" }));
      await shares(made.gateway);
      const inProgress = statuses(made.port, 20);
      await until(async () =>
        (await first.cli("KEYS", "*")).split("\n").some((key) => key !== "" && !key.includes("{probe}")),
      );
      await made.gateway.reload(configOf(port, { url: urlOf(second), on_error: "deny" }));
      expect(countOf(await inProgress, 200)).toBe(20);
      await shares(made.gateway);
      await until(async () => (await clientsOf(first)).length === 0);
      // Some of the first requests may have come after the reload, and were counted there.
      const later = countOf(await statuses(made.port, 40), 200);
      expect([later >= 10, later <= 30]).toEqual([true, true]);
      expect(await clientsOf(second)).toHaveLength(1);
    },
  );

  it("without them closes the connection, counts in memory, and keeps the counter of errors", async () => {
    const server = await redis();
    const port = await backend();
    const made = await started(configOf(port, { url: urlOf(server) }));
    await shares(made.gateway);
    await made.gateway.reload(configOf(port, null));
    await until(async () => (await clientsOf(server)).length === 0);
    expect(made.gateway.status.counters).toBeNull();
    expect(metric(made, "edge_gateway_counters_up")).toEqual([]);
    expect(metric(made, "edge_gateway_counters_errors_total")).toHaveLength(4);
    expect(countOf(await statuses(made.port, 40), 200)).toBe(30);
  });

  it("that is refused opens nothing", async () => {
    const [first, second] = [await redis(), await redis()];
    const port = await backend();
    const made = await started(configOf(port, { url: urlOf(first) }));
    await shares(made.gateway);
    const folder = join(emptyFolder(), "logs");
    mkdirSync(folder);
    const config = configOf(port, { url: urlOf(second) });
    await expect(
      (async () => made.gateway.reload({ ...config, global: { ...config.global, access_log: { file: folder } } }))(),
    ).rejects.toThrow();
    expect(await statuses(made.port, 1)).toEqual([200]);
    expect(await clientsOf(second)).toEqual([]);
    expect(await clientsOf(first)).toHaveLength(1);
  });

  it("opens another connection when the content of the CA file has changed, and none when it is the same", async () => {
    const server = await redis([], true);
    const port = await backend();
    const file = (name: string) => join(server.folder, name);
    const config = configOf(port, {
      url: `rediss://localhost:${server.port}`,
      tls: { ca: file("ca.pem"), cert: file("client.pem"), key: file("client.key") },
    });
    const made = await started(config);
    await shares(made.gateway);
    const before = await clientsOf(server);
    await made.gateway.reload(config);
    expect(await clientsOf(server)).toEqual(before);
    const { CA } = await import("../support/certs.ts");
    writeFileSync(file("ca.pem"), `${CA.cert}\n${CA.cert}`);
    await made.gateway.reload(config);
    await shares(made.gateway);
    await until(async () => (await clientsOf(server)).length === 1);
    expect(await clientsOf(server)).not.toEqual(before);
  });
});

describe("a gateway that is closed", () => {
  it("has closed its connection to the server of its counters", async () => {
    const server = await redis();
    const made = await started(configOf(await backend(), { url: urlOf(server) }));
    expect(await statuses(made.port, 1)).toEqual([200]);
    expect(await clientsOf(server)).toHaveLength(1);
    await made.gateway.close();
    await until(async () => (await clientsOf(server)).length === 0);
  });

  it("leaves nothing while the server hangs, nor while it is not there", async () => {
    const server = await redis();
    const made = await started(configOf(await backend(), { url: urlOf(server), timeout_ms: 50 }));
    await shares(made.gateway);
    server.process.kill("SIGSTOP");
    expect(await statuses(made.port, 1)).toEqual([200]);
    expect(await made.gateway.close()).toBe("drained");
    expect(made.gateway.status.counters!.servers.map(({ state }) => state)).toEqual(["closed"]);
  });

  it("that was only made, or validated, has connected to nothing", async () => {
    const server = await redis();
    const { createGateway } = await import("../../lib/index.ts");
    const gateway = createGateway({ config: configOf(9, { url: urlOf(server) }) });
    expect(gateway.status.counters).toMatchObject({ state: "connecting" });
    expect(await clientsOf(server)).toEqual([]);
    await gateway.close(0);
  });
});

import { createHash } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { keptClient } from "../support/kept_client.ts";
import { RENEWED, SHOP } from "../support/more_certs.ts";
import { freePort } from "../support/origin.ts";
import { emptyFolder, fileWith, logLines, program, textOf } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { recorder } from "../support/recorder.ts";
import { nodeOf, RELEASES } from "./nodes.ts";
import { until } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workersOn, type Workers } from "./workers.ts";

const PROBE = { plugins: [{ name: "probe" }] };
const deaths = (running: Workers) =>
  logLines(running.stderr()).filter(({ message }) => message === "a worker has ended and is replaced");
const replaced = (path: string, content: string) => {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
};

/** A plugin kind whose creation ends the threads of a list. */
const EXITING = `import { threadId } from "node:worker_threads";
export default ({ definePlugin, schema, withHeader }) => definePlugin({
  name: "exiting",
  schema: schema.object({ set: schema.integer({ describe: "A number." }), threads: schema.array(schema.integer({ \
describe: "A thread." }), { describe: "Threads." }) }),
  create({ set, threads }) {
    if (threads.includes(threadId)) process.exit(5);
    return (next) => async (exchange) => {
      const reply = await next(exchange);
      return { ...reply, headers: withHeader(reply.headers, "X-Set", String(set)) };
    };
  },
});
`;

function exitingModule() {
  return { path: fileWith(EXITING, "exiting.mjs"), sha256: createHash("sha256").update(EXITING).digest("hex") };
}

/** A plugin kind whose creation in a worker writes the file "waits" and goes on when there is the file "goes on". */
const waitingIn = (folder: string) => `import { existsSync, writeFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
export default ({ definePlugin, schema }) => definePlugin({
  name: "waiting",
  schema: schema.object({}),
  create() {
    if (!isMainThread) writeFileSync(${JSON.stringify(join(folder, "waits"))}, "");
    while (!isMainThread && !existsSync(${JSON.stringify(join(folder, "goes on"))}));
    return (next) => next;
  },
});
`;

describe("a program with workers starts", () => {
  it("and announces how many there are, in JSON and as text", async () => {
    const { port } = await backend();
    expect((await withWorkers(oneService(port), { workers: 3 })).started.workers).toBe(3);
    expect((await withWorkers(oneService(port), { workers: 1 })).started).not.toHaveProperty("workers");
    const words = [
      "--config",
      fileWith(oneService(port)),
      "--http-port",
      "0",
      "--listen-host",
      "127.0.0.1",
      "--log-format",
      "text",
      "--workers",
      "2",
    ];
    expect(await program(words, { node: nodeOf(24) }).says(/reload .*\n/)).toMatch(/^ {2}workers {2}2, which share/m);
  });

  it("on all of its addresses, on one free port, and each worker answers on each of them", async () => {
    const { port } = await backend();
    const words = ["--listen-host", "127.0.0.1,127.0.0.2"];
    const file = fileWith(oneService(port, PROBE, { plugin_modules: [probeModule()] }));
    const running = program(["--config", file, "--http-port", "0", "--workers", "2", ...words], { node: nodeOf(24) });
    await running.says(/started".*\n/);
    const { http } = logLines(running.stderr())[0] as { http: string[] };
    expect(new Set(http.map((url) => new URL(url).port)).size).toBe(1);
    for (const url of http) {
      const seen = new Set<string>();
      await until(
        async () =>
          seen.add((await fetch(`${url}/a/x`, { headers: { connection: "close" } })).headers.get("x-worker")!).size ===
          2,
      );
    }
  });

  it("not where the port is taken: the same message and exit status as without workers", async () => {
    const other = net.createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    onTestFinished(() => void other.close());
    const { port } = other.address() as AddressInfo;
    const words = ["--config", fileWith(oneService(9)), "--http-port", String(port), "--listen-host", "127.0.0.1"];
    const [one, two] = await Promise.all(
      ["1", "2"].map((workers) => program([...words, "--workers", workers], { node: nodeOf(24) }).ended),
    );
    expect(two).toEqual(one);
    expect(one).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`cannot listen on 127.0.0.1:${port}: the port is already in use`),
    });
  });

  it("not where another program with workers has taken the port while its own workers compiled", async () => {
    const folder = emptyFolder();
    const waiting = waitingIn(folder);
    const module = {
      path: fileWith(waiting, "waiting.mjs"),
      sha256: createHash("sha256").update(waiting).digest("hex"),
    };
    const port = await freePort();
    const start = (config: unknown) =>
      program(
        ["--config", fileWith(config), "--http-port", String(port), "--listen-host", "127.0.0.1", "--workers", "2"],
        { node: nodeOf(24) },
      );
    const first = start(oneService(9, { plugins: [{ name: "waiting" }] }, { plugin_modules: [module] }));
    await until(() => existsSync(join(folder, "waits")), first.stderr);
    const second = start(oneService(9));
    await second.says(/started".*\n/);
    writeFileSync(join(folder, "goes on"), "");
    expect(await first.ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`cannot listen on 127.0.0.1:${port}: the port is already in use`),
    });
    expect((await (await keptClient(port)).ask("/nothing")).status).toBe(404);
  });

  it("not where a worker cannot: exit status 1, with the worker's reason", async () => {
    const probe = (refused_in: number) =>
      oneService(9, { plugins: [{ name: "probe", config: { refused_in } }] }, { plugin_modules: [probeModule()] });
    const exits = oneService(
      9,
      { plugins: [{ name: "exiting", config: { set: 1, threads: [2] } }] },
      { plugin_modules: [exitingModule()] },
    );
    const start = (config: unknown) =>
      program(["--config", fileWith(config), "--http-port", "0", "--listen-host", "127.0.0.1", "--workers", "2"], {
        node: nodeOf(24),
      }).ended;
    const [refused, exited] = await Promise.all([start(probe(2)), start(exits)]);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        new RegExp(
          String.raw`^edge-gateway: a worker cannot start: \S+gw\.json:\d+:\d+  ` +
            String.raw`services\[0\]\.plugins\[0\]  plugin probe of service "s" cannot be created: ` +
            String.raw`thread 2 refuses 0\n$`,
        ),
      ),
    });
    expect(exited).toMatchObject({ code: 1, stderr: "edge-gateway: a worker cannot start: it exited with code 5\n" });
  });
});

describe("a reload", () => {
  it(
    "is taken though a worker ends while it prepares: its successor has the new configuration; " +
      "it is refused where all end",
    async () => {
      const { port } = await backend();
      const global = { plugin_modules: [exitingModule(), probeModule()] };
      const config = (set: number, threads: number[]) =>
        oneService(port, { plugins: [{ name: "exiting", config: { set, threads } }, { name: "probe" }] }, global);
      const running = await withWorkers(config(1, []));
      const [first, second] = (await workersOn(running.port, 2)) as [number, number];
      const reload = async (set: number, threads: number[]) => {
        replaced(running.file, JSON.stringify(config(set, threads)));
        return running.admin("/gateway/reload", "POST");
      };
      expect(JSON.parse(await reload(2, [first]))).not.toHaveProperty("issues");
      expect((await (await clientOn(running.port, (worker) => worker === second)).ask("/a/x")).headers["x-set"]).toBe(
        "2",
      );
      const third = await clientOn(running.port, (worker) => worker > 0 && worker !== second && worker !== first);
      expect((await third.ask("/a/x")).headers["x-set"]).toBe("2");
      // also those that start later: the watched file is read again
      const all = Array.from({ length: 30 }, (_, thread) => thread + 1);
      expect(await reload(3, all)).toContain("every worker ended while it prepared this configuration");
      await until(
        async () =>
          (JSON.parse(await running.admin("/gateway/status")) as { workers: { serving: number } }).workers.serving ===
          2,
        () => running.stderr(),
      );
      const { headers } = await (await keptClient(running.port)).ask("/a/x");
      expect(headers["x-set"]).toBe("2");
    },
  );

  it("waits for a worker that hangs until it is ended after ten seconds, and is taken by all others", async () => {
    const { port } = await backend();
    const plugin_modules = [probeModule()];
    const config = (set: number) =>
      oneService(port, { plugins: [{ name: "probe", config: { set } }] }, { plugin_modules });
    const running = await withWorkers(config(1));
    const [victim, other] = (await workersOn(running.port, 2)) as [number, number];
    const [hanging, healthy] = await Promise.all(
      [victim, other].map((thread) => clientOn(running.port, (worker) => worker === thread)),
    );
    const lost = expect(hanging!.ask("/a/x?hang")).rejects.toThrow();
    replaced(running.file, JSON.stringify(config(2)));
    const taken = running.says('"message":"configuration reloaded"');
    expect((await healthy!.ask("/a/x")).headers["x-set"]).toBe("1");
    await Promise.all([lost, taken]);
    expect((await healthy!.ask("/a/x")).headers["x-set"]).toBe("2");
    const successor = await clientOn(running.port, (worker) => worker > 0 && worker !== victim && worker !== other);
    expect((await successor.ask("/a/x")).headers["x-set"]).toBe("2");
  });

  it(
    "that was refused leaves a worker that starts later with the configuration in force, " +
      "whatever the file has by then",
    async () => {
      const { port } = await backend();
      const plugin_modules = [probeModule()];
      const config = (set: number) =>
        JSON.stringify(oneService(port, { plugins: [{ name: "probe", config: { set } }] }, { plugin_modules }));
      const running = await withWorkers(JSON.parse(config(1)));
      const [victim, other] = (await workersOn(running.port, 2)) as [number, number];
      replaced(running.file, "{");
      await running.says("reload refused");
      const client = await clientOn(running.port, (worker) => worker === victim);
      await expect(client.ask("/a/x?exit")).rejects.toThrow();
      const successor = await clientOn(running.port, (worker) => worker > 0 && worker !== victim && worker !== other);
      expect((await successor.ask("/a/x")).headers["x-set"]).toBe("1");
      replaced(running.file, config(2));
      await running.says('"message":"configuration reloaded"');
      expect((await successor.ask("/a/x")).headers["x-set"]).toBe("2");
    },
  );

  it(
    "adds a host to global.certificates in all workers, " +
      "and is refused where it would open or close the HTTPS port",
    async () => {
      const folder = emptyFolder();
      const entry = (host: string, { cert, key }: { cert: string; key: string }) => {
        writeFileSync(join(folder, `${host}.pem`), cert);
        writeFileSync(join(folder, `${host}.key`), key);
        return { hosts: [host], cert: join(folder, `${host}.pem`), key: join(folder, `${host}.key`) };
      };
      const certificates = [entry("localhost", SERVER)];
      const running = await withWorkers(oneService(9, {}, { certificates }));
      const { port } = new URL((running.started.https as string[])[0]!);
      /** What several new connections get, which reach both workers but for one in a million runs. */
      const met = async (servername: string) => {
        const one = () =>
          new Promise<string>((resolve) => {
            const socket = tls.connect({
              port: Number(port),
              host: "127.0.0.1",
              servername,
              rejectUnauthorized: false,
            });
            socket.once("secureConnect", () => resolve(socket.getPeerX509Certificate()!.subject));
            socket.once("secureConnect", () => socket.destroy());
            socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code!));
          });
        return [...new Set(await Promise.all(Array.from({ length: 20 }, one)))];
      };
      expect(await met("localhost")).toEqual(["CN=localhost"]);
      expect(await met("shop.example.com")).toEqual(["ERR_SSL_TLSV1_UNRECOGNIZED_NAME"]);
      replaced(
        running.file,
        textOf(oneService(9, {}, { certificates: [...certificates, entry("shop.example.com", SHOP)] })),
      );
      await running.says('"message":"configuration reloaded"');
      expect(await met("shop.example.com")).toEqual(["CN=shop.example.com"]);
      replaced(running.file, textOf(oneService(9)));
      await running.says("reload refused");
      expect(running.stderr()).toContain("open and close the HTTPS port, and that takes a restart");
      expect(await met("localhost")).toEqual(["CN=localhost"]);
    },
  );

  it("comes with SIGHUP, and new certificates of the settings and of the configuration reach all workers", async () => {
    const { port } = await backend();
    const folder = emptyFolder();
    const write = (name: string, content: string) => {
      replaced(join(folder, name), content);
      return join(folder, name);
    };
    const [cert, key] = [write("server.pem", SERVER.cert), write("server.key", SERVER.key)];
    const own = { hosts: ["shop.example"], cert: write("shop.pem", SHOP.cert), key: write("shop.key", SHOP.key) };
    const config = oneService(port, PROBE, { plugin_modules: [probeModule()], certificates: [own] });
    const running = await withWorkers(config, { environment: { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key } });
    const https = Number(new URL((running.started.https as string[])[0]!).port);
    /** What several new connections are shown, which reach both workers but for one in a million runs. */
    const shown = async (servername: string) => {
      const all = Array.from({ length: 20 }, async () => {
        const socket = tls.connect({
          port: https,
          host: "127.0.0.1",
          servername,
          ca: CA.cert,
          rejectUnauthorized: false,
        });
        await new Promise((resolve, reject) => socket.once("secureConnect", resolve).once("error", reject));
        const { fingerprint256 } = socket.getPeerCertificate();
        socket.destroy();
        return fingerprint256;
      });
      return [...new Set(await Promise.all(all))];
    };
    const before = [await shown("localhost"), await shown("shop.example")];
    expect(before.map(({ length }) => length)).toEqual([1, 1]);
    [write("server.pem", RENEWED.cert), write("server.key", RENEWED.key)];
    await running.says("server certificate, key and CA reloaded");
    await until(
      async () => (await shown("localhost")).join() !== before[0]!.join() && (await shown("localhost")).length === 1,
    );
    [write("shop.pem", SERVER.cert), write("shop.key", SERVER.key)];
    await running.says("files that the configuration names reloaded");
    await until(
      async () =>
        (await shown("shop.example")).join() !== before[1]!.join() && (await shown("shop.example")).length === 1,
    );
    running.child.kill("SIGHUP");
    await running.says('"by":"signal"');
  });
});

describe("a worker that ends", () => {
  it(
    "again and again is replaced after 0, 1, 2, 4 and 8 seconds while another serves, " +
      "and at once when none does: then /readyz is 503",
    async () => {
      const { port } = await backend();
      const running = await withWorkers(oneService(port, PROBE, { plugin_modules: [probeModule()] }));
      const ready = async () => (await fetch(`${running.adminUrl}/readyz`)).status;
      const serving = async () =>
        (JSON.parse(await running.admin("/gateway/status")) as { workers: { serving: number } }).workers.serving;
      const end = async (round: number) => {
        await until(async () => (await serving()) === 2);
        const threads = await workersOn(running.port, 2);
        const clients = await Promise.all(
          threads.map((thread) => clientOn(running.port, (worker) => worker === thread)),
        );
        for (const client of clients) await expect(client.ask("/a/x?exit")).rejects.toThrow();
        await until(() => deaths(running).length === 2 * round);
      };
      const seen = new Set<number>();
      const looking = (async () => {
        while (!seen.has(503)) seen.add(await ready());
      })();
      for (const round of [1, 2, 3, 4, 5]) await end(round);
      await looking;
      await until(async () => (await ready()) === 200);
      expect(deaths(running).map(({ pause_s }) => pause_s)).toEqual([0, 0, 1, 0, 2, 0, 4, 0, 8, 0]);
      expect(running.stderr()).toContain("a worker is started before its time, since no other serves");
    },
  );
});

describe("logs of workers", () => {
  it(
    "go to the file of the access log, which SIGUSR1 opens again: " + "every line is whole, in one of the two files",
    async () => {
      const { port } = await backend();
      const file = join(emptyFolder(), "access.log");
      const running = await withWorkers(
        oneService(port, PROBE, { plugin_modules: [probeModule()], access_log: { enabled: true, file } }),
      );
      const clients = await Promise.all(
        (await workersOn(running.port, 2)).map((thread) => clientOn(running.port, (worker) => worker === thread)),
      );
      for (let i = 0; i < 50; i++) await Promise.all(clients.map((client, nth) => client.ask(`/a/first/${nth}/${i}`)));
      await until(() => readFileSync(file, "utf8").split("/a/first/").length === 101);
      renameSync(file, `${file}.1`);
      running.child.kill("SIGUSR1");
      await running.says("the access log has been reopened");
      for (let i = 0; i < 50; i++) await Promise.all(clients.map((client, nth) => client.ask(`/a/second/${nth}/${i}`)));
      running.child.kill("SIGTERM");
      expect((await running.ended).code).toBe(0);
      const paths = [`${file}.1`, file].map((each) =>
        logLines(readFileSync(each, "utf8"))
          .map(({ path }) => String(path))
          .filter((path) => path !== "/a/which"),
      );
      for (const [nth, name] of ["first", "second"].entries()) {
        expect(paths[nth]!.sort()).toEqual(
          [0, 1].flatMap((client) => Array.from({ length: 50 }, (_, i) => `/a/${name}/${client}/${i}`)).sort(),
        );
      }
    },
  );

  it.each(RELEASES)(
    "of the audit are one whole chain with a line for each refusal, which has waited for it (Node %i)",
    async (release) => {
      const path = join(emptyFolder(), "audit.log");
      const environment = { AUDIT_LOG: path, AUDIT_REFUSALS: "true", AUDIT_FAIL: "closed" };
      const config = oneService(9, { plugins: [{ name: "key_auth", config: { key: "the-key" } }] });
      const { port, child, ended } = await withWorkers(config, { release, workers: 3, environment });
      const answers = await Promise.all(Array.from({ length: 60 }, () => ask(port, { path: "/a/x" })));
      expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 60 }, () => 401));
      const refused = () =>
        readFileSync(path, "utf8")
          .split("\n")
          .filter((line) => line.includes('"event":"request_refused"'))
          .map((line) => (JSON.parse(line) as { id: string }).id);
      expect(new Set(refused()).size).toBe(60);
      child.kill("SIGTERM");
      await ended;
      expect(await program(["verify-log", path]).ended).toMatchObject({
        code: 0,
        stdout: expect.stringMatching(/first seq 1, last seq 63, .*\n63 lines in 1 file: whole\n$/) as string,
      });
    },
  );

  it("have what a worker wrote before it died, and warnings about a configuration once", async () => {
    const { port } = await backend();
    const parts = { protocol: "https", tls: { verify: false }, ...PROBE } as never;
    const running = await withWorkers({
      ...oneService(port, PROBE, { plugin_modules: [probeModule()] }),
      services: [
        oneService(port, PROBE).services[0],
        { ...oneService(port, parts).services[0], name: "t", base_path: "/t" },
      ],
    });
    const [victim] = (await workersOn(running.port, 2)) as [number];
    const client = await clientOn(running.port, (worker) => worker === victim);
    await client.ask("/a/last");
    await expect(client.ask("/a/x?exit")).rejects.toThrow();
    await running.says("a worker serves again");
    expect(
      logLines(running.stderr()).filter(({ message }) =>
        String(message).startsWith("upstream certificates are not verified"),
      ),
    ).toHaveLength(1);
    running.child.kill("SIGTERM");
    const { stdout } = await running.ended;
    expect(logLines(stdout).map(({ path }) => path)).toContain("/a/last");
  });
});

describe("the end of a program with workers", () => {
  it("cuts off what is in flight after the grace, and says so", async () => {
    const { port } = await backend(() => {});
    const recording = recorder();
    const running = await withWorkers(oneService(port), {
      environment: { SHUTDOWN_GRACE_S: "1", ...recording.environment },
    });
    expect(recording.modules().filter((module) => module.includes("audit"))).toEqual([]);
    const client = await keptClient(running.port);
    const cut = expect(client.ask("/a/x")).rejects.toThrow();
    await until(
      async () => (JSON.parse(await running.admin("/gateway/status")) as { in_flight: number }).in_flight === 1,
    );
    running.child.kill("SIGTERM");
    await cut;
    expect(await running.ended).toMatchObject({
      code: 0,
      stderr: expect.stringContaining("requests still in flight were cut off"),
    });
  });

  it("is at once, with status 1, at a second signal", async () => {
    const { port } = await backend(() => {});
    const running = await withWorkers(oneService(port));
    const client = await keptClient(running.port);
    const cut = expect(client.ask("/a/x")).rejects.toThrow();
    await until(
      async () => (JSON.parse(await running.admin("/gateway/status")) as { in_flight: number }).in_flight === 1,
    );
    running.child.kill("SIGTERM");
    await running.says("draining");
    running.child.kill("SIGTERM");
    await cut;
    expect((await running.ended).code).toBe(1);
  });
});

/** A plugin kind whose module has the system refuse the third thread that the program starts. */
const THIRD_REFUSED = `import { syncBuiltinESMExports } from "node:module";
import threads, { isMainThread } from "node:worker_threads";
let started = 0;
const { Worker } = threads;
if (isMainThread) {
  threads.Worker = class extends Worker {
    constructor(...given) {
      if (++started === 3) throw new Error("no further thread");
      super(...given);
    }
  };
  syncBuiltinESMExports();
}
export default ({ definePlugin, schema }) => definePlugin({ name: "refusing", schema: schema.object({}), create: () => \
(next) => next });
`;

describe("a worker for which the system has no thread", () => {
  it("is tried again after a pause, and the others serve on", async () => {
    const { port } = await backend();
    const refusing = {
      path: fileWith(THIRD_REFUSED, "refusing.mjs"),
      sha256: createHash("sha256").update(THIRD_REFUSED).digest("hex"),
    };
    const running = await withWorkers(oneService(port, PROBE, { plugin_modules: [refusing, probeModule()] }));
    const [victim, other] = (await workersOn(running.port, 2)) as [number, number];
    const kept = await clientOn(running.port, (worker) => worker === other);
    await expect((await clientOn(running.port, (worker) => worker === victim)).ask("/a/x?exit")).rejects.toThrow();
    await running.says("a worker serves again");
    expect(deaths(running).map(({ error, pause_s }) => [error, pause_s])).toEqual([
      ["it exited with code 3", 0],
      ["no further thread", 1],
    ]);
    expect((await kept.ask("/a/x")).headers["x-worker"]).toBe(String(other));
  });
});

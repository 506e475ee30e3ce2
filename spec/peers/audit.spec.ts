/**
 * What `edge-gateway audit` says against what happens: system calls of a run (strace), Node's permission model, and the
 * examples for systemd and Kubernetes.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readFileSync, realpathSync, renameSync, writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Audit } from "../../lib/cli/audit_sources.ts";
import { SERVER } from "../support/certs.ts";
import { read, root } from "../support/documents.ts";
import { freePort } from "../support/origin.ts";
import { emptyFolder, PROGRAM } from "./built.ts";
import { readYaml } from "./yaml.ts";

const NODES = {
  "20": process.execPath,
  "22": `${root}/spec/peers/node_modules/node22/bin/node`,
  "24": `${root}/spec/peers/node_modules/node24/bin/node`,
};

const MODULE = `import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
const acts = {
  "run:": () => String(spawnSync("/bin/true").status),
  "thread:": () => String(new Worker("", { eval: true }).threadId),
};
const read = (file) => ({ status: 200, headers: [], body: Buffer.from(acts[file]?.() ?? readFileSync(file)) });
export default (kit) => kit.definePlugin({ name: "peek", schema: kit.schema.object({ file: kit.schema.string() }), \
create: ({ file }) => () => () => read(file) });
`;

/** An upstream that also answers as a receiver of logs. */
async function upstream(): Promise<number> {
  const server = http.createServer((_request, response) => void response.end("ok"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

interface Scene {
  readonly file: string;
  readonly log: string;
  readonly token: string;
  readonly port: number;
  readonly environment: Record<string, string>;
  readonly config: Record<string, unknown>;
}

async function scene(): Promise<Scene> {
  const folder = realpathSync(emptyFolder());
  const [to, port, probes] = [await upstream(), await freePort(), await freePort()];
  mkdirSync(join(folder, "log"));
  writeFileSync(join(folder, "peek.mjs"), MODULE);
  const [log, old, token] = [join(folder, "log", "access.log"), join(folder, "log", "old.log"), join(folder, "token")];
  writeFileSync(token, "a-token-for-the-metrics");
  writeFileSync(old, "a line");
  const config = {
    global: {
      access_log: { file: log },
      plugin_modules: [{ path: "peek.mjs", sha256: createHash("sha256").update(MODULE).digest("hex") }],
      plugins: [{ name: "http_log", config: { http_endpoint: `http://localhost:${to}/log`, batch_size: 1 } }],
    },
    services: [
      {
        name: "s",
        base_path: "/",
        protocol: "http",
        health: { enabled: true },
        upstreams: [{ host: "127.0.0.1", port: to }],
        routes: [
          { path: "/a" },
          ...["/etc/passwd", old, "run:", "thread:", token].map((name, i) => ({
            path: `/peek/${i}`,
            plugins: [{ name: "peek", config: { file: name } }],
          })),
        ],
      },
    ],
  };
  const file = join(folder, "gw.json");
  writeFileSync(file, JSON.stringify(config));
  return {
    file,
    log,
    token,
    port,
    config,
    environment: {
      PATH: process.env.PATH!,
      CONFIG_FILE_PATH: file,
      HTTP_PORT: String(port),
      LISTEN_HOST: "127.0.0.1",
      PROBE_PORT: String(probes),
    },
  };
}

function audited(node: string, form: string, environment: Record<string, string>, cwd?: string): string {
  const { status, stdout, stderr } = spawnSync(node, [PROGRAM, "audit", form], {
    env: environment,
    encoding: "utf8",
    cwd,
  });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

/** Starts a command line with the program in it; `says` resolves when its log has a text. */
function started(words: readonly string[], environment: Record<string, string>, cwd?: string) {
  const child = spawn(words[0]!, words.slice(1), { env: environment, stdio: ["ignore", "ignore", "pipe"], cwd });
  let text = "";
  const ended = once(child, "exit").then(([code]) => code as number | null);
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const says = (part: string) =>
    new Promise<string>((resolve, reject) => {
      const look = () => text.includes(part) && resolve(text);
      child.stderr.on("data", look);
      void ended.then(() => reject(new Error(`it ended without saying ${part}: ${text}`)));
      look();
    });
  child.stderr.on("data", (chunk: Buffer) => void (text += String(chunk)));
  return { child, says, ended, log: () => text };
}

const ask = (url: string) => fetch(url).then(async (response) => [response.status, await response.text()] as const);

/** Serves, logs, reloads by file and by signal, opens the log again. `pid`: of the program. */
async function lives(
  { file, log, port, config, environment }: Scene,
  { child, says }: ReturnType<typeof started>,
  pid = child.pid!,
): Promise<void> {
  await says(" started");
  expect(await ask(`http://127.0.0.1:${port}/a`)).toEqual([200, "ok"]);
  expect((await ask(`http://127.0.0.1:${environment.PROBE_PORT}/metrics`))[1]).toMatch(/^process_open_fds \d+$/m);
  writeFileSync(
    `${file}.new`,
    JSON.stringify({
      ...config,
      services: (config.services as { routes: object[] }[]).map((each) => ({
        ...each,
        routes: [...each.routes, { path: "/b" }],
      })),
    }),
  );
  renameSync(`${file}.new`, file);
  await says('"by":"file"');
  expect(await ask(`http://127.0.0.1:${port}/b`)).toEqual([200, "ok"]);
  renameSync(log, `${log}.1`);
  process.kill(pid, "SIGHUP");
  await says('"by":"signal"');
  await says("the access log has been reopened");
  expect(await ask(`http://127.0.0.1:${port}/a?again`)).toEqual([200, "ok"]);
}

async function drains(
  { log }: Scene,
  { child, says, ended }: ReturnType<typeof started>,
  pid = child.pid!,
): Promise<void> {
  process.kill(pid, "SIGTERM");
  await says("stopped");
  expect(await ended).toBe(0);
  expect(
    readFileSync(`${log}.1`, "utf8")
      .split("\n")
      .filter((line) => line.includes('"path":"/a"')),
  ).toHaveLength(1);
  expect(readFileSync(log, "utf8")).toContain('"path":"/a"');
}

describe.each(Object.entries(NODES))("under the flags of audit --permission, on Node %s", (_release, node) => {
  it(
    "the gateway serves, logs, reloads, reopens its log and drains, and a plugin module cannot read another file, " +
      "not even one beside the access log",
    async () => {
      const set = await scene();
      const environment = auditing(set);
      const flags = audited(node, "--permission", environment).trimEnd().split("\n");
      const running = started([node, ...flags, PROGRAM], environment);
      await lives(set, running);
      for (const each of ["/peek/0", "/peek/1"])
        expect((await ask(`http://127.0.0.1:${set.port}${each}`))[0]).toBe(500);
      expect(await running.says("Access to this API has been restricted")).toMatch(
        /"plugin":"peek".*Access to this API has been restricted/,
      );
      await drains(set, running);
      expect(running.log()).not.toContain("audit log cannot");
      expect(running.log()).not.toContain("it cannot be seen");
    },
  );

  it.each([
    ["a file to read", /--allow-fs-read=.*gw\.json$/, "start node with --allow-fs-read="],
    ["the log to write", /--allow-fs-write=/, "start node with --allow-fs-write="],
  ])("a start without the permission for %s names the flag", async (_what, dropped, message) => {
    const set = await scene();
    const flags = audited(node, "--permission", set.environment).trimEnd().split("\n");
    const { ended, log } = started([node, ...flags.filter((flag) => !dropped.test(flag)), PROGRAM], set.environment);
    expect(await ended).toBe(2);
    expect(log()).toContain(message);
  });
});

it.each([
  ["22", NODES["22"]],
  ["24", NODES["24"]],
])(
  "under the flags of audit --permission workers cannot read the working directory, " +
    "whose relative paths are followed, on Node %s",
  async (_release, node) => {
    const set = await scene();
    const folder = dirname(set.file);
    for (const [name, content] of Object.entries({ "s.crt": SERVER.cert, "s.key": SERVER.key }))
      writeFileSync(join(folder, name), content);
    const paths = { CONFIG_FILE_PATH: "gw.json", SERVER_CERT_PATH: "s.crt", SERVER_KEY_PATH: "s.key" };
    const environment = { ...set.environment, ...paths, HTTPS_PORT: String(await freePort()), WORKERS: "2" };
    const flags = audited(node, "--permission", environment, folder).trimEnd().split("\n");
    const running = started([node, ...flags, PROGRAM], environment, folder);
    await lives(set, running);
    writeFileSync(join(folder, "s.crt"), `${SERVER.cert}\n`);
    await running.says("server certificate, key and CA reloaded");
    for (const each of ["/peek/0", "/peek/1"]) expect((await ask(`http://127.0.0.1:${set.port}${each}`))[0]).toBe(500);
    await drains(set, running);
  },
);

/** The program that strace has started. */
function childOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ")[0]);
}

describe("with SEAL", () => {
  const NODE = NODES["24"];
  /**
   * What a plugin module may do: another file, one beside the log, a program, a thread, the file of a secret of the
   * start.
   */
  const may = async ({ port }: Scene) =>
    Promise.all([0, 1, 2, 3, 4].map(async (each) => (await ask(`http://127.0.0.1:${port}/peek/${each}`))[0] === 200));

  it.each([
    [
      "one thread",
      {},
      ["--allow-child-process", "--allow-worker", "--allow-addons"],
      [false, false, false, false, false],
    ],
    ["workers", { WORKERS: "2" }, [], [false, false, false, false, false]],
  ])(
    "and %s a plugin module loses what wider flags grant, and the gateway serves, reloads and drains",
    async (_what, more, wider, left) => {
      const set = await scene();
      const environment = { ...auditing(set), ...more };
      const flags = [
        ...audited(NODE, "--permission", environment).trimEnd().split("\n"),
        "--allow-fs-read=/etc/passwd",
        `--allow-fs-read=${set.token}`,
        ...wider,
      ];
      /** Starts it under strace, which ends with it. */
      const traced = async (more: Record<string, string>) => {
        const trace = join(emptyFolder(), "trace.txt");
        const running = started(
          [
            "strace",
            "--seccomp-bpf",
            "-f",
            "-qq",
            "-e",
            "trace=open,openat,execve",
            "-o",
            trace,
            NODE,
            ...flags,
            PROGRAM,
          ],
          { ...environment, ...more },
        );
        await running.says(" started");
        return {
          running,
          pid: childOf(running.child.pid!),
          calls: () =>
            ["/etc/passwd", "/bin/true", set.file].map((path) => readFileSync(trace, "utf8").includes(`"${path}"`)),
        };
      };
      const open = await traced({});
      expect(await may(set)).toEqual([true, false, wider.length > 0, true, true]);
      process.kill(open.pid, "SIGKILL");
      await open.running.ended;
      expect(open.calls()).toEqual([true, wider.length > 0, true]);
      const sealed = await traced({ SEAL: "true" });
      expect(await may(set)).toEqual(left);
      await lives(set, sealed.running, sealed.pid);
      expect(await may(set)).toEqual(left);
      await drains(set, sealed.running, sealed.pid);
      // Node refuses before it asks the system.
      expect(sealed.calls()).toEqual([false, false, true]);
    },
  );

  it("a reload whose configuration names a file that was given up is refused, and the old one stays", async () => {
    const set = await scene();
    const flags = [
      ...audited(NODE, "--permission", set.environment).trimEnd().split("\n"),
      `--allow-fs-read=${set.token}`,
    ];
    const running = started([NODE, ...flags, PROGRAM], { ...set.environment, SEAL: "true" });
    await running.says(" started");
    writeFileSync(`${set.file}.new`, JSON.stringify({ ...set.config, test_files: [set.token] }));
    renameSync(`${set.file}.new`, set.file);
    const why = await running.says("reload refused");
    expect(why).toContain(`Node's permission model forbids it: start node with --allow-fs-read=${set.token}`);
    expect(why).toContain(
      "SEAL has given up what the configuration of the start did not need: restart with the new one",
    );
    expect(await ask(`http://127.0.0.1:${set.port}/a`)).toEqual([200, "ok"]);
  });

  it.each([
    [
      "a wider flag",
      "24",
      ["--allow-fs-read=/etc", "--allow-fs-read=/"],
      "cannot give up a part of --allow-fs-read=/: write --allow-fs-read=",
    ],
    ["an older Node", "22", [], "needs a Node that can give up rights, 24.21 or newer, and this is Node 22."],
  ] as const)("the start is refused for %s", async (_what, release, wider, message) => {
    const set = await scene();
    const flags = audited(NODES[release], "--permission", set.environment).trimEnd().split("\n");
    const { ended, log } = started([NODES[release], ...flags, ...wider, PROGRAM], { ...set.environment, SEAL: "true" });
    expect(await ended).toBe(2);
    expect(log()).toContain(`SEAL (--seal) ${message}`);
  });
});

/** With an audit log without which no request is served. */
function auditing({ log, environment }: Scene): Record<string, string> {
  return { ...environment, AUDIT_LOG: join(dirname(log), "audit.log"), AUDIT_FAIL: "closed" };
}

/** The system calls of a run that open files and use addresses. */
function callsOf(trace: string) {
  const opened = [...trace.matchAll(/\bopenat\([^,]+, "([^"]+)", ([A-Z_|]+)[^)]*\) += \d+/g)].map(
    ([, path, flags]) => ({ path: path!, writes: /O_WRONLY|O_RDWR/.test(flags!) }),
  );
  const addresses = (call: string) =>
    [
      ...trace.matchAll(
        new RegExp(
          `\\b${call}\\(\\d+, \\{sa_family=AF_INET6?, sin6?_port=htons\\((\\d+)\\)(?:, sin6_flowinfo=[^,]*)?, ` +
            `(?:sin_addr=inet_addr\\("|inet_pton\\(AF_INET6, ")([^"]+)`,
          "g",
        ),
      ),
    ].map(([, port, host]) => `${host} ${port}`);
  return { opened, bound: addresses("bind"), connected: addresses("connect"), sent: addresses("sendto") };
}

describe("a run under strace", () => {
  const OPTIONS = ["-f", "-qq", "-s", "4096", "-e", "trace=network,openat,open", "-o"];

  it(
    "opens no file, port or connection that audit does not list, " + "beside what Node opens for every program",
    async () => {
      const set = await scene();
      const {
        modules,
        on_request: later,
        reads,
        writes,
        listens,
        dials,
      } = JSON.parse(audited(process.execPath, "--json", set.environment)) as Audit;
      const [bare, own] = [join(emptyFolder(), "bare.txt"), join(emptyFolder(), "own.txt")];
      // TLS and a listener: OpenSSL's and the C library's own files.
      const empty =
        'new Date().toString(); require("tls").createSecureContext(); require("net").createServer().listen(0, ' +
        '"127.0.0.1", function () { this.close(); });';
      expect(spawnSync("strace", [...OPTIONS, bare, process.execPath, "-e", empty]).status).toBe(0);
      const running = started(["strace", ...OPTIONS, own, process.execPath, PROGRAM], set.environment);
      await running.says(" started");
      const pid = childOf(running.child.pid!);
      await lives(set, running, pid);
      await drains(set, running, pid);
      const [known, seen] = [callsOf(readFileSync(bare, "utf8")), callsOf(readFileSync(own, "utf8"))];
      // The C library reads the last one when it first gives memory back.
      const isKnown = new Set([...known.opened.map(({ path }) => path), "/proc/sys/vm/overcommit_memory"]);
      const listed = new Set([...reads, ...writes, ...[...modules, ...later].map(({ path }) => join(root, path))]);
      const isListed = (path: string) =>
        listed.has(path) ||
        listed.has(`${path}/`) ||
        [...listed].some((each) => each.endsWith("/") && path.startsWith(each));
      expect(
        seen.opened
          .filter(({ path }) => !isKnown.has(path) && !isListed(path.replace(/^\/proc\/\d+\//, "/proc/self/")))
          .map(({ path }) => path),
      ).toEqual([]);
      expect(
        seen.opened.filter(({ path, writes: isWritten }) => isWritten && !isKnown.has(path)).map(({ path }) => path),
      ).toEqual([set.log, set.log]);
      const ports = (list: Audit["listens"]) => list.map(({ host, port }) => `${host} ${port}`);
      expect([...new Set(seen.bound)].filter((each) => !/ 0$/.test(each)).sort()).toEqual(ports(listens).sort());
      const allowed = ports(
        dials.flatMap((each) =>
          each.host === "localhost"
            ? [
                { ...each, host: "127.0.0.1" },
                { ...each, host: "::1" },
              ]
            : [each],
        ),
      );
      // Port 0: the C library asks the kernel which of several addresses it would use, and sends nothing.
      expect([...new Set(seen.connected)].filter((each) => !/ 0$/.test(each) && !allowed.includes(each))).toEqual([]);
      expect(seen.sent).toEqual([]);
      // The trace has what it should: a check of an empty list proves nothing.
      expect(seen.opened.map(({ path }) => path)).toEqual(
        expect.arrayContaining([set.file, set.log, join(root, modules[0]!.path)]),
      );
      expect(seen.connected).toEqual(expect.arrayContaining(ports(dials.filter(({ why }) => why === "upstream"))));
    },
  );
});

it.each(Object.entries(NODES))("a proxy that the environment names is not used, on Node %s", async (_release, node) => {
  const set = await scene();
  const asked: string[] = [];
  const proxy = http
    .createServer((request, response) => {
      asked.push(request.url!);
      response.end();
    })
    .on("connect", (request, socket) => {
      asked.push(request.url!);
      socket.end();
    });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  onTestFinished(() => void proxy.close());
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const variables = Object.fromEntries(
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"].map((name) => [name, url]),
  );
  const running = started([node, PROGRAM], { ...set.environment, ...variables, NODE_USE_ENV_PROXY: "1" });
  await lives(set, running);
  await drains(set, running);
  expect(asked).toEqual([]);
});

describe("the examples have the rules that audit prints for their configuration", () => {
  it("systemd: every directive is in the unit", () => {
    const unit = read("examples/systemd/edge-gateway.service");
    const environment = Object.fromEntries(
      [...unit.matchAll(/^Environment=([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [
        name!,
        value!.replace("%S", "/var/lib"),
      ]),
    );
    const printed = audited(process.execPath, "--systemd", {
      PATH: process.env.PATH!,
      CONFIG_FILE_PATH: `${root}/examples/quickstart.json`,
      ...environment,
    });
    const directives = printed.split("\n").filter((line) => /^[A-Z]\w+=/.test(line));
    expect(directives).toContain("SocketBindAllow=tcp:9090");
    // Which systemd makes, and lets the service write to.
    const made = ["ReadWritePaths=/var/lib/edge-gateway", "StateDirectory=edge-gateway"] as const;
    expect(directives).toContain(made[0]);
    const lines = [...unit.split("\n"), ...(unit.includes(`\n${made[1]}\n`) ? [made[0]] : [])];
    expect(directives.filter((line) => !lines.includes(line))).toEqual([]);
  });

  it("Kubernetes: the NetworkPolicy is the one that audit prints", () => {
    interface Policy {
      readonly kind: string;
      readonly spec: {
        readonly egress: unknown;
        readonly ingress: readonly {
          readonly from?: unknown;
          readonly ports: readonly { readonly port: string | number }[];
        }[];
      };
    }
    const manifests = readYaml(read("examples/kubernetes/edge-gateway.yaml")) as (Policy & {
      readonly data: Record<string, string>;
    })[];
    const of = (kind: string) => manifests.find((each) => each.kind === kind)!;
    const [container] = (
      of("Deployment").spec as unknown as {
        template: {
          spec: {
            containers: { env: { name: string; value?: string }[]; ports: { name: string; containerPort: number }[] }[];
          };
        };
      }
    ).template.spec.containers;
    const environment = Object.fromEntries(
      container!.env.map(({ name, value }) => [name, value ?? "a-secret-of-the-cluster"]),
    );
    const file = join(emptyFolder(), "gw.json");
    writeFileSync(file, of("ConfigMap").data["gw.json"]!);
    const [printed] = readYaml(
      audited(process.execPath, "--network-policy", {
        PATH: process.env.PATH!,
        ...environment,
        CONFIG_FILE_PATH: file,
      }),
    ) as [Policy];
    const byNumber = of("NetworkPolicy").spec.ingress.map((rule) => ({
      ...rule,
      ports: rule.ports.map(({ port }) => ({
        port: container!.ports.find(({ name }) => name === port)!.containerPort,
      })),
    }));
    expect(printed.spec).toEqual({ ...of("NetworkPolicy").spec, ingress: byNumber });
  });
});

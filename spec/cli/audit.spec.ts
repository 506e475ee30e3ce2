/** `edge-gateway audit`: what it derives from a configuration and settings, and the rules that it prints. */
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import type { Audit } from "../../lib/cli/audit_sources.ts";
import { CA, SERVER } from "../support/certs.ts";
import { emptyFolder, fileWith, fileWithKind, program, runningProgram } from "../support/process.ts";
import { recorder } from "../support/recorder.ts";

const ROOT = new URL("../../", import.meta.url);
const service = (more: object = {}) => ({
  name: "s",
  base_path: "/",
  protocol: "http",
  upstreams: [{ host: "10.0.0.5", port: 8080 }],
  routes: [{ path: "/a" }],
  ...more,
});
const QUIET = { LISTEN_HOST: "127.0.0.1" };

async function audited(
  file: string,
  environment: Record<string, string> = QUIET,
  words: readonly string[] = [],
): Promise<Audit> {
  const { code, stdout, stderr } = await program(["audit", "--config", file, "--json", ...words], { environment })
    .ended;
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout) as Audit;
}

async function printed(form: string, file: string, environment: Record<string, string> = QUIET): Promise<string> {
  const { code, stdout, stderr } = await program(["audit", "--config", file, form], { environment }).ended;
  expect([code, stderr]).toEqual([0, ""]);
  return stdout;
}

describe("edge-gateway audit", () => {
  it("says of SEAL that other rights are given up", async () => {
    const { code, stdout } = await program(["audit", fileWith({ services: [service()] }), "--seal"], {
      environment: QUIET,
    }).ended;
    expect(code).toBe(0);
    expect(stdout).toContain(
      "SEAL: before the first port is open it gives up all other rights of Node's permission model",
    );
  });

  it("names SRV records, and that their targets are not known, in its lists and in its rules", async () => {
    const name = "_http._tcp.orders.internal";
    const file = fileWith({ services: [service({ upstreams: [{ srv: name }], health: { enabled: true } })] });
    const { dials } = await audited(file);
    expect(dials.slice(0, 2)).toEqual([
      { host: name, port: 0, srv: true, why: "upstream" },
      { host: name, port: 0, srv: true, why: "health" },
    ]);
    expect(dials.some(({ why }) => why === "dns")).toBe(true);
    const { stdout } = await program(["audit", file], { environment: QUIET }).ended;
    expect(stdout).toContain(`\n  the targets of ${name}  upstream\n`);
    expect(await printed("--systemd", file)).toContain(`# Connects to the targets of ${name} (upstream).`);
    const policy = await printed("--network-policy", file);
    expect(policy).toContain(`# the targets of ${name} (upstream, health).`);
    expect(policy).toContain("Its targets are not known here: this rule is for all hosts and ports.");
  });

  it("says of STATE_DIR that it is for one user and one process", async () => {
    const folder = emptyFolder();
    const { code, stdout } = await program(["audit", fileWith({ services: [service()] })], {
      environment: { ...QUIET, STATE_DIR: folder },
    }).ended;
    expect(code).toBe(0);
    expect(stdout).toContain(`\n  ${folder}/*  STATE_DIR: made for this user alone (0700), one process at a time\n`);
  });
});

describe("edge-gateway audit --json", () => {
  it.each<readonly [string, object, Record<string, string>]>([
    ["a service alone", { services: [service()] }, {}],
    [
      "plugins, HTTP/2, shared counters and traces",
      {
        global: { counters: { store: "redis", url: "redis://127.0.0.1:1" } },
        services: [
          service({
            protocol: "h2c",
            plugins: [
              { name: "cors", config: { allow_origins: ["*"] } },
              { name: "rate_limit", config: { limit_min: 9 } },
            ],
          }),
        ],
      },
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" },
    ],
    [
      "tests and probes",
      { services: [service()], tests: [{ name: "t", request: { url: "/b" }, expect: { status: 404 } }] },
      { PROBE_PORT: "0" },
    ],
    ["the admin interface", { services: [service()] }, { ADMIN_USER: "a", ADMIN_PASSWORD: "a long password" }],
    [
      "the admin interface and a folder of state",
      { services: [service()] },
      { ADMIN_USER: "a", ADMIN_PASSWORD: "a long password", STATE_DIR: "a folder" },
    ],
  ])("lists the very modules that a start loads: %s", async (_title, config, { STATE_DIR, ...rest }) => {
    const environment = { ...rest, ...(STATE_DIR !== undefined && { STATE_DIR: emptyFolder() }) };
    const { environment: recording, modules } = recorder();
    const { file } = await runningProgram(config, [], { ...environment, ...recording });
    const { modules: listed, lines: all } = await audited(file, { ...QUIET, ...environment });
    expect(listed.map(({ path }) => path.replace(/^dist\/|\.js$/g, "")).sort()).toEqual([...new Set(modules())].sort());
    for (const { path, sha256, lines } of listed) {
      const [content, source] = [path, path.replace(/^dist\/(.*)\.js$/, "$1.ts")].map((each) =>
        readFileSync(new URL(each, ROOT)),
      );
      expect([path, sha256, lines]).toEqual([
        path,
        createHash("sha256").update(content!).digest("hex"),
        String(source).trimEnd().split("\n").length,
      ]);
    }
    expect(all).toBe(listed.reduce((sum, { lines }) => sum + lines, 0));
  });

  it(
    "lists the signature of a signed configuration, its files of tests and the file of keys; " +
      "an unsigned configuration is refused",
    async () => {
      const folder = emptyFolder();
      const { publicKey, privateKey } = generateKeyPairSync("ed25519");
      const [file, tests, keys] = ["gw.json", "more.json", "keys.pem"].map((name) => join(folder, name)) as [
        string,
        string,
        string,
      ];
      writeFileSync(keys, publicKey.export({ type: "spki", format: "pem" }));
      const test_files = [{ path: "more.json", sha256: createHash("sha256").update("[]").digest("hex") }];
      const text = JSON.stringify({ services: [service()], test_files });
      writeFileSync(tests, "[]");
      writeFileSync(file, text);
      writeFileSync(`${file}.sig`, `${sign(null, Buffer.from(text), privateKey).toString("base64")}\n`);
      const { reads } = await audited(file, { ...QUIET, CONFIG_PUBLIC_KEY: keys });
      expect(reads).toEqual(expect.arrayContaining([file, tests, `${file}.sig`, keys]));
      writeFileSync(`${file}.sig`, "");
      const refused = await program(["audit", "--config", file, "--json"], {
        environment: { ...QUIET, CONFIG_PUBLIC_KEY: keys },
      }).ended;
      expect(refused).toMatchObject({ code: 2, stdout: "" });
    },
  );

  it(
    "lists files, ports, servers and secrets of configuration and settings, " + "and plugin modules with their digests",
    async () => {
      const folder = emptyFolder();
      const module =
        'export default (kit) => kit.definePlugin({ name: "own", schema: kit.schema.object({}), dials: { why: ' +
        '"own store", urls: () => ["https://store.example"] }, create: () => (next) => next });\n';
      const sha256 = createHash("sha256").update(module).digest("hex");
      for (const [name, content] of Object.entries({
        "own.mjs": module,
        "s.crt": SERVER.cert,
        "s.key": SERVER.key,
        "ca.crt": CA.cert,
        "key.txt": "k3y",
        "more.json": "[]",
      }))
        writeFileSync(join(folder, name), content);
      const plugins = [
        { name: "own", config: {} },
        {
          name: "key_auth",
          config: { key: "${file:key.txt}", keys: [{ id: "digests are no secrets", key_sha256: "0".repeat(64) }] },
        },
        { name: "jwt", config: { alg: "RS256", iss: "i", jwks_uri: "http://127.0.0.1:9000/keys" } },
        { name: "forward_auth", enabled: false, config: { url: "http://127.0.0.1:9001/" } },
        { name: "introspection", config: { url: "https://10.0.0.6/introspect", client_id: "a", client_secret: "s" } },
        {
          name: "oidc",
          config: {
            issuer: "https://10.0.0.20/realm",
            origins: ["https://10.0.0.21:444"],
            client_id: "a",
            client_secret: "s",
            session: { secret: "5".repeat(32) },
          },
        },
        {
          name: "http_log",
          config: { http_endpoint: "https://[::1]/log", headers: { Authorization: "Bearer ${env:LOG_TOKEN}" } },
        },
      ];
      const config = {
        global: {
          plugin_modules: [{ path: "own.mjs", sha256 }],
          access_log: { file: "access.log" },
          counters: { store: "redis", url: ["redis://:pw@10.0.0.7:7000", "redis://:pw@10.0.0.8:7001"] },
        },
        services: [
          service({
            health: { enabled: true },
            routes: [{ path: "/a", plugins }],
            protocol: "https",
            tls: { ca: "ca.crt" },
          }),
        ],
        test_files: ["more.json"],
      };
      const file = join(folder, "gw.json");
      writeFileSync(file, JSON.stringify(config));
      const settings = {
        ...{
          LOG_TOKEN: "t",
          SERVER_CERT_PATH: join(folder, "s.crt"),
          SERVER_KEY_PATH: join(folder, "s.key"),
          ADMIN_USER: "a",
          ADMIN_PASSWORD_FILE: join(folder, "key.txt"),
          METRICS_TOKEN: "0123456789abcdef",
        },
        ...{
          PROBE_PORT: "9090",
          MANAGER: "true",
          MANAGER_BACKEND_API_URL: "http://10.0.0.9:81",
          OTEL_EXPORTER_OTLP_ENDPOINT: "http://10.0.0.10:4318",
          OTEL_LOGS_EXPORTER: "otlp",
          OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://10.0.0.11:4318/v1/logs",
          LISTEN_HOST: "0.0.0.0",
        },
      };
      const { modules, reads, writes, listens, dials, secrets } = await audited(file, settings, ["--http-port", "80"]);
      expect(modules.at(-1)).toEqual({ path: join(folder, "own.mjs"), sha256, lines: 1 });
      const own = reads.filter((path) => path.startsWith(folder)).map((path) => path.slice(folder.length + 1));
      expect(own).toEqual(["ca.crt", "gw.json", "key.txt", "more.json", "own.mjs", "s.crt", "s.key"]);
      expect(
        reads
          .filter((path) => !path.startsWith(folder) && !path.startsWith("/etc/"))
          .map((path) => path.replace(fileURLToPath(ROOT), ""))
          .sort(),
      ).toEqual([
        ...["/proc/self/fd/", "/proc/self/stat"],
        ...["dist/lib/manager/assets/", "dist/lib/modules.json", "package.json"],
      ]);
      expect(writes).toEqual([join(folder, "access.log")]);
      expect(listens.map(({ host, port, why }) => `${why} ${host} ${port}`)).toEqual([
        "http 0.0.0.0 80",
        "https 0.0.0.0 8443",
        "admin 127.0.0.1 8081",
        "probes 127.0.0.1 9090",
        "manager 127.0.0.1 5173",
      ]);
      expect(dials.filter(({ why }) => why !== "dns").map(({ host, port, why }) => `${why} ${host} ${port}`)).toEqual([
        ...[
          "upstream 10.0.0.5 8080",
          "health 10.0.0.5 8080",
          "own store store.example 443",
          "jwks 127.0.0.1 9000",
          "introspection 10.0.0.6 443",
          "oidc 10.0.0.20 443",
          "oidc 10.0.0.21 444",
          "http_log ::1 443",
        ],
        ...[
          "redis 10.0.0.7 7000",
          "redis 10.0.0.8 7001",
          "redis * 7000",
          "redis * 7001",
          "otlp 10.0.0.10 4318",
          "otlp 10.0.0.11 4318",
          "manager 10.0.0.9 81",
        ],
      ]);
      expect(secrets).toEqual([
        ...["env:METRICS_TOKEN", `file:${join(folder, "key.txt")}`, `file:${join(folder, "s.key")}`],
        ...[
          "global.counters.url[0]",
          "global.counters.url[1]",
          "services[0].routes[0].plugins[4].config.client_secret",
          "services[0].routes[0].plugins[5].config.client_secret",
          "services[0].routes[0].plugins[5].config.session.secret",
          "services[0].routes[0].plugins[6].config.http_endpoint",
          "env:LOG_TOKEN",
        ],
      ]);
    },
  );

  it.each([
    ["neither for a server by its address", "::1", "127.0.0.1", false, false],
    ["only the files for the server localhost", "localhost", "127.0.0.1", true, false],
    ["both for a server by its name", "a.example", "127.0.0.1", true, true],
    ["only the files for a listener on localhost", "::1", "localhost", true, false],
    ["both for a listener by its name", "::1", "a.example", true, true],
  ])(
    "lists the files of the system for names, and name servers: %s",
    async (_title, server, listener, hasFiles, hasServers) => {
      const { reads, dials } = await audited(
        fileWith({ services: [service({ upstreams: [{ host: server, port: 1 }] })] }),
        { LISTEN_HOST: listener },
      );
      expect(reads.filter((path) => path.startsWith("/etc/"))).toEqual(
        hasFiles ? ["/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"] : [],
      );
      expect(dials.some(({ why }) => why === "dns")).toBe(hasServers);
    },
  );

  it("lists name servers for a Redis Cluster by addresses, whose servers may give each other names", async () => {
    const counters = { store: "redis", url: ["redis://127.0.0.1:7000", "redis://127.0.0.2:7000"] };
    expect((await audited(fileWith({ global: { counters }, services: [service()] }))).reads).toContain(
      "/etc/resolv.conf",
    );
  });

  it(
    "lists apart what requests of the admin interface can load: every built-in kind, HTTP/2 and Redis, " +
      "which the text of a dry run can name",
    async () => {
      const { modules, on_request: later } = await audited(fileWith({ services: [service()] }), {
        ...QUIET,
        ADMIN_USER: "a",
        ADMIN_PASSWORD: "a long password",
      });
      const listed = later.map(({ path }) => path.replace(/^dist\/lib\/|\.js$/g, ""));
      expect(listed).toEqual(
        expect.arrayContaining([
          "plugins/compress",
          "plugins/cache/response_cache",
          "plugins/jwt",
          "upstream/http2_request",
          "store/redis",
          "features/dry_run_thread",
          "admin/now",
          "admin/explain_request",
          "admin/reload_request",
          "observe/decision_reader",
        ]),
      );
      expect(listed).not.toContain("observe/otlp");
      expect(later.filter(({ path }) => modules.some((module) => module.path === path))).toEqual([]);
      const alone = (await audited(fileWith({ services: [service()] }))).on_request.map(({ path }) => path);
      expect(alone).toContain("dist/lib/proof/config_warnings.js"); // for a reload
      expect(alone.filter((path) => /plugins\/|dry_run|explain/.test(path))).toEqual([]);
    },
  );

  it("lists the secrets that tests refer to, of the configuration and of its test files", async () => {
    const folder = emptyFolder();
    const test = (name: string, headers: object) => ({
      name,
      request: { url: "/b", headers },
      expect: { status: 404 },
    });
    writeFileSync(join(folder, "key.txt"), "k3y");
    writeFileSync(join(folder, "more.json"), JSON.stringify([test("u", { Key: "${file:key.txt}" })]));
    const file = join(folder, "gw.json");
    const tests = [test("t", { Key: "${env:TEST_KEY}" })];
    writeFileSync(file, `\uFEFF${JSON.stringify({ services: [service()], tests, test_files: ["more.json"] })}`);
    expect((await audited(file, { ...QUIET, TEST_KEY: "t" })).secrets).toEqual([
      "env:TEST_KEY",
      `file:${join(folder, "key.txt")}`,
    ]);
  });

  it("lists both ends of the symbolic link of a setting", async () => {
    const folder = emptyFolder();
    const [target, link] = [join(folder, "password"), join(folder, "link")];
    writeFileSync(target, "a long password");
    symlinkSync(target, link);
    const { reads } = await audited(fileWith({ services: [service()] }), {
      ...QUIET,
      ADMIN_USER: "a",
      ADMIN_PASSWORD_FILE: link,
    });
    expect(reads).toEqual(expect.arrayContaining([link, target]));
  });

  it("lists both ends of a symbolic link", async () => {
    const target = fileWith({ services: [service()] });
    const link = join(emptyFolder(), "gw.json");
    symlinkSync(target, link);
    expect((await audited(link)).reads).toEqual(expect.arrayContaining([link, target]));
  });
});

describe("the printed forms", () => {
  const file = () =>
    fileWith({
      global: { access_log: { file: "/var/log/gw/access.log" } },
      services: [
        service({
          upstreams: [
            { host: "10.0.0.5", port: 8080 },
            { host: "fd00::1", port: 81 },
          ],
        }),
        service({
          name: "t",
          base_path: "/t",
          upstreams: [
            { host: "orders.shop.svc.cluster.local", port: 80 },
            { host: "a.example", port: 443 },
          ],
        }),
      ],
    });

  it("without a flag, audit prints the lists for a reader", async () => {
    const path = fileWith({ services: [service()] });
    const { stdout } = await program(["audit", "--config", path], { environment: QUIET }).ended;
    expect(stdout).toMatch(
      new RegExp(
        `^Reads:\n.*  ${path}\n.*Writes:\n  standard output\n  standard error\nListens on:\n  127.0.0.1:8008  ` +
          (`http\nConnects to:\n  10.0.0.5:8080  upstream\nUses the secrets:\n  nothing\nLoads \\d+ modules with ` +
            (`\\d+ lines; audit --json lists them with their SHA-256.\nReloads and requests of the admin ` +
              `interface can load \\d+ more.\n$`)),
        "s",
      ),
    );
  });

  it(
    "--network-policy lets clients in and the pods out to what the configuration names; " +
      "names that are no Services get a comment",
    async () => {
      const text = await printed("--network-policy", file(), {
        LISTEN_HOST: "0.0.0.0",
        PROBE_PORT: "9090",
        PROBE_HOST: "0.0.0.0",
        ADMIN_USER: "a",
        ADMIN_PASSWORD: "a long password",
      });
      expect(text).toContain(
        "  ingress:\n    - ports:\n        - { port: 8008 } # http\n    - from:\n        - namespaceSelector: " +
          ("{ matchLabels: { kubernetes.io/metadata.name: monitoring } }\n      ports:\n        - { port: " +
            "9090 } # probes\n  egress:\n"),
      );
      expect(text).toContain(
        "    # 10.0.0.5:8080 (upstream).\n    - to:\n        - ipBlock: { cidr: " +
          '"10.0.0.5/32" }\n      ports:\n        - { port: 8080 }\n',
      );
      expect(text).toContain('ipBlock: { cidr: "fd00::1/128" }');
      expect(text).toContain(
        "        - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: " +
          "shop } }\n          podSelector: { matchLabels: { app: orders } }\n      ports:\n        - { port: 80 }\n",
      );
      expect(text).toContain(
        "    # a.example:443 (upstream).\n    # A policy takes no host names: this rule is for all hosts. " +
          'Add "to" where you know the addresses.\n    - ports:\n        - { port: 443 }\n',
      );
      expect(text).not.toContain("8081");
    },
  );

  it(
    "--network-policy opens the admin interface and the management UI to pods with a " + "label of their own alone",
    async () => {
      const text = await printed("--network-policy", fileWith({ services: [service()] }), {
        LISTEN_HOST: "0.0.0.0",
        ADMIN_USER: "a",
        ADMIN_PASSWORD: "a long password",
        ADMIN_HOST: "0.0.0.0",
        MANAGER: "true",
        MANAGER_HOST: "0.0.0.0",
      });
      expect(text).toContain("  ingress:\n    - ports:\n        - { port: 8008 } # http\n    # Pods of this namespace");
      expect(text).toContain(
        "\n    - from:\n        - podSelector: { matchLabels: { app: " +
          ("edge-gateway-operator } }\n      ports:\n        - { port: 8081 } # admin\n        - { port: " +
            "5173 } # manager\n  egress:\n"),
      );
    },
  );

  it("--systemd quotes a folder with spaces, so that systemd reads it as one", async () => {
    const config = {
      services: [service()],
      global: { access_log: { file: `/var/log/edge gateway/50% "new"/access.log` } },
    };
    expect(await printed("--systemd", fileWith(config))).toContain(
      `\nReadWritePaths="/var/log/edge gateway/50%% \\"new\\""\n`,
    );
  });

  it("--systemd allows the ports and the folder of the log, and addresses only if all are known", async () => {
    const text = await printed("--systemd", file(), { LISTEN_HOST: "0.0.0.0", HTTP_PORT: "80" });
    expect(text).toContain("[Service]\nProtectSystem=strict\nReadWritePaths=/var/log/gw\n");
    expect(text).toContain("SocketBindDeny=any\nSocketBindAllow=tcp:80\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n");
    expect(text).not.toMatch(/^IPAddress/m);
    expect(await printed("--systemd", fileWith({ services: [service()] }))).toContain(
      "IPAddressDeny=any\nIPAddressAllow=localhost 10.0.0.5\n",
    );
  });

  it(
    "--permission allows the program, the files that are read and the log without its folder, " +
      "and threads only with workers",
    async () => {
      const path = fileWith({ services: [service()] });
      const flags = (await printed("--permission", path)).trimEnd().split("\n");
      const dist = new URL("dist/", ROOT).pathname;
      const reads = [`${dist}bin/`, `${dist}lib/`, path, new URL("package.json", ROOT).pathname];
      expect(flags.slice(1).sort()).toEqual(reads.map((each) => `--allow-fs-read=${each}`).sort());
      expect(flags[0]).toMatch(/^--(experimental-)?permission$/);
      expect(await printed("--permission", file())).toContain(
        "--allow-fs-read=/var/log/gw/access.log\n--allow-fs-write=/var/log/gw/access.log\n",
      );
      expect(await printed("--permission", path, { ...QUIET, WORKERS: "auto" })).toContain("--allow-worker\n");
      const link = join(emptyFolder(), "gw.json");
      symlinkSync(path, link);
      expect(await printed("--permission", link)).toContain(`--allow-fs-read=${dirname(link)}/\n`);
    },
  );
});

describe("audit refuses", () => {
  it.each<readonly [string, readonly string[], string]>([
    ["two forms at once", ["--json", "--systemd"], "choose one of --json and --systemd"],
    ["a flag that is not its own", ["--strict"], "--strict is not a known flag"],
    ["a wrong setting", ["--http-port", "x"], "--http-port: expected an integer 0–65535"],
    ["a value for a form", ["--json=1"], "--json takes no value"],
    ["two operands", ["gw.json", "other.json"], 'too many arguments for "audit"'],
    ["a missing file", ["--config", "/nowhere/gw.json"], "cannot read /nowhere/gw.json: no such file"],
  ])("%s", async (_title, words, message) => {
    const { code, stdout, stderr } = await program(["audit", ...words]).ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  it.each([
    ["nonsense", '["nonsense"]', 'urls of its "dials" has to return a list of URLs'],
    ["a scheme without a port", '["amqp://store.example"]', 'urls of its "dials" has to return a list of URLs'],
    ["an error", '(() => { throw new Error("no URL") })()', 'urls of its "dials" has thrown: no URL'],
  ])("a plugin module whose dials give no URLs, at the place of the plugin: %s", async (_title, urls, message) => {
    const file = fileWithKind(`dials: { why: "own", urls: () => ${urls} }, create: () => (next) => next`);
    const { code, stdout, stderr } = await program(["audit", "--config", file]).ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/gw\.json:\d+:\d+  .*plugins\[0\]  plugin own of .* cannot be created: /);
    expect(stderr).toContain(message);
  });

  it("audit FILE prints the same as audit --config FILE, and both at once are refused; exit 2", async () => {
    const file = fileWith({ services: [service()] });
    const [operand, flag] = await Promise.all([
      program(["audit", file]).ended,
      program(["audit", "--config", file]).ended,
    ]);
    expect([operand.code, operand.stderr, operand.stdout]).toEqual([0, "", flag.stdout]);
    expect(operand.stdout).toContain(file);
    expect(await program(["audit", file, "--config", file]).ended).toMatchObject({
      code: 2,
      stdout: "",
      stderr: expect.stringContaining("name one file, as --config FILE or as FILE"),
    });
  });

  it("a configuration with an error, and a path that no flag of Node can have", async () => {
    const wrong = await program(["audit", "--config", fileWith({ services: [{}] })]).ended;
    expect([wrong.code, wrong.stdout]).toEqual([2, ""]);
    const path = fileWith({ services: [service()] }, "a b.json");
    const { code, stderr } = await program(["audit", "--config", path, "--permission"]).ended;
    expect(code).toBe(2);
    expect(stderr).toContain("cannot be named in --allow-fs-read: rename it, without spaces");
  });
});

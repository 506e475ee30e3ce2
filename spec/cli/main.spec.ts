import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { verifyPassword } from "../../lib/base/password.ts";
import { version } from "../../lib/index.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { oneService } from "../support/gateway.ts";
import { socketOrigin } from "../support/origin.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const BIN = fileURLToPath(new URL("../../bin/edge-gateway.ts", import.meta.url));
const LOADER = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;
const good = oneService(9);
const BAD = `{
  "services": [
    {
      "name": "s", "base_pat": "/a",
      "upstreams": [{ "host": "127.0.0.1", "port": "80a" }],
      "routes": [{ "path": "/x", "methods": ["get"] }]
    }
  ]
}
`;

/** "audit --jsn --json": the command, a mistyped flag and the one that is meant. */
function mistyped(text: string): [string[], string] {
  const [command, wrong, meant] = text.split(" ");
  return [[command!, wrong!], `edge-gateway: ${wrong} is not a known flag; did you mean ${meant}?\n`];
}

describe("the command line", () => {
  it.each([["--version"], ["-v"]])("%s prints the version and exits 0", async (flag) => {
    expect(await program([flag]).ended).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it.each([["--help"], ["-h"]])("%s prints the usage and exits 0", async (flag) => {
    const ended = await program([flag]).ended;
    expect(ended).toMatchObject({ code: 0, stderr: "" });
    expect(ended.stdout).toMatch(/^Usage: edge-gateway /);
  });

  it.each([
    [["help"], /^Usage: edge-gateway \[COMMAND\]/],
    [["help", "help"], /^Usage: edge-gateway \[COMMAND\]/],
    [["help", "reload"], /^Usage: edge-gateway reload \[FILE\] \[FLAGS\]\n\nAsk a running gateway/],
    [["reload", "--help"], /^Usage: edge-gateway reload \[FILE\] \[FLAGS\]\n/],
    [["-h", "validate"], /^Usage: edge-gateway validate \[FILE\] \[FLAGS\]\n/],
    [["run", "--manager", "--help"], /^Usage: edge-gateway run \[FLAGS\]\n/],
  ] as const)("%j prints the requested usage and exits 0", async (words, usage) => {
    const { code, stdout, stderr } = await program(words).ended;
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(usage);
  });

  it("the command line accepts a flag that is true or false before the command", async () => {
    const { code, stderr } = await program(["--manager", "run"]).ended;
    expect(code).toBe(2);
    expect(stderr).toMatch(/^edge-gateway: MANAGER needs an admin interface to talk to/);
  });

  it.each([
    [["help", "bogus"], 'edge-gateway: "bogus" is neither a command nor a code (--help lists the commands)\n'],
    [
      ["help", "run", "demo"],
      'edge-gateway: too many arguments for "help": edge-gateway help --help shows its usage\n',
    ],
    [["--confg", "x"], "edge-gateway: --confg is not a known flag; did you mean --config?\n"],
    [["--bogus"], "edge-gateway: --bogus is not a known flag\n"],
    [["--constructor"], "edge-gateway: --constructor is not a known flag\n"],
    ...[
      "audit --jsn --json",
      "audit --permision --permission",
      "audit --systmd --systemd",
      "audit --network-polcy --network-policy",
      "audit --http-prt --http-port",
    ].map(mistyped),
    ...[
      "healthcheck --liv --live",
      "healthcheck --prob-port --probe-port",
      "reload --dry-rn --dry-run",
      "reload --admin-ur --admin-url",
    ].map(mistyped),
    [
      ["--admin-password", "x"],
      "edge-gateway: --admin-password is not a flag, since other users could read it: " +
        "set the variable ADMIN_PASSWORD\n",
    ],
    [["vlidate"], 'edge-gateway: "vlidate" is not a command; did you mean "validate"? (--help lists them)\n'],
    [["run", "gw.json"], 'edge-gateway: too many arguments for "run": name the configuration with --config FILE\n'],
    [["--config"], "edge-gateway: --config needs a value: the path of a file, or a URL\n"],
    [["demo", "--config", "x"], "edge-gateway: the demo has its own configuration: leave --config out\n"],
    [["schema", "x"], 'edge-gateway: too many arguments for "schema": edge-gateway schema --help shows its usage\n'],
  ])("%j exits 2 with one line and the remedy", async (words, stderr) => {
    expect(await program(words).ended).toMatchObject({ code: 2, stdout: "", stderr });
  });

  it("the command line reports everything that is wrong with flags and environment at once, and exits 2", async () => {
    const environment = { HTTPS_PORT: "70000", PERSISTENCE_CONFIG: "postgres", SERVER_CERT_PATH: "c.pem" };
    const { code, stderr } = await program(["--http-port", "x"], { environment }).ended;
    expect(code).toBe(2);
    const lines = stderr.trimEnd().split("\n");
    expect(lines.every((line) => line.startsWith("edge-gateway: "))).toBe(true);
    for (const name of ["--http-port", "HTTPS_PORT", "PERSISTENCE_CONFIG", "SERVER_CERT_PATH"]) {
      expect(lines.filter((line) => line.includes(`${name}:`) || line.includes(`${name} needs`))).toHaveLength(1);
    }
  });

  it("the command line does not repeat a private key given in place of its file's name", async () => {
    const pem = "-----BEGIN PRIVATE KEY-----\nhunter2\n";
    const { code, stderr } = await program([], { environment: { SERVER_CERT_PATH: pem, SERVER_KEY_PATH: pem } }).ended;
    const line = (name: string) =>
      `edge-gateway: ${name}: expected the path of a file, found "(the content of a file)"\n`;
    expect([code, stderr]).toEqual([2, line("SERVER_CERT_PATH") + line("SERVER_KEY_PATH")]);
  });

  it("the command line does not fail when the reader of its output ends", async () => {
    const child = spawn(process.execPath, ["--import", LOADER, BIN, "schema"], { stdio: ["ignore", "pipe", "pipe"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    let stderr = "";
    child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
    child.stdout.destroy();
    expect(await new Promise((resolve) => child.once("close", resolve))).toBe(0);
    expect(stderr).toBe("");
  });
});

describe("validate", () => {
  it("reports that a good configuration is valid, and its size; exit 0", async () => {
    const file = fileWith(good);
    const { code, stdout, stderr } = await program(["validate", file]).ended;
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/ is valid \(1 service, 2 routes\)\n$/);
    expect(stdout.startsWith(file)).toBe(true);
  });

  it("reads the file from --config, from CONFIG_FILE_PATH, or gw.json of the working directory", async () => {
    const file = fileWith(good);
    const ended = await Promise.all([
      program(["validate", "--config", file]).ended,
      program(["validate"], { environment: { CONFIG_FILE_PATH: file } }).ended,
      program(["validate"], { cwd: file.slice(0, -"/gw.json".length) }).ended,
    ]);
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(ended[2]!.stdout).toMatch(/^gw\.json is valid/);
  });

  it("reports everything that is wrong at once, with file:line:column and path; exit 2", async () => {
    const file = fileWith(BAD);
    const { code, stdout, stderr } = await program(["validate", file]).ended;
    expect([code, stdout]).toEqual([2, ""]);
    const lines = stderr.trimEnd().split("\n");
    expect(lines.map((line) => line.split(/ {2,}/).slice(0, 2))).toEqual([
      [`${file}:3:5`, "services[0].base_path"],
      [`${file}:4:20`, "services[0].base_pat"],
      [`${file}:5:52`, "services[0].upstreams[0].port"],
      [`${file}:6:46`, "services[0].routes[0].methods[0]"],
      ["The configuration has 4 errors; nothing was started."],
    ]);
    expect(lines[1]).toContain('did you mean "base_path"?');
    expect(lines[2]).toContain('expected an integer 1–65535, found "80a"');
  });

  it(
    "starts nothing and writes nothing: no file of the access log, " + "no connection for probes, keys, logs or names",
    async () => {
      let connections = 0;
      const server = await socketOrigin((socket) => {
        connections++;
        socket.destroy();
      });
      onTestFinished(() => server.close());
      const url = `http://127.0.0.1:${server.port}`;
      const plugins = [
        { name: "jwt", config: { jwks_uri: `${url}/jwks`, algs: ["RS256"], iss: "i", aud: "s" } },
        { name: "forward_auth", config: { url: `${url}/check` } },
        {
          name: "introspection",
          config: { url: `${url}/introspect`, client_id: "a", client_secret: "s", scopes: ["read"] },
        },
        { name: "http_log", config: { http_endpoint: `${url}/log` } },
      ];
      const config = oneService(
        server.port,
        { plugins, health: { enabled: true, interval_ms: 1000 } },
        { access_log: { file: "logs/access.log" } },
      );
      const file = fileWith(config);
      const logs = join(dirname(file), "logs");
      mkdirSync(logs);
      expect(await program(["validate", file]).ended).toMatchObject({ code: 0, stderr: "" });
      expect([readdirSync(logs), connections]).toEqual([[], 0]);
    },
  );

  it.each([
    ["none/access.log", "there is no such folder"],
    [".", "it is a folder"],
    ["gw.json/access.log", "there is no such folder"],
  ])("refuses %j as the file of the access log, as run would; exit 2", async (accessLog, why) => {
    const file = fileWith(oneService(9, {}, { access_log: { file: accessLog } }));
    const { code, stderr } = await program(["validate", file]).ended;
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(new RegExp(`global\\.access_log\\.file +cannot write to .*: ${why}\n`)),
    ]);
  });

  it.each(["::ffff:10.0.0.0/90", "::ffff:0:0/95"])(
    "refuses the range %j at its path, for proxies and in acl; exit 2",
    async (range) => {
      const acl = { name: "acl", config: { whitelist: [range] } };
      const { code, stderr } = await program([
        "validate",
        fileWith(oneService(9, { plugins: [acl] }, { trusted_proxies: [range] })),
      ]).ended;
      expect(code).toBe(2);
      for (const place of ["global.trusted_proxies[0]", "services[0].plugins[0].config.whitelist[0]"])
        expect(stderr).toContain(place);
      expect(stderr).toContain(
        "the prefix length of an IPv4 address in IPv6 form is 96–128; for all of IPv4 write 0.0.0.0/0",
      );
      expect(stderr).not.toContain(" at ");
    },
  );

  it("names a missing file; exit 2", async () => {
    const file = `${emptyFolder()}/gw.json`;
    const { code, stderr } = await program(["validate", file]).ended;
    expect(code).toBe(2);
    expect(stderr).toContain(`cannot read ${file}`);
    expect(stderr).toContain("--config PATH or CONFIG_FILE_PATH");
  });

  it.each([
    [["validate", "a", "b"]],
    [["validate", "--config"]],
    [["validate", "a", "--config", "b"]],
    [["validate", "--confg", "b"]],
  ])("%j exits 2", async (words) => {
    const { code, stderr } = await program(words).ended;
    expect(code).toBe(2);
    expect(stderr).toMatch(/^edge-gateway: /);
  });
});

describe("hash-password", () => {
  it("prints the hash of the first line of standard input, and nothing else; exit 0", async () => {
    const { code, stdout, stderr } = await program(["hash-password"], { input: "pass wörd\nsecond line\n" }).ended;
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^scrypt\$\d+\$\d+\$\d+\$[\w-]+\$[\w-]+\n$/);
    expect(await verifyPassword("pass wörd", stdout.trimEnd())).toBe(true);
    expect(await verifyPassword("pass word", stdout.trimEnd())).toBe(false);
  });

  it("accepts a line without a line break", async () => {
    const { stdout } = await program(["hash-password"], { input: "p" }).ended;
    expect(await verifyPassword("p", stdout.trimEnd())).toBe(true);
  });

  /** As typed at a terminal; gives all that appears on it. */
  async function typed(...lines: readonly string[]): Promise<{ code: number | null; screen: string }> {
    const words = [process.execPath, "--import", LOADER, BIN, "hash-password"];
    const child = spawn("script", ["-qec", words.map((word) => `'${word}'`).join(" "), "/dev/null"], {
      stdio: ["pipe", "pipe", "ignore"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    const left = [...lines];
    let screen = "";
    child.stdout.on("data", (chunk: Buffer) => {
      screen += chunk.toString();
      if (/: $/.test(screen) && left.length > 0) child.stdin.write(`${left.shift()!}\r`);
    });
    return { code: await new Promise((resolve) => child.once("close", resolve)), screen };
  }

  it("asks twice at a terminal, echoes neither, and exits 2 when they differ (script as Linux has it)", async ({
    skip,
  }) => {
    if (process.platform !== "linux" || spawnSync("script", ["--version"]).status !== 0) skip();
    const same = await typed("pass wörd", "pass wörd");
    expect([same.code, same.screen]).toEqual([
      0,
      expect.stringMatching(/^Password: \r\nOnce more: \r\nscrypt\$[^\r]+\r\n$/),
    ]);
    expect(await verifyPassword("pass wörd", /scrypt\S+/.exec(same.screen)![0])).toBe(true);
    const other = await typed("one", "two");
    expect([other.code, other.screen]).toEqual([
      2,
      "Password: \r\nOnce more: \r\nedge-gateway: the two passwords are not the same\r\n",
    ]);
    const empty = await typed("", "");
    expect([empty.code, empty.screen]).toEqual([2, expect.stringContaining("the password is empty")]);
  });

  it("refuses a password on the command line without repeating it; exit 2", async () => {
    const { code, stdout, stderr } = await program(["hash-password", "hunter2"]).ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(
      /^edge-gateway: too many arguments for "hash-password": write the password to standard input, /,
    );
  });

  it.each(["", "\n"])("exits 2 for the input %j", async (input) => {
    expect(await program(["hash-password"], { input }).ended).toMatchObject({ code: 2, stdout: "" });
  });
});

describe("schema", () => {
  it("prints the JSON Schema of the configuration; exit 0", async () => {
    const { code, stdout, stderr } = await program(["schema"]).ended;
    expect([code, stderr]).toEqual([0, ""]);
    const schema = JSON.parse(stdout) as Record<string, any>;
    expect(schema.$schema).toBe("https://json-schema.org/draft/2020-12/schema");
    expect(schema).toMatchObject({ type: "object", required: ["services"], additionalProperties: false });
    expect(Object.keys(schema.properties).sort()).toEqual(expect.arrayContaining(["global", "services"]));
    const { Service, Route, Upstream, Plugin } = schema.$defs;
    expect(Service.required.slice().sort()).toEqual(["base_path", "name", "routes", "upstreams"]);
    expect(Service.properties.load_balancing_strategy).toMatchObject({
      enum: ["round_robin", "weighted", "least_connections", "random_two_choices", "ip_hash", "hash"],
      default: "round_robin",
    });
    expect(Service.properties.upstreams).toMatchObject({ type: "array", minItems: 1 });
    expect(Upstream.properties.port.anyOf ?? [Upstream.properties.port]).toEqual(
      expect.arrayContaining([expect.objectContaining({ type: "integer", minimum: 1, maximum: 65535 })]),
    );
    expect(Route.required).toEqual(["path"]);
    expect(Plugin.required).toEqual(["name"]);
    const kinds = Plugin.allOf.map((rule: any) => rule.if.properties.name.const);
    expect(kinds).toEqual(builtinPlugins.map(({ name }) => name));
    expect(Object.keys(Plugin.allOf[1].then.properties.config.properties)).toEqual(
      expect.arrayContaining(["limit_second", "limit_min", "limit_hour"]),
    );
  });

  it("prints a schema whose references can all be resolved", async () => {
    const { stdout } = await program(["schema"]).ended;
    const { $defs } = JSON.parse(stdout) as { $defs: Record<string, unknown> };
    const references = [...stdout.matchAll(/"\$ref": "#\/\$defs\/([^"]+)"/g)].map((match) => match[1]!);
    expect(references.length).toBeGreaterThan(3);
    expect(references.filter((name) => !(name in $defs))).toEqual([]);
  });
});

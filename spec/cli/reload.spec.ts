import { writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import net from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { asAdmin, type AdminTarget } from "../../lib/cli/admin_client.ts";
import { CA, SERVER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { fileWith, logLines, program, runningProgram } from "../support/process.ts";
import { pem } from "./pem.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" };

async function gateway(environment: Record<string, string> = {}, config = oneService(9)) {
  const running = await runningProgram(config, [], { ...CREDENTIALS, ...environment });
  const url = String(running.started.admin);
  const reload = (words: readonly string[] = [], own: Record<string, string> = {}) =>
    program(["reload", ...words], { environment: { ...CREDENTIALS, ADMIN_URL: url, ...own } }).ended;
  return { ...running, url, reload };
}

/**
 * Whether the watcher or the command was first: what the file says is in force, and who took it does not matter here.
 */
const REFUSED =
  /^\S+gw\.json:1:1 +services +is required .*\nThe configuration was refused; [0-9a-f]{12} stays in force\.\n$/;

describe("edge-gateway reload", () => {
  it("leaves nothing of the first configuration in memory, once another one is in force", async () => {
    // On a signal the heap is collected, and its size logged.
    const probe = fileWith(
      `import { setFlagsFromString } from "node:v8";
      import { runInNewContext } from "node:vm";
      setFlagsFromString("--expose-gc");
      const collect = runInNewContext("gc");
      process.on("SIGUSR2", () => { collect(); console.error("heap " + process.memoryUsage().heapUsed); });`,
      "probe.mjs",
    );
    const plugins = [{ name: "key_auth", config: { key: "secret" } }];
    const routes = Array.from({ length: 2000 }, (_none, i) => ({ path: `/r${i}`, plugins }));
    const running = await runningProgram(oneService(9, { routes }), [], { NODE_OPTIONS: `--import=${probe}` });
    const heap = async (times: number) => {
      const said = () => [...running.stderr().matchAll(/^heap ([0-9]+)$/gm)].map(([, bytes]) => Number(bytes));
      running.child.kill("SIGUSR2");
      await expect.poll(() => said().length, { timeout: 15_000 }).toBe(times);
      return said().at(-1)!;
    };
    const first = await heap(1);
    writeFileSync(running.file, JSON.stringify(oneService(9)));
    await running.says(/configuration reloaded/);
    // With the code of a reload in it.
    expect(await heap(2)).toBeLessThan(0.7 * first);
  }, 60_000);

  it("prints changes and exits 0, prints that nothing changed and exits 0, prints errors and exits 2", async () => {
    // What is referred to is not watched, so nothing is taken before the command asks for it.
    const name = fileWith("localhost", "name.txt");
    const running = await runningProgram(
      oneService(9, { upstreams: [{ host: `\${file:${name}}`, port: 9 }] }),
      [],
      CREDENTIALS,
    );
    const reload = () =>
      program(["reload"], { environment: { ...CREDENTIALS, ADMIN_URL: String(running.started.admin) } }).ended;
    const inForce = `configuration ${String(running.started.digest)} is in force\n`;
    expect(await reload()).toMatchObject({
      code: 0,
      stdout: `the text has not changed; its secrets were resolved again\n${inForce}`,
      stderr: "",
    });
    const lines = logLines(running.stderr()).map(({ message }) => message);
    expect(lines.slice(1)).toEqual([
      "admin logged in",
      "reload requested over the admin interface",
      "configuration read again: its text is the same, its secrets were resolved again",
    ]);
    writeFileSync(name, "");
    const { code, stdout, stderr } = await reload();
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(
      new RegExp(
        String.raw`^\S+gw\.json:1:\d+ +services\[0\]\.upstreams\[0\]\.host .*\nThe configuration ` +
          String.raw`was refused; [0-9a-f]{12} stays in force\.\n$`,
      ),
    );
  });

  it("names each part that was added, removed or altered", async () => {
    const changes = [
      { kind: "route", name: 'service "s" / route "x"', change: "added" },
      { kind: "plugin", name: "global / plugin key_auth", change: "removed" },
      { kind: "service", name: 'service "\u001b[31m"', change: "altered" },
    ];
    const { url, asked } = await fake({ "/gateway/reload": [200, { digest: "0123456789ab", changed: true, changes }] });
    const { code, stdout } = await program(["reload", "--admin-url", url], { environment: CREDENTIALS }).ended;
    const lines = [
      'added    service "s" / route "x"',
      "removed  global / plugin key_auth",
      'altered  service "?[31m"',
      "configuration 0123456789ab is in force",
    ];
    expect([code, stdout]).toEqual([0, `${lines.join("\n")}\n`]);
    expect(asked).toEqual(["POST /login", "POST /gateway/reload", "DELETE /logout"]);
  });

  it("names the fields that are another in an altered part", async () => {
    const upstreams = ["a", "b"].map((group, i) => ({ host: "127.0.0.1", port: 9 + i, group }));
    const config = (percent: number) => oneService(9, { upstreams, split: [{ group: "a", percent }] } as never);
    const running = await gateway({}, config(10));
    writeFileSync(running.file, JSON.stringify({ ...config(20), global: { limits: { max_headers: 50 } } }));
    await running.says("configuration reloaded");
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      changes: ["altered  global (limits.max_headers)", 'altered  service "s" (split)'],
    });
    expect((await running.reload()).stdout).toMatch(
      /\naltered  global \(limits\.max_headers\)\naltered  service "s" \(split\)\n/,
    );
  });

  it("prints the last change and its time when the changed file has been reloaded already", async () => {
    const running = await gateway();
    writeFileSync(running.file, JSON.stringify(oneService(9, { name: "t" })));
    await running.says("configuration reloaded");
    const { code, stdout } = await running.reload();
    expect(code).toBe(0);
    expect(stdout).toMatch(
      new RegExp(
        String.raw`^the text has not changed.*\nthe last change was at \d{4}-\S+Z \(file\):\n` +
          String.raw`added +service "t"\n(.*\n)+removed +service "s"\n(.*\n)+configuration ` +
          String.raw`[0-9a-f]{12} is in force\n$`,
      ),
    );
  });

  it("verifies the certificate over HTTPS, by Node's list or by --ca", async () => {
    const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert, broken: "garbage" });
    const { url, reload } = await gateway({
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
      ADMIN_TLS: "true",
    });
    const named = url.replace("127.0.0.1", "localhost");
    const good = await reload(["--admin-url", named, "--ca", files.ca!]);
    expect(good).toMatchObject({ code: 0, stderr: "" });
    const bad = await reload(["--admin-url", named]);
    expect(bad).toMatchObject({ code: 1, stdout: "" });
    expect(bad.stderr).toContain("give its CA certificate with --ca (ADMIN_CA_PATH)");
    const broken = await reload(["--admin-url", named, "--ca", files.broken!]);
    expect(broken.code).toBe(2);
    expect(broken.stderr).toContain("(ADMIN_CA_PATH) is not a certificate in PEM form");
  });

  it("exits 1 when the credentials are refused, and when nothing listens", async () => {
    const { reload, url } = await gateway();
    const stderrOfWrong = `edge-gateway: ${url} refused the user name or the password\n`;
    expect(await reload([], { ADMIN_PASSWORD: "wrong" })).toMatchObject({ code: 1, stdout: "", stderr: stderrOfWrong });
    const { code, stderr } = await reload(["--admin-url", `http://127.0.0.1:${await closedPort()}`]);
    expect(code).toBe(1);
    expect(stderr).toContain("nothing listens there; is the gateway running");
  });

  it.each([
    [["reload"], {}, "ADMIN_USER is not set"],
    [
      ["reload", "gw.json"],
      CREDENTIALS,
      "the gateway reloads the file that it was started with; another FILE is for --dry-run",
    ],
    [["reload", "--insecure"], CREDENTIALS, "--insecure is not a known flag"],
    [["reload"], { ADMIN_USER: "a", ADMIN_PASSWORD: "scrypt$x" }, "is a hash"],
    [["reload", "--ca", "/nowhere.pem"], CREDENTIALS, "no such file"],
  ])("%j with %j exits 2", async (words, environment, message) => {
    const { code, stdout, stderr } = await program(words, { environment: environment as Record<string, string> }).ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  it("reports a refused configuration with the same text as the log", async () => {
    const { reload, file, says, stderr } = await gateway();
    writeFileSync(file, "{}");
    await says("reload refused");
    const answer = await reload();
    expect(answer).toMatchObject({ code: 2, stderr: expect.stringMatching(REFUSED) as string });
    const logged = logLines(stderr()).filter(({ message }) => String(message).startsWith("reload refused"));
    expect(logged.map(({ by }) => by)).toEqual(["file", "admin"]);
    expect(answer.stderr.split("\n")[0]).toBe((logged[1]!.issues as string[])[0]);
  });
});

describe("edge-gateway reload --dry-run", () => {
  const KEY = { name: "key_auth", config: { key: "k" } };
  const [items, rest] = [
    { name: "items", path: "/items", plugins: [KEY] },
    { name: "rest", path: "/{rest*}" },
  ];
  const current = oneService(9, { routes: [items, rest] });

  /** A gateway with the configuration `current` that has had two requests. */
  async function asked() {
    const running = await runningProgram(current, [], CREDENTIALS);
    for (const path of ["/a/items", "/a/x?token=secret"])
      await fetch(`http://127.0.0.1:${running.port}${path}`).then((response) => response.arrayBuffer());
    const dryRun = (...words: string[]) =>
      program(["reload", "--dry-run", ...words], {
        environment: { ...CREDENTIALS, ADMIN_URL: String(running.started.admin) },
      }).ended;
    return { ...running, dryRun };
  }

  it("prints what FILE would change and what recent requests would meet, exits 0, and changes nothing", async () => {
    const { dryRun, stderr, port, started } = await asked();
    const file = fileWith({
      ...oneService(9, { routes: [{ name: "items", path: "/items" }] }),
      tests: [{ name: "t", request: { url: "/a/items" }, expect: { status: 200 } }],
    });
    const { code, stdout, stderr: errors } = await dryRun(file);
    expect([code, errors]).toEqual([0, ""]);
    expect(stdout.split("\n")).toEqual([
      "guards lost:",
      "  s / items: key_auth (GET http://localhost/a/items)",
      "routes removed:",
      "  s / rest",
      "routes changed:",
      "  s / items: plugin key_auth removed",
      "of the last 2 requests, 0 would get another route and 1 none:",
      `  GET http://127.0.0.1:${port}/a/x: no route instead of s / rest`,
      `${file} would be accepted (1 of 1 test passed); nothing has been changed`,
      "",
    ]);
    expect((await fetch(`http://127.0.0.1:${port}/a/items`)).status).toBe(401);
    const status = await asAdmin({ url: String(started.admin), user: "anna", password: "secret", ca: null }, (ask) =>
      ask("GET", "/gateway/status"),
    );
    expect(status.json).toMatchObject({ digest: started.digest, last_reload: null });
    expect(logLines(stderr()).map(({ message }) => message)).toContain(
      "dry run of a reload requested over the admin interface",
    );
    expect(stderr()).not.toContain("configuration reloaded");
  });

  it("says of how many recent requests the route depends on what is not kept of them", async () => {
    const { dryRun } = await asked();
    const matched = { name: "v2", path: "/items", match: { headers: { "X-Version": "2" } } };
    const { stdout } = await dryRun(fileWith(oneService(9, { routes: [items, rest, matched] })));
    expect(stdout).toContain(
      "of the last 2 requests none would get another route; of 1 the route depends on headers, " +
        "query or cookies, which are not kept\n",
    );
  });

  it("prints the errors of FILE with their places, and exits 1", async () => {
    const { dryRun } = await asked();
    const file = fileWith('{\n"services": 1}');
    const { code, stdout, stderr } = await dryRun(file);
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr.split("\n")).toEqual([
      expect.stringMatching(/gw\.json:2:13 +services +expected an array/),
      `${file} would be refused; nothing has been changed`,
      "",
    ]);
    expect(stderr.startsWith(`${file}:2:13`)).toBe(true);
  });

  it("tries the gateway's own file without FILE", async () => {
    // Files that references name are not watched, so nothing is reloaded before the command asks.
    const key = fileWith("k1", "key.txt");
    const test = { name: "needs k1", request: { url: "/a/x", headers: { apiKey: "k1" } }, expect: { status: 200 } };
    const config = {
      ...oneService(9, { plugins: [{ name: "key_auth", config: { key: `\${file:${key}}` } }] }),
      tests: [test],
    };
    const running = await runningProgram(config, [], CREDENTIALS);
    const dryRun = () =>
      program(["reload", "--dry-run"], { environment: { ...CREDENTIALS, ADMIN_URL: String(running.started.admin) } })
        .ended;
    const lines = [
      "of the last 0 requests none would get another route",
      "the gateway's configuration file would be accepted (1 of 1 test passed); nothing has been changed",
      "",
    ];
    expect(await dryRun()).toMatchObject({ code: 0, stdout: lines.join("\n"), stderr: "" });
    writeFileSync(key, "k2");
    const { code, stdout, stderr } = await dryRun();
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toContain('tests[0]  "needs k1" failed: status: expected 200, found 401');
    expect(stderr).not.toContain("guards lost");
  });

  it("says that tests were not run, and why", async () => {
    const { dryRun } = await asked();
    const file = fileWith({
      ...oneService(9, { plugins: [{ name: "key_auth", config: { key: "${env:PATH}" } }] }),
      tests: [{ name: "t", request: { url: "/a/x" }, expect: { status: 200 } }],
    });
    const { code, stdout } = await dryRun(file);
    expect(code).toBe(0);
    expect(stdout).toContain("Tests whose result could tell the value of a reference were not run: ");
    expect(stdout).toContain(
      `${file} would be accepted if all tests pass (0 of 1 test passed, 1 not run); nothing has been changed\n`,
    );
  });

  it("--dry-run exits 1 when FILE is too large for a gateway, without asking one", async () => {
    const words = [
      "reload",
      "--dry-run",
      fileWith(" ".repeat(16 * 1024 * 1024 + 1)),
      "--admin-url",
      `http://127.0.0.1:${await closedPort()}`,
    ];
    const { code, stdout, stderr } = await program(words, { environment: CREDENTIALS }).ended;
    expect([code, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(/ has more than 16777216 bytes: no gateway accepts it\n$/);
  });

  it("exits 1 for a gateway that does not know dry runs, and one without an admin interface", async () => {
    const { url } = await fake({
      "/gateway/reload?dry_run=true": [200, { digest: "0123456789ab", changed: false, changes: [] }],
    });
    const { code, stderr } = await program(["reload", "--dry-run", "--admin-url", url], { environment: CREDENTIALS })
      .ended;
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/it is not the admin interface of a gateway that knows this command\n$/),
    ]);
    const nobody = await program(["reload", "--dry-run", "--admin-url", `http://127.0.0.1:${await closedPort()}`], {
      environment: CREDENTIALS,
    }).ended;
    expect([nobody.code, nobody.stderr]).toEqual([
      1,
      expect.stringContaining("is the gateway running, with ADMIN_USER and a password set"),
    ]);
  });

  it.each([
    [["nowhere.json"], "cannot read the configuration nowhere.json (FILE): no such file"],
    [["a.json", "b.json"], 'too many arguments for "reload"'],
    [["--dry-run=yes"], "--dry-run is given twice"],
    [["--strict"], "--strict is not a known flag"],
  ])("--dry-run %j exits 2", async (words, message) => {
    const { code, stdout, stderr } = await program(["reload", "--dry-run", ...words], { environment: CREDENTIALS })
      .ended;
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
  });

  it("refuses an empty FILE, which would stand for the gateway's own; exit 2", async () => {
    const file = fileWith("");
    const { code, stderr } = await program(["reload", "--dry-run", file], { environment: CREDENTIALS }).ended;
    expect([code, stderr]).toEqual([2, `edge-gateway: ${file} is empty\n`]);
  });
});

type Answers = Readonly<Record<string, readonly [number, unknown, Readonly<Record<string, string>>?]>>;

/** What looks like an admin interface as far as `answers` say otherwise. */
async function fake(answers: Answers) {
  const asked: string[] = [];
  const usual: Answers = { "/login": [200, {}, { "Set-Cookie": "token=t; HttpOnly" }], "/logout": [204, null] };
  const server = http.createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const [status, body, headers] = answers[request.url!] ?? usual[request.url!] ?? [404, {}];
    response.writeHead(status, headers).end(body === null ? "" : JSON.stringify(body));
  });
  return { url: `http://127.0.0.1:${await listening(server)}`, asked };
}

async function listening(server: net.Server): Promise<number> {
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => sockets.add(socket.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => void server.close(() => resolve()));
  });
  return (server.address() as AddressInfo).port;
}

describe("asAdmin", () => {
  const ask = (url: string, more: Partial<AdminTarget> = {}) =>
    asAdmin({ url, user: "u", password: "p", ca: null, ...more }, (asking) => asking("POST", "/gateway/reload"));
  const failure = (url: string, more?: Partial<AdminTarget>) =>
    ask(url, more).then(
      () => "nothing",
      (error: { message: string; exitCode?: number }) => `${error.exitCode} ${error.message}`,
    );

  it.each<[string, Answers, string | RegExp]>([
    ["is no gateway", { "/login": [404, {}] }, /^1 \S+ answered POST \/login with 404: it is not the admin interface/],
    ["gives no session", { "/login": [200, {}] }, /^1 \S+ answered POST \/login with 200: it is not/],
    [
      "throttles",
      { "/login": [429, {}, { "Retry-After": "7" }] },
      /^1 \S+ has seen too many failed logins from here; try again in 7 s$/,
    ],
    ["is busy", { "/login": [503, {}] }, /^1 \S+ is too busy$/],
    [
      "does not accept the host name of the request",
      { "/login": [421, {}] },
      /does not accept this host name: add it to ADMIN_HOSTS/,
    ],
    [
      "redirects",
      { "/login": [302, {}, { Location: "https://elsewhere/" }] },
      /redirects to "https:\/\/elsewhere\/", which is not followed/,
    ],
  ])("reports a server that %s, and sends it no more requests", async (_what, answers, message) => {
    const { url, asked } = await fake(answers);
    expect(await failure(url)).toMatch(message);
    expect(asked).toEqual(["POST /login"]);
  });

  it.each([
    [
      "that does not know it, as several behind one address",
      401,
      /does not know the session that it has just started; if several gateways answer there, name one/,
    ],
    ["that fails", 500, /failed at POST \/gateway\/reload: see the log of the gateway$/],
  ])("reports a gateway %s after the login", async (_what, status, message) => {
    const { url } = await fake({
      "/gateway/reload": [status, { code: status === 500 ? "internal" : "unauthenticated" }],
    });
    const { code, stderr } = await program(["reload", "--admin-url", url], { environment: CREDENTIALS }).ended;
    expect([code, stderr.trim()]).toEqual([1, expect.stringMatching(message)]);
  });

  it("gives up on an endless answer", async () => {
    const port = await listening(
      http.createServer((_request, response) => {
        const more = () => void (response.destroyed || response.write("x".repeat(60_000), () => setImmediate(more)));
        more();
      }),
    );
    expect(await failure(`http://127.0.0.1:${port}`, { maxBytes: 200_000 })).toMatch(/has more than 200000 bytes$/);
  });

  it.each([
    ["says nothing", () => {}],
    ["stops in the middle", (socket: net.Socket) => void socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")],
  ])("gives up in time on a server that %s", async (_what, talk) => {
    const port = await listening(net.createServer(talk));
    expect(await failure(`http://127.0.0.1:${port}`, { timeoutMs: 50 })).toMatch(/did not answer within 0.05 s$/);
  });

  it.each([
    [
      "hangs up",
      (socket: net.Socket) => void socket.once("data", () => socket.destroy()),
      /closed without an answer; with ADMIN_TLS=true the gateway speaks HTTPS$/,
    ],
    [
      "breaks off",
      (socket: net.Socket) =>
        void socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")),
      /^1 cannot ask/,
    ],
    [
      "speaks another protocol",
      (socket: net.Socket) => void socket.once("data", () => socket.end("220 smtp ready\r\n")),
      /does not speak HTTP/,
    ],
  ])("reports a server that %s", async (_what, talk, message) => {
    expect(await failure(`http://127.0.0.1:${await listening(net.createServer(talk))}`)).toMatch(message);
  });

  it("reports plain HTTP used for HTTPS and the reverse, and a certificate for another name", async () => {
    const { url } = await fake({});
    expect(await failure(url.replace("http:", "https:"))).toMatch(/does not speak TLS$/);
    const secure = await listening(
      tls.createServer({ cert: SERVER.cert, key: SERVER.key }).on("tlsClientError", () => {}),
    );
    expect(await failure(`http://127.0.0.1:${secure}`)).toMatch(
      /^1 cannot ask .* with ADMIN_TLS=true the gateway speaks HTTPS$/,
    );
    const wanted = { ca: Buffer.from(CA.cert) };
    expect(await failure(`https://127.0.0.2:${secure}`, wanted)).toMatch(/^1 cannot ask/);
  });

  it("ends its session, and ignores an admin interface that refuses the logout", async () => {
    const { url, asked } = await fake({ "/gateway/reload": [200, { changes: [] }], "/logout": [500, {}] });
    expect((await ask(url)).status).toBe(200);
    expect(asked).toEqual(["POST /login", "POST /gateway/reload", "DELETE /logout"]);
  });

  it("ends its session when the request fails, too", async () => {
    const { url, asked } = await fake({});
    await expect(
      asAdmin({ url, user: "u", password: "p", ca: null }, () => Promise.reject(new Error("mine"))),
    ).rejects.toThrow("mine");
    expect(asked).toEqual(["POST /login", "DELETE /logout"]);
  });
});

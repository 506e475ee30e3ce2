import { renameSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { request as tlsRequest } from "node:https";
import type { TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { startAdmin } from "../admin/harness.ts";
import { CA, SERVER } from "../support/certs.ts";
import { RENEWED } from "../support/more_certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { closedPort, freePort, rawOrigin, socketOrigin } from "../support/origin.ts";
import { emptyFolder, fileWith, logLines, program, runningProgram, type Program } from "../support/process.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";
import { pem } from "./pem.ts";

const ADMIN = { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" };
const BASIC = `Basic ${Buffer.from("anna:secret").toString("base64")}`;
const portOf = (url: unknown) => Number(new URL(String(url)).port);

async function taken(): Promise<number> {
  const other = await socketOrigin((socket) => socket.destroy());
  onTestFinished(() => other.close());
  return other.port;
}

/** `edge-gateway manager` on any free port, up and announced. */
async function alone(
  words: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<Program & { port: number; url: string }> {
  const running = program(["manager", "--manager-port", "0", ...words], { environment, cwd: emptyFolder() });
  await running.says(" manager started");
  const { manager: url } = logLines(running.stderr()).find(({ message }) => / manager started$/.test(String(message)))!;
  return { ...running, url: String(url), port: portOf(url) };
}

/** Over TLS: the status and the serial number of the certificate that was shown. */
function secure(port: number, path: string): Promise<{ status: number; serial: string }> {
  return new Promise((resolve, reject) => {
    const asking = tlsRequest(
      { host: "127.0.0.1", port, path, agent: false, rejectUnauthorized: false },
      (response) => {
        const serial = (response.socket as TLSSocket).getPeerX509Certificate()!.serialNumber;
        response.resume().on("end", () => resolve({ status: response.statusCode!, serial }));
      },
    );
    asking.on("error", reject).end();
  });
}

/** The status of a login that comes from this address. */
function statusFrom(
  localAddress: string,
  port: number,
  headers: Record<string, string>,
  path = "/api/login",
): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request(
      { host: "127.0.0.1", port, path, method: "POST", headers, localAddress, agent: false },
      (response) => {
        response.resume();
        resolve(response.statusCode!);
      },
    );
    asking.on("error", reject).end();
  });
}

/** Under another name first, then renamed over the old one. */
function save(path: string, text: string): void {
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

describe("edge-gateway manager", () => {
  it(
    "serves the UI for another gateway, without a configuration file, " + "until SIGTERM or SIGINT, and exits 0",
    async () => {
      const admin = await startAdmin();
      for (const signal of ["SIGTERM", "SIGINT"] as const) {
        const environment = {
          MANAGER_BACKEND_API_URL: `http://127.0.0.1:${admin.port}`,
          MANAGER_TRACE_URL: "http://traces.example/{trace_id}",
        };
        const manager = await alone([], environment);
        expect(manager.url).toBe(`http://localhost:${manager.port}`);
        const page = await ask(manager.port);
        expect(page.headers["content-type"]).toBe("text/html; charset=utf-8");
        expect(page.body.toString()).toContain('<meta name="trace-url" content="http://traces.example/{trace_id}">');
        expect((await ask(manager.port, { path: "/api/healthz" })).status).toBe(200);
        const idle = await connect(manager.port);
        manager.child.kill(signal);
        expect(await manager.ended).toMatchObject({ code: 0, signal: null, stdout: "" });
        await idle.closed();
      }
    },
  );

  it("starts while the admin interface is missing, and reports that on its pages", async () => {
    const manager = await alone(["--manager-backend-api-url", `http://127.0.0.1:${await closedPort()}`]);
    expect((await ask(manager.port, { path: "/api/gateway" })).status).toBe(502);
    await manager.says("the admin interface does not answer");
    manager.child.kill("SIGHUP"); // no end
    expect((await ask(manager.port)).status).toBe(200);
  });

  it("is below MANAGER_BASE_PATH, and announces the address of its start page", async () => {
    const manager = await alone(["--manager-base-path", "/ops/edge"]);
    expect(manager.url).toBe(`http://localhost:${manager.port}/ops/edge/`);
    expect((await ask(manager.port, { path: "/ops/edge/" })).status).toBe(200);
    expect((await ask(manager.port)).status).toBe(404);
  });

  it("announces itself in rows with LOG_FORMAT text", async () => {
    const manager = program(["manager", "--manager-port", "0", "--log-format", "text"]);
    expect(await manager.says(/ {2}backend .*\n/)).toMatch(
      new RegExp(
        String.raw`^edge-gateway \S+ manager started\n {2}manager {2}http:\/\/localhost:\d+\n` +
          String.raw` {2}backend {2}http:\/\/127\.0\.0\.1:8081\n$`,
      ),
    );
  });

  it(
    "serves HTTPS with MANAGER_TLS, verifies an admin interface by MANAGER_BACKEND_CA_PATH, " +
      "and reloads renewed files",
    async () => {
      const admin = await startAdmin({ tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key) } });
      const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert });
      const manager = await alone([], {
        MANAGER_TLS: "true",
        SERVER_CERT_PATH: files.cert!,
        SERVER_KEY_PATH: files.key!,
        MANAGER_BACKEND_API_URL: `https://localhost:${admin.port}`,
        MANAGER_BACKEND_CA_PATH: files.ca!,
      });
      expect(manager.url).toBe(`https://localhost:${manager.port}`);
      const before = await secure(manager.port, "/api/healthz");
      expect(before.status).toBe(200);
      save(files.key!, RENEWED.key);
      save(files.cert!, RENEWED.cert);
      await manager.says("CA reloaded");
      expect((await secure(manager.port, "/")).serial).not.toBe(before.serial);
    },
  );

  it("warns when it listens beyond this machine on plain HTTP, where no user could log in", async () => {
    const manager = await alone(["--manager-host", "0.0.0.0"]);
    expect(logLines(manager.stderr())[0]).toMatchObject({
      level: "warn",
      message: expect.stringContaining("MANAGER_TLS=true") as string,
    });
    expect(manager.url).toBe(`http://localhost:${manager.port}`);
  });

  it("exits 1 if its port is in use, and names port and setting", async () => {
    const port = await taken();
    expect(await program(["manager", "--manager-port", String(port)]).ended).toMatchObject({
      code: 1,
      stderr:
        `edge-gateway: cannot listen on 127.0.0.1:${port}: the port is already in use; ` +
        `stop the program that listens there, or choose another port with MANAGER_PORT (--manager-port)\n`,
    });
  });

  it.each([
    [
      ["manager", "http://gw"],
      'edge-gateway: too many arguments for "manager": name the admin interface with --manager-backend-api-url URL\n',
    ],
    [
      ["manager", "--config", "x"],
      "edge-gateway: --config is not a flag of this command: it is for starting a gateway\n",
    ],
    [
      ["manager", "--manager-backend-ca-path", "/none", "--manager-backend-api-url", "https://h"],
      "edge-gateway: cannot read the CA certificate of the admin interface /none " +
        "(MANAGER_BACKEND_CA_PATH): no such file\n",
    ],
    [
      ["run", "--manager"],
      "edge-gateway: MANAGER needs an admin interface to talk to: set ADMIN_USER and ADMIN_PASSWORD, " +
        "or name the admin interface of another gateway with MANAGER_BACKEND_API_URL\n",
    ],
  ])("%j exits 2 with one line and the remedy", async (words, stderr) => {
    expect(await program(words).ended).toMatchObject({ code: 2, stdout: "", stderr });
  });
});

describe("edge-gateway run --manager", () => {
  it("starts the UI in the same process for its own admin interface: log in, read, reload, log out", async () => {
    const origin = await backend();
    const running = await runningProgram(oneService(origin.port), ["--manager"], ADMIN);
    const url = String(running.started.manager);
    expect(url).toMatch(/^http:\/\/localhost:\d+$/);
    const api = (method: string, path: string, headers: Record<string, string> = {}) =>
      ask(portOf(url), {
        method,
        path: `/api${path}`,
        headers: { Origin: `http://127.0.0.1:${portOf(url)}`, ...headers },
      });
    const login = await api("POST", "/login", { Authorization: BASIC });
    expect(login.status).toBe(200);
    const Cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
    expect((await api("POST", "/gateway/reload", { Cookie })).status).toBe(200);
    save(running.file, JSON.stringify({ services: [] }));
    await running.says('"message":"configuration reloaded"');
    expect(JSON.parse((await api("GET", "/gateway", { Cookie })).body.toString())).toMatchObject({ services: [] });
    expect((await api("DELETE", "/logout", { Cookie })).status).toBe(204);
    expect((await api("GET", "/gateway", { Cookie })).status).toBe(401);
  });

  it(
    "pauses and logs each user of the UI by the user's own address, " +
      "whatever headers say (127.0.0.2 is ours on Linux only)",
    async ({ skip }) => {
      if (process.platform !== "linux") skip();
      const running = await runningProgram(oneService(9), ["--manager"], ADMIN);
      const logIn = (from: string, authorization: string, headers: Record<string, string> = {}) =>
        statusFrom(from, portOf(running.started.manager), { Authorization: authorization, ...headers });
      const wrong = `Basic ${Buffer.from("anna:guess").toString("base64")}`;
      const spoofed = { "X-Forwarded-For": "127.0.0.1", Forwarded: "for=127.0.0.1", "X-Real-IP": "127.0.0.1" };
      for (let i = 0; i < 5; i++) expect(await logIn("127.0.0.2", wrong, spoofed)).toBe(401);
      expect(await logIn("127.0.0.2", BASIC)).toBe(429);
      expect(await logIn("127.0.0.3", BASIC)).toBe(200);
      // Straight to the admin interface nobody can say to be another.
      expect(
        await statusFrom("127.0.0.2", portOf(running.started.admin), { Authorization: BASIC, ...spoofed }, "/login"),
      ).toBe(429);
      const told = logLines(running.stderr()).filter(({ message }) => /^admin log/.test(String(message)));
      expect(told.map(({ message, address }) => `${String(message)} ${String(address)}`)).toEqual([
        ...Array<string>(5).fill("admin login failed 127.0.0.2"),
        "admin logged in 127.0.0.3",
      ]);
    },
  );

  it("announces the UI in a row with LOG_FORMAT text, or that it is off", async () => {
    for (const [words, row] of [
      [["--manager"], /^ {2}manager +http:\/\/localhost:\d+$/m],
      [[], /^ {2}manager +off: --manager \(MANAGER=true\) .*$/m],
    ] as const) {
      const ports = [
        "--http-port",
        "0",
        "--admin-port",
        "0",
        "--manager-port",
        "0",
        "--listen-host",
        "127.0.0.1",
        "--log-format",
        "text",
      ];
      const running = program(["--config", fileWith(oneService(9)), ...ports, ...words], { environment: ADMIN });
      expect(await running.says(/^ {2}reload .*\n/m)).toMatch(row);
    }
  });

  it(
    "reaches its admin interface over HTTPS though the certificate names other " + "hosts, also after a renewal",
    async () => {
      const files = pem({ cert: RENEWED.cert, key: RENEWED.key });
      const tls = {
        SERVER_CERT_PATH: files.cert!,
        SERVER_KEY_PATH: files.key!,
        ADMIN_TLS: "true",
        MANAGER_TLS: "true",
      };
      const running = await runningProgram(oneService(9), ["--manager", "--admin-host", "0.0.0.0"], {
        ...ADMIN,
        ...tls,
      });
      const port = portOf(running.started.manager);
      const before = await secure(port, "/api/healthz");
      expect(before.status).toBe(200);
      save(files.key!, SERVER.key);
      save(files.cert!, SERVER.cert);
      await running.says("CA reloaded");
      const after = await secure(port, "/api/healthz");
      expect(after.status).toBe(200);
      expect(after.serial).not.toBe(before.serial);
    },
  );

  it("can use another gateway, and then needs no admin interface of its own", async () => {
    const admin = await startAdmin();
    const running = await runningProgram(oneService(9), ["--manager"], {
      MANAGER_BACKEND_API_URL: `http://127.0.0.1:${admin.port}`,
    });
    expect((await ask(portOf(running.started.manager), { path: "/api/healthz" })).status).toBe(200);
  });

  it("serves on while the gateway drains, and is closed last", async () => {
    const held: (() => void)[] = [];
    const origin = await rawOrigin((_request, response) => void held.push(() => response.end("late")));
    onTestFinished(() => origin.close());
    const running = await runningProgram(oneService(origin.port), ["--manager"], ADMIN);
    const port = portOf(running.started.manager);
    const late = ask(running.port, { path: "/a/x" });
    await eventually(() => held.length === 1, "a request at the server");
    running.child.kill("SIGTERM");
    await running.says(": draining");
    await refused(running.port);
    expect((await ask(port)).status).toBe(200);
    expect((await ask(port, { path: "/api/readyz" })).status).toBe(503);
    held[0]!();
    expect((await late).body.toString()).toBe("late");
    expect(await running.ended).toMatchObject({ code: 0 });
  });

  it("exits 1 if MANAGER_PORT is in use, and closes all open listeners", async () => {
    const [port, httpPort] = [await taken(), await freePort()];
    const ports = [
      "--http-port",
      String(httpPort),
      "--admin-port",
      "0",
      "--manager-port",
      String(port),
      "--listen-host",
      "127.0.0.1",
    ];
    const { code, stderr } = await program(["--config", fileWith(oneService(9)), "--manager", ...ports], {
      environment: ADMIN,
    }).ended;
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^edge-gateway: cannot listen on 127\.0\.0\.1:\d+: .*MANAGER_PORT \(--manager-port\)\n$/),
    ]);
    expect((await refused(httpPort)).code).toBe("ECONNREFUSED");
  });
});

describe("edge-gateway demo", () => {
  it("starts the UI, and prints its address and its credentials", async () => {
    const environment = { MANAGER_BACKEND_API_URL: "http://127.0.0.1:9" }; // none of the demo's business
    const demo = program(
      ["demo", "--http-port", "0", "--admin-port", "0", "--manager-port", "0", "--listen-host", "127.0.0.1"],
      { environment },
    );
    const text = await demo.says("Ctrl-C ends the demo.\n", "stdout");
    const [, user, password, url] = /log in as (\S+) with the password (\S+)\n(http:\/\/localhost:\d+)\n/.exec(text)!;
    const Authorization = `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
    expect((await ask(portOf(url), { method: "POST", path: "/api/login", headers: { Authorization } })).status).toBe(
      200,
    );
  });

  it("leaves the UI out with --manager false", async () => {
    const demo = program([
      "demo",
      "--http-port",
      "0",
      "--admin-port",
      "0",
      "--manager",
      "false",
      "--listen-host",
      "127.0.0.1",
    ]);
    expect(await demo.says("Ctrl-C ends the demo.\n", "stdout")).not.toContain("Management UI");
  });
});

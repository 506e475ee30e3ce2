import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request as tlsRequest } from "node:https";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { warnOfNode } from "../../lib/base/nghttp2.ts";
import { logWarnings } from "../../lib/cli/counted.ts";
import { Configuration } from "../../lib/gateway/configuration.ts";
import { GatewayCore } from "../../lib/gateway/gateway.ts";
import { fullGateway } from "../seed/full_gateway.ts";
import { CA, CLIENT, EXPIRED, SERVER, STRANGER } from "../support/certs.ts";
import { collector } from "../support/collector.ts";
import { backend, oneService } from "../support/gateway.ts";
import { freePort, socketOrigin } from "../support/origin.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { fileWith, logLines, program, runningProgram } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { pem } from "./pem.ts";

async function taken(): Promise<number> {
  const other = await socketOrigin((socket) => socket.destroy());
  onTestFinished(() => other.close());
  return other.port;
}

describe("a start", () => {
  it("a start announces in one line of JSON what listens where, what is off and why, and the digest", async () => {
    const running = await runningProgram(oneService(9));
    expect(running.started).toMatchObject({
      level: "info",
      config: running.file,
      digest: expect.stringMatching(/^[0-9a-f]{12}$/) as string,
      services: 1,
      routes: 2,
      upstreams: 1,
      http: [`http://127.0.0.1:${running.port}`],
      https: "off: neither SERVER_CERT_PATH nor global.certificates names a certificate",
      admin: "off: neither ADMIN_USER nor ADMIN_USERS_FILE is set",
      probes: "off: PROBE_PORT is not set",
      manager: "off: --manager (MANAGER=true) starts the management UI",
    });
    expect(running.port).toBeGreaterThan(0);
    expect(running.stdout()).toBe("");
  });

  it(
    "a start answers requests while it looks for warnings, " + "and opens the admin interface once it has them",
    async () => {
      const find = vi.spyOn(Configuration.prototype, "findWarnings");
      onTestFinished(() => void vi.restoreAllMocks());
      const [port, adminPort] = [await freePort(), await freePort()];
      const byAnyHeader = { name: "rate_limit", config: { limit_second: 1, limit_by: "header:X" } };
      const seen: unknown[] = [];
      find.mockImplementationOnce(async function (this: Configuration) {
        seen.push((await ask(port, { path: "/nothing" })).status);
        seen.push(await ask(adminPort, { path: "/gateway" }).catch((error: NodeJS.ErrnoException) => error.code));
        await this.findWarnings();
      });
      const admin = { HTTP_PORT: String(port), ADMIN_PORT: String(adminPort) };
      const { started } = await fullGateway(oneService(9, { plugins: [byAnyHeader] }), admin);
      expect(seen).toEqual([404, "ECONNREFUSED"]);
      expect(GatewayCore.internalsOf(started.gateway).configuration.warnings).toHaveLength(1);
    },
  );

  it("a start shows literal secrets on the admin interface's pages only without ADMIN_REDACT_SECRETS", async () => {
    const plugins = [
      { name: "key_auth", config: { key: "hunter2-plain-key" } },
      { name: "basic_auth", config: { username: "ada", password: "hunter2-password" } },
      {
        name: "http_log",
        config: {
          http_endpoint: "http://127.0.0.1:9/hunter2-path",
          headers: { Authorization: "Bearer hunter2-token" },
        },
      },
    ];
    for (const redact of ["true", "false"]) {
      const running = await runningProgram(oneService(9, { plugins }), [], {
        ADMIN_USER: "anna",
        ADMIN_PASSWORD: "hunter2-admin",
        ADMIN_REDACT_SECRETS: redact,
      });
      const port = Number(new URL(String(running.started.admin)).port);
      const Authorization = `Basic ${Buffer.from("anna:hunter2-admin").toString("base64")}`;
      const login = await ask(port, { method: "POST", path: "/login", headers: { Authorization } });
      const headers = { Cookie: login.headers["set-cookie"]![0]!.split(";")[0]! };
      const texts = await Promise.all(
        ["/gateway", "/gateway/config", "/gateway/status", "/gateway/health", "/gateway/stats"].map(async (path) =>
          (await ask(port, { path, headers })).body.toString(),
        ),
      );
      const question = {
        method: "POST",
        path: "/gateway/explain",
        headers: { ...headers, "Content-Type": "application/json" },
        body: JSON.stringify({ method: "GET", url: "/a/x" }),
      };
      texts.push((await ask(port, question)).body.toString());
      expect(texts.join("\n").match(/hunter2-[a-z-]*/g) ?? []).toHaveLength(redact === "true" ? 0 : 9);
      expect(texts[5]).toContain(redact === "true" ? '"key":"********"' : '"key":"hunter2-plain-key"');
    }
  });

  it("a start announces the same in rows with LOG_FORMAT text", async () => {
    const file = fileWith(oneService(9));
    const running = program([
      "--config",
      file,
      "--http-port",
      "0",
      "--listen-host",
      "127.0.0.1",
      "--log-format",
      "text",
    ]);
    const text = await running.says(/^ {2}reload .*\n/m);
    expect(text).toMatch(
      new RegExp(
        String.raw`^edge-gateway \S+ started\n {2}config .*gw\.json \(1 service, 2 routes, 1 ` +
          String.raw`upstream\), digest [0-9a-f]{12}\n {2}http +http:\/\/127\.0\.0\.1:\d+\n` +
          String.raw` {2}https +off: .*\n {2}admin +off: .*\n {2}probes +off: .*\n {2}manager +off: ` +
          String.raw`.*\n {2}reload .*\n$`,
      ),
    );
  });

  it("a start follows CONFIG_FILE_PATH, HTTP_PORT and LISTEN_HOST; flags win", async () => {
    const file = fileWith(oneService(9));
    const environment = { CONFIG_FILE_PATH: file, HTTP_PORT: String(await taken()), LISTEN_HOST: "127.0.0.1" };
    const running = program(["run", "--http-port", "0"], { environment });
    await running.says(" started");
    expect(logLines(running.stderr())[0]).toMatchObject({ config: file });
  });

  it("a start writes the access log to standard output, one line of JSON a request", async () => {
    const origin = await backend();
    const running = await runningProgram(oneService(origin.port));
    expect((await ask(running.port, { path: "/a/x?q=1" })).status).toBe(200);
    await running.says("\n", "stdout");
    expect(logLines(running.stdout())).toMatchObject([{ path: "/a/x", status: 200, service: "s" }]);
  });

  it("a start sends traces to OTEL_EXPORTER_OTLP_ENDPOINT, the last of them as it ends", async () => {
    const origin = await backend();
    const to = await collector();
    const environment = {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${to.port}`,
      OTEL_SERVICE_NAME: "shop edge",
      OTEL_EXPORTER_OTLP_HEADERS: "key=secret",
    };
    const running = await runningProgram(oneService(origin.port), [], environment);
    expect(running.started).toMatchObject({ traces: `http://127.0.0.1:${to.port}` });
    await ask(running.port, { path: "/a/x" });
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
    expect(to.spans).toHaveLength(2);
    expect(to.exports[0]).toMatchObject({
      url: "/v1/traces",
      resource: { "service.name": "shop edge" },
      headers: { key: "secret" },
    });
    expect(running.stderr()).not.toContain("secret");
  });

  it("a start sends compressed traces to a collector that a CA file verifies", async () => {
    const origin = await backend();
    const to = await collector(SERVER);
    const { ca } = pem({ ca: CA.cert });
    const environment = {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: to.url,
      OTEL_EXPORTER_OTLP_CERTIFICATE: ca!,
      OTEL_EXPORTER_OTLP_COMPRESSION: "gzip",
    };
    const running = await runningProgram(oneService(origin.port), [], environment);
    await ask(running.port, { path: "/a/x" });
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
    expect(to.spans).toHaveLength(2);
    expect(to.exports[0]!.headers["content-encoding"]).toBe("gzip");
  });

  it.each([
    [{ OTEL_EXPORTER_OTLP_COMPRESSION: "zstd" }, 'OTEL_EXPORTER_OTLP_COMPRESSION: expected gzip or none, found "zstd"'],
    [
      { OTEL_EXPORTER_OTLP_CERTIFICATE: "/nowhere/ca.pem" },
      "OTEL_EXPORTER_OTLP_CERTIFICATE: cannot read /nowhere/ca.pem: no such file",
    ],
  ])("a start fails with %j: exit code 2 and the reason", async (wrong, message) => {
    const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: "https://127.0.0.1:4318", ...wrong };
    const { code, stderr } = await program(["--config", fileWith(oneService(9)), "--http-port", "0"], { environment })
      .ended;
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  it("a start fails for an unsupported protocol for traces: exit code 2 and the reason", async () => {
    const environment = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4317", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" };
    const { code, stderr } = await program(["--config", fileWith(oneService(9)), "--http-port", "0"], { environment })
      .ended;
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining(
        'OTEL_EXPORTER_OTLP_PROTOCOL: expected http/json, the only supported protocol, found "grpc"',
      ),
    ]);
  });

  it("a start goes on when the readers of its output end", async () => {
    const origin = await backend();
    const running = await runningProgram(oneService(origin.port));
    running.child.stdout!.destroy();
    running.child.stderr!.destroy();
    for (let i = 0; i < 5; i++) expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
    running.child.kill("SIGHUP");
    for (let i = 0; i < 5; i++) expect((await ask(running.port, { path: "/a/x" })).status).toBe(200);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
  });

  it("a start opens the admin interface when user and password are set", async () => {
    const running = await runningProgram(oneService(9), [], { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" });
    const { port } = new URL(running.started.admin as string);
    const authorization = `Basic ${Buffer.from("anna:secret").toString("base64")}`;
    expect((await ask(Number(port), { method: "POST", path: "/login", headers: { authorization } })).status).toBe(200);
    expect(running.stderr()).not.toContain("secret");
  });

  it("a start gives scrapers the metrics, whatever format they ask for", async () => {
    const running = await runningProgram(oneService(9), [], { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" });
    await ask(running.port, { path: "/a/x" });
    const port = Number(new URL(running.started.admin as string).port);
    const authorization = `Basic ${Buffer.from("anna:secret").toString("base64")}`;
    for (const accept of ["*/*", "application/openmetrics-text"]) {
      const { status, body } = await ask(port, { path: "/metrics", headers: { authorization, accept } });
      const labels = { service: "s", method: "GET", code: "502" };
      expect([status, readMetrics(body.toString()).one("edge_gateway_http_requests_total", labels)]).toEqual([200, 1]);
    }
  });

  it(
    "a start accepts at login the password whose hash hash-password printed, " + "also from ADMIN_PASSWORD_FILE",
    async () => {
      const { stdout: hash } = await program(["hash-password"], { input: "the password\n" }).ended;
      const file = fileWith(hash, "password");
      for (const environment of [{ ADMIN_PASSWORD: hash.trimEnd() }, { ADMIN_PASSWORD_FILE: file }]) {
        const running = await runningProgram(oneService(9), [], { ADMIN_USER: "anna", ...environment });
        const port = Number(new URL(running.started.admin as string).port);
        const login = async (password: string) => {
          const authorization = `Basic ${Buffer.from(`anna:${password}`).toString("base64")}`;
          return (await ask(port, { method: "POST", path: "/login", headers: { authorization } })).status;
        };
        expect(await login("the password")).toBe(200);
        expect(await login(hash.trimEnd())).toBe(401);
      }
    },
  );

  it(
    "a start listens for HTTPS when certificate and key are set, " + "and asks for client certificates with a CA",
    async () => {
      const origin = await backend();
      const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert });
      const environment = {
        SERVER_CERT_PATH: files.cert!,
        SERVER_KEY_PATH: files.key!,
        CA_CERT_PATH: files.ca!,
        CLIENT_AUTH: "require",
      };
      const running = await runningProgram(oneService(origin.port), [], environment);
      const { port } = new URL((running.started.https as string[])[0]!);
      const get = (identity: object) =>
        new Promise<number>((resolve, reject) => {
          const asked = tlsRequest(
            { host: "127.0.0.1", port, path: "/a/x", ca: CA.cert, agent: false, ...identity },
            (response) => {
              response.resume();
              resolve(response.statusCode!);
            },
          );
          asked.on("error", reject).end();
        });
      expect(await get(CLIENT)).toBe(200);
      await expect(get({})).rejects.toThrow();
      await expect(get(STRANGER)).rejects.toThrow();
    },
  );

  it(
    "a start whose configuration is refused creates no plugin, " +
      "and each plugin once where one of them cannot be created",
    async () => {
      const code = `export default ({ schema }) => [
        { name: "noted", schema: schema.object({}), create: () => { console.error("created"); return (next) => next; } \
},
        { name: "broken", schema: schema.object({}), create: () => { throw new Error("out of order"); } },
      ];`;
      const sha256 = createHash("sha256").update(code).digest("hex");
      const refused = async (name: string, paths: readonly string[]) => {
        const plugins = [{ name: "noted" }, { name }];
        const { services } = oneService(9, { plugins, routes: paths.map((path) => ({ path })) });
        const file = fileWith({ global: { plugin_modules: [{ path: fileWith(code, "own.mjs"), sha256 }] }, services });
        const { code: exit, stderr } = await program(["--config", file, "--http-port", "0"]).ended;
        return { exit, created: stderr.match(/^created$/gm)?.length ?? 0, stderr };
      };
      const conflicting = await refused("noted", ["/a", "/{x}", "/{y}"]);
      expect(conflicting).toMatchObject({ exit: 2, created: 0 });
      expect(conflicting.stderr).toMatch(/gw\S*:\d+:\d+ +services\[0\]\.routes\[2\]\.path +route .* both match/);
      const broken = await refused("broken", ["/a"]);
      expect(broken).toMatchObject({ exit: 2, created: 1 });
      expect(broken.stderr).toContain("plugin broken of service");
    },
  );

  it("a start with HTTP_PORT=off listens for HTTPS only, and says so", async () => {
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const origin = await backend();
    const tls = { SERVER_CERT_PATH: files.cert!, SERVER_KEY_PATH: files.key! };
    const running = await runningProgram(oneService(origin.port), [], { ...tls, HTTP_PORT: "off" });
    expect(running.started.http).toBe("off: HTTP_PORT is off");
    const asked = tlsRequest({ host: "127.0.0.1", port: running.port, path: "/a/x", ca: CA.cert, agent: false }).end();
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    response.resume();
    expect(response.statusCode).toBe(200);
  });

  it("a start with HTTP_PORT=off and without a certificate exits with 2: nothing would listen", async () => {
    const ended = await program(["--config", fileWith(JSON.stringify(oneService(9)), "gw.json")], {
      environment: { HTTP_PORT: "off" },
    }).ended;
    expect(ended).toMatchObject({ code: 2, stdout: "" });
    expect(ended.stderr).toContain(
      "HTTP_PORT=off needs a certificate, global.certificates, global.acme or SERVER_CERT_PATH and SERVER_KEY_PATH: " +
        "without one there is no HTTPS",
    );
  });

  it("a start warns of mtls that no client can satisfy", async () => {
    const running = await runningProgram(oneService(9, { plugins: [{ name: "mtls" }] }));
    await running.says(/The plugin mtls refuses every request.*\n/);
    const warned = logLines(running.stderr())
      .filter(({ level }) => level === "warn")
      .map(({ message }) => message);
    expect(warned).toEqual([expect.stringMatching(/^The plugin mtls refuses every request/)]);
  });

  it(
    "a start logs each warning about the configuration, as does a reload, with code, " + "path, example and remedy",
    async () => {
      const withLimit = (path: string) =>
        oneService(9, {
          routes: [{ path, plugins: [{ name: "rate_limit", config: { limit_min: 5, limit_by: "header:X-Tenant" } }] }],
        } as never);
      const running = await runningProgram(withLimit("/x"));
      await running.says(/counts callers by the header X-Tenant.*\n/);
      writeFileSync(running.file, JSON.stringify(withLimit("/y")));
      await running.says(/configuration reloaded[^]*counts callers by the header X-Tenant.*\n/);
      const told = {
        level: "warn",
        code: "limit_by_any_header",
        message: expect.stringMatching(/^The plugin rate_limit of route/),
        remedy: expect.stringMatching(/^Move it behind/),
      };
      expect(logLines(running.stderr()).filter(({ level }) => level === "warn")).toEqual([
        expect.objectContaining({
          ...told,
          path: "services.s.routes./x.plugins.rate_limit",
          example: "GET http://localhost/a/x",
        }),
        expect.objectContaining({
          ...told,
          path: "services.s.routes./y.plugins.rate_limit",
          example: "GET http://localhost/a/y",
        }),
      ]);
    },
  );

  it("a start logs at most 100 warnings, and how many more there are", () => {
    const warned: string[] = [];
    const one = {
      code: "token_for_anyone",
      path: null,
      message: "m",
      example: null,
      remedy: "r",
      service: null,
      route: null,
    } as const;
    logWarnings(
      { ...silentLog, warn: (message) => void warned.push(message) },
      Array.from({ length: 103 }, () => one),
    );
    expect([warned.length, warned.at(-1)]).toEqual([101, "3 more warnings: edge-gateway validate lists all of them"]);
  });

  it("a start does not warn of certificates and mtls that are useful or switched off", async () => {
    const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert });
    const tls = { SERVER_CERT_PATH: files.cert!, SERVER_KEY_PATH: files.key! };
    const certificates = [{ hosts: ["a.example"], cert: files.cert!, key: files.key! }];
    const config = (enabled: boolean) => oneService(9, { plugins: [{ name: "mtls", enabled }] }, { certificates });
    for (const running of [
      await runningProgram(config(true), [], { ...tls, CA_CERT_PATH: files.ca! }),
      await runningProgram(config(false), [], tls),
    ]) {
      running.child.kill("SIGTERM");
      const warned = logLines((await running.ended).stderr).filter(({ level }) => level === "warn");
      expect(warned.filter(({ nghttp2 }) => nghttp2 === undefined)).toEqual([]);
    }
  });

  it(
    "a start warns of a Node whose nghttp2 can be aborted by clients, " + "with HTTPS and with h2c, and of no other",
    async () => {
      const files = pem({ cert: SERVER.cert, key: SERVER.key });
      const tls = { SERVER_CERT_PATH: files.cert!, SERVER_KEY_PATH: files.key! };
      const expected: unknown[] = [];
      const note = { ...silentLog, warn: (message: string) => void expected.push(message) };
      warnOfNode({ global: { http2: true, h2c: true }, services: [], https: [] }, note);
      for (const [h2c, environment] of [
        [true, {}],
        [false, tls],
        [false, {}],
      ] as const) {
        const running = await runningProgram(oneService(9, {}, { h2c }), [], environment);
        running.child.kill("SIGTERM");
        const warned = logLines((await running.ended).stderr).filter(({ nghttp2 }) => nghttp2 !== undefined);
        expect(warned.map(({ message }) => message)).toEqual(h2c || environment === tls ? expected : []);
      }
    },
  );

  it.each([
    ["http", false, []],
    ["h2c", false, [expect.stringMatching(/^HTTP\/2 upstreams can abort this process/)]],
    ["h2", true, [expect.stringMatching(/^HTTP\/2 clients and upstreams can abort this process/)]],
  ])(
    "a start warns of a Node whose nghttp2 can be aborted by upstreams of protocol %s, with h2c for clients: %s",
    (protocol, h2c, expected) => {
      const warned: string[] = [];
      const started = { global: { http2: true, h2c }, services: [{ protocol }], https: [] };
      warnOfNode(started, { ...silentLog, warn: (message) => void warned.push(message) }, "1.61.0");
      expect(warned).toEqual(expected);
    },
  );

  it.each([
    ["1.61.0", true],
    ["1.68.0", true],
    ["0.99.9", true],
    ["1.68.1", false],
    ["1.68.2", false],
    ["1.70.0", false],
    ["2.0.0", false],
    ["1.69.0-DEV", false],
    ["1.68.0-DEV", true],
  ])("a start warns of nghttp2 %s: %s", (nghttp2, isOld) => {
    const warned: string[] = [];
    const started = { global: { http2: true, h2c: false }, services: [], https: ["https://0.0.0.0:8443"] };
    warnOfNode(started, { ...silentLog, warn: (message) => void warned.push(message) }, nghttp2);
    expect(warned).toEqual(
      isOld ? [expect.stringMatching(/older than 1\.68\.1 \(CVE-2026-27135\); run the gateway with Node 24/)] : [],
    );
  });

  it("a start warns of a certificate that has expired, and starts", async () => {
    const files = pem({ cert: EXPIRED.cert, key: EXPIRED.key });
    const running = await runningProgram(oneService(9), [], {
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
    });
    expect(logLines(running.stderr())[0]).toMatchObject({
      level: "warn",
      message: "the server certificate has expired",
      file: files.cert,
    });
  });
});

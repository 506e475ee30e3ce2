import { describe, expect, it } from "vitest";
import { unknownFlags } from "../../lib/cli/arguments.ts";
import { readClientSettings, readHealthcheckSettings, readManagerSettings } from "../../lib/config/command_settings.ts";
import { readSettings } from "../../lib/config/settings.ts";
import type { Settings } from "../../lib/config/settings_types.ts";
import { MANAGER_TABLE, SETTINGS } from "../../lib/config/settings_table.ts";
import {
  areOfStart,
  readPlainSettings,
  START_SETTINGS,
  type Flags,
  type Host,
} from "../../lib/config/start_settings.ts";
import { readTracing } from "../../lib/config/tracing.ts";

function settings(flags: Flags = {}, environment: Record<string, string> = {}, host: Host = {}): Settings {
  const result = readSettings(flags, environment, { readTracing, ...host });
  if (!result.ok) throw new Error(result.issues.join("\n"));
  return result.settings;
}

function issues(flags: Flags, environment: Record<string, string> = {}, host: Host = {}): readonly string[] {
  const result = readSettings(flags, environment, { readTracing, ...host });
  return result.ok ? [] : result.issues;
}

const TLS = { SERVER_CERT_PATH: "c.pem", SERVER_KEY_PATH: "k.pem" };
const FLEET_KEY = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const ETCD_SOURCE = { CONFIG_FILE_PATH: "etcd://127.0.0.1/gw.json" };
const HTTPS_SOURCE = { CONFIG_FILE_PATH: "https://config.example/gw.json" };
const TOKEN = "Zm9vYmFyYmF6cXV4+/=";
const ADMIN = { ADMIN_USER: "admin", ADMIN_PASSWORD: "pw" };

describe("readPlainSettings", () => {
  it.each<[Flags, Record<string, string>]>([
    [{}, {}],
    [
      { config: "a.json", "http-port": "0" },
      { LOG_FORMAT: "json", ADMIN_USER: "" },
    ],
    [
      { "listen-host": "::1,h", "pre-stop-delay-s": "2" },
      { NO_TESTS: "true", HTTPS_PORT: "8008", LOG_LEVEL: "warn", SHUTDOWN_GRACE_S: "0" },
    ],
  ])("reads %j with %j as readSettings does", (flags, environment) => {
    for (const host of [{}, { terminal: true }]) {
      expect(readPlainSettings(flags, environment, host)).toEqual({
        ok: true,
        settings: settings(flags, environment, host),
      });
    }
  });

  it.each<[Flags, Record<string, string>]>([
    [{ "http-port": "x" }, {}],
    [{ config: true }, {}],
    [{ config: "" }, {}],
    [{ "listen-host": "" }, { LOG_LEVEL: "loud", HTTPS_PORT: "65536" }],
    [{}, { CONFIG_FILE_PATH: "-----BEGIN PRIVATE KEY-----" }],
  ])("reports what is wrong with %j and %j as readSettings does", (flags, environment) => {
    expect(issues(flags, environment)).not.toEqual([]);
    expect(readPlainSettings(flags, environment, { issues: ["an unknown flag"] })).toEqual({
      ok: false,
      issues: ["an unknown flag", ...issues(flags, environment)],
    });
  });

  it.each<[Flags, Record<string, string>, boolean]>([
    [{ config: "gw.json", "log-level": "warn" }, { HTTP_PORT: "1", PATH: "/bin", ADMIN_USER: "" }, true],
    [{ "admin-user": "a" }, {}, false],
    [{ confg: "gw.json" }, {}, false],
    [{ "no-tests": "true" }, {}, false],
    [{ "http-port": "off" }, {}, false],
    [{}, { HTTP_PORT: "off" }, false],
    [{}, { WORKERS: "2" }, false],
    ...Object.values(SETTINGS).map(({ variable }): [Flags, Record<string, string>, boolean] => [
      {},
      { [variable]: "x" },
      Object.values(START_SETTINGS).some((row) => row.variable === variable),
    ]),
    [{}, { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" }, false],
  ])("areOfStart says of %j with %j: %j", (flags, environment, is) => {
    expect(areOfStart(flags, environment)).toBe(is);
  });
});

describe("readSettings", () => {
  it("returns the defaults without flags and variables", () => {
    expect(settings()).toEqual({
      configPath: "gw.json",
      source: null,
      acmeFleetKey: null,
      configKeyPath: null,
      tests: "run",
      serverCertPath: null,
      serverKeyPath: null,
      caCertPath: null,
      needHttps: false,
      clientAuth: "none",
      persistence: "dbless",
      httpPort: 8008,
      httpsPort: 8443,
      listenHosts: ["0.0.0.0", "::"],
      admin: null,
      probe: null,
      metricsToken: null,
      metricsExport: null,
      logsExport: null,
      manager: null,
      shutdownGraceS: 30,
      preStopDelayS: 0,
      workers: 1,
      stateDir: null,
      audit: null,
      seal: false,
      logLevel: "info",
      logFormat: "json",
      tracing: null,
    });
  });

  it("reads OpenTelemetry's variables, and reports their errors together with all others", () => {
    expect(settings({}, { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318" }).tracing).toMatchObject({
      url: "http://c:4318/v1/traces",
    });
    const wrong = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc", HTTP_PORT: "x" };
    expect(issues({}, wrong)).toEqual([
      expect.stringContaining("HTTP_PORT"),
      expect.stringContaining("OTEL_EXPORTER_OTLP_PROTOCOL"),
    ]);
  });

  it("prefers flags to the environment, and the environment to defaults", () => {
    const environment = { HTTP_PORT: "1", HTTPS_PORT: "2", CONFIG_FILE_PATH: "env.json" };
    expect(settings({ "http-port": "3", config: "flag.json" }, environment)).toMatchObject({
      httpPort: 3,
      httpsPort: 2,
      configPath: "flag.json",
    });
  });

  it("treats empty variables as unset", () => {
    expect(settings({}, { HTTP_PORT: "", ADMIN_USER: "", ADMIN_PASSWORD: "", SERVER_CERT_PATH: "" })).toMatchObject({
      httpPort: 8008,
      admin: null,
    });
  });

  it("turns the admin interface on with user and password", () => {
    expect(settings({}, ADMIN).admin).toEqual({
      user: "admin",
      password: "pw",
      usersPath: null,
      viewer: null,
      write: false,
      host: "127.0.0.1",
      port: 8081,
      tls: false,
      jwtSecret: null,
      sessionTtlS: 3600,
      cookie: "token",
      redactSecrets: false,
      corsOrigins: [],
      hosts: ["127.0.0.1"],
    });
  });

  it("turns the admin interface on with a file of users, alone or beside others", () => {
    const file = { ADMIN_USERS_FILE: "/run/users.json" };
    const viewer = { ADMIN_VIEWER_USER: "eve", ADMIN_VIEWER_PASSWORD: "v", ADMIN_WRITE: "true", MANAGER: "true" };
    const none = { user: null, password: null, viewer: null, usersPath: "/run/users.json" };
    expect(settings({}, file).admin).toMatchObject(none);
    expect(settings({ "admin-users-file": "/run/users.json" }).admin).toMatchObject(none);
    expect(settings({}, { ...file, ...viewer }).admin).toMatchObject({ ...none, viewer: { user: "eve" }, write: true });
    expect(settings({}, { ...file, ...ADMIN }).admin).toMatchObject({ ...none, user: "admin", password: "pw" });
  });

  it("reads the viewer, with the password or its file, and the settings for changes", () => {
    const readFile = (path: string) => Buffer.from(`from ${path}\n`);
    const viewer = { ...ADMIN, ADMIN_VIEWER_USER: "eve" };
    expect(settings({}, { ...viewer, ADMIN_VIEWER_PASSWORD: "v" }).admin!.viewer).toEqual({
      user: "eve",
      password: "v",
    });
    expect(settings({}, { ...viewer, ADMIN_VIEWER_PASSWORD_FILE: "/run/v" }, { readFile }).admin!.viewer).toEqual({
      user: "eve",
      password: "from /run/v",
    });
    expect(settings({ "admin-write": true }, ADMIN).admin).toMatchObject({ write: true });
  });

  it.each<[Record<string, string>, string]>([
    [{ ADMIN_VIEWER_USER: "eve" }, "ADMIN_VIEWER_USER needs ADMIN_VIEWER_PASSWORD or ADMIN_VIEWER_PASSWORD_FILE"],
    [{ ADMIN_VIEWER_PASSWORD: "v" }, "a password of a viewer is set without ADMIN_VIEWER_USER"],
    [
      { ADMIN_VIEWER_USER: "e:e", ADMIN_VIEWER_PASSWORD: "v" },
      "ADMIN_VIEWER_USER: expected a name without a colon, which ends the name in Basic credentials (RFC 7617 §2)",
    ],
    [
      { ADMIN_VIEWER_USER: "admin", ADMIN_VIEWER_PASSWORD: "v" },
      "ADMIN_VIEWER_USER is the name of the administrator: give the viewer another one",
    ],
    [
      { ADMIN_USER: "\u00e4", ADMIN_VIEWER_USER: "a\u0308", ADMIN_VIEWER_PASSWORD: "v" },
      "ADMIN_VIEWER_USER is the name of the administrator: give the viewer another one",
    ],
    [
      { ADMIN_USER: "", ADMIN_PASSWORD: "", ADMIN_VIEWER_USER: "eve", ADMIN_VIEWER_PASSWORD: "v" },
      "ADMIN_VIEWER_USER needs an admin interface: set ADMIN_USER and ADMIN_PASSWORD",
    ],
    [
      { ADMIN_USER: "", ADMIN_PASSWORD: "", ADMIN_WRITE: "true" },
      "ADMIN_WRITE needs an admin interface: set ADMIN_USER and ADMIN_PASSWORD",
    ],
    [
      { ADMIN_AUDIT_LOG: "/a" },
      "ADMIN_AUDIT_LOG is gone: set AUDIT_LOG, a file that has the same events, and logins, in a chain",
    ],
    [{ ADMIN_WRITE: "yes" }, 'ADMIN_WRITE: expected true or false, found "yes"'],
    [
      { ADMIN_VIEWER_USER: "eve", ADMIN_VIEWER_PASSWORD: "v", ADMIN_VIEWER_PASSWORD_FILE: "/f" },
      "ADMIN_VIEWER_PASSWORD and ADMIN_VIEWER_PASSWORD_FILE are both set: set one of them",
    ],
  ])("refuses %j of a viewer or of changes: %s", (environment, message) => {
    expect(issues({}, { ...ADMIN, ...environment }, { readFile: () => "x" })).toEqual([message]);
  });

  it("reads the admin password from a file, without its final newline", () => {
    const readFile = (path: string) => Buffer.from(`from ${path}\n`);
    expect(settings({}, { ADMIN_USER: "a", ADMIN_PASSWORD_FILE: "/run/pw" }, { readFile }).admin!.password).toBe(
      "from /run/pw",
    );
  });

  it.each<[Record<string, string>, string]>([
    [{ ADMIN_USER: "a" }, "ADMIN_USER is set without ADMIN_PASSWORD or ADMIN_PASSWORD_FILE"],
    [{ ADMIN_PASSWORD: "a" }, "an admin password is set without ADMIN_USER"],
    [{ ...ADMIN, ADMIN_PASSWORD_FILE: "/f" }, "both set"],
    [{ ADMIN_USER: "a", ADMIN_PASSWORD_FILE: "/gone" }, "ADMIN_PASSWORD_FILE: cannot read /gone: no such file"],
    [{ ADMIN_USER: "a", ADMIN_PASSWORD_FILE: "/empty" }, "ADMIN_PASSWORD_FILE: /empty is empty"],
    [{ ADMIN_USER: "a:b", ADMIN_PASSWORD: "c" }, "ADMIN_USER: expected a name without a colon"],
    [{ SERVER_CERT_PATH: "c" }, "SERVER_CERT_PATH needs SERVER_KEY_PATH"],
    [{ SERVER_KEY_PATH: "c" }, "SERVER_KEY_PATH needs SERVER_CERT_PATH"],
    [{ ...TLS, CLIENT_AUTH: "require" }, "CLIENT_AUTH needs CA_CERT_PATH"],
    [
      { ...TLS, CA_CERT_PATH: "c", CLIENT_AUTH: "maybe" },
      'CLIENT_AUTH: expected one of request, require, found "maybe"',
    ],
    [
      { ...ADMIN, ADMIN_COOKIE_NAME: "a b" },
      "ADMIN_COOKIE_NAME: expected the name of a cookie: at most 64 letters, " +
        'digits or ! # $ % & \' * + - . ^ _ ` | ~, found "a b"',
    ],
    [{ ...ADMIN, ADMIN_COOKIE_NAME: "a=b" }, "ADMIN_COOKIE_NAME: expected the name of a cookie"],
    [{ ...ADMIN, ADMIN_COOKIE_NAME: "a".repeat(65) }, "ADMIN_COOKIE_NAME: expected the name of a cookie"],
    [{ ...ADMIN, ADMIN_TLS: "true" }, "ADMIN_TLS needs SERVER_CERT_PATH"],
    [{ PERSISTENCE_CONFIG: "postgres" }, "keeps its configuration in the file only"],
    [{ WORKERS: "0" }, 'WORKERS: expected an integer 1–64, or auto, found "0"'],
    [{ WORKERS: "65" }, 'WORKERS: expected an integer 1–64, or auto, found "65"'],
    [{ WORKERS: "AUTO" }, 'WORKERS: expected an integer 1–64, or auto, found "AUTO"'],
    [{ HTTP_PORT: "80a" }, 'HTTP_PORT: expected an integer 0–65535, or off, found "80a"'],
    [{ HTTP_PORT: "65536" }, "expected an integer 0–65535"],
    [{ HTTP_PORT: "8081", ...ADMIN }, "ADMIN_PORT: port 8081 is already used by HTTP_PORT"],
    [{ PROBE_PORT: "8008" }, "PROBE_PORT: port 8008 is already used by HTTP_PORT"],
    [{ PROBE_PORT: "8081", ...ADMIN }, "PROBE_PORT: port 8081 is already used by ADMIN_PORT"],
    [{ PROBE_PORT: "8443", ...TLS }, "PROBE_PORT: port 8443 is already used by HTTPS_PORT"],
    [{ PROBE_PORT: "5173", MANAGER: "true", ...ADMIN }, "MANAGER_PORT: port 5173 is already used by PROBE_PORT"],
    [{ PROBE_PORT: "-1" }, 'PROBE_PORT: expected an integer 0–65535, found "-1"'],
    [{ PROBE_PORT: "9", PROBE_HOST: "h:9" }, 'PROBE_HOST: expected a host name or IP address, found "h:9"'],
    [{ PROBE_PORT: "9", METRICS_TOKEN: "fifteen-bytes-x" }, "METRICS_TOKEN: expected at least 16 letters, digits or"],
    [
      { PROBE_PORT: "9", METRICS_TOKEN: "sixteen bytes, ok?" },
      "METRICS_TOKEN: expected at least 16 letters, digits or",
    ],
    [{ METRICS_TOKEN: TOKEN }, "METRICS_TOKEN opens nothing: set PROBE_PORT, or ADMIN_USER and ADMIN_PASSWORD"],
    [{ METRICS_TOKEN_FILE: "/token" }, "METRICS_TOKEN opens nothing"],
    [
      { ...ADMIN, METRICS_TOKEN: TOKEN, METRICS_TOKEN_FILE: "/token" },
      "METRICS_TOKEN and METRICS_TOKEN_FILE are both set: set one of them",
    ],
    [{ ...ADMIN, METRICS_TOKEN_FILE: "/gone" }, "METRICS_TOKEN_FILE: cannot read /gone: no such file"],
    [{ ...ADMIN, METRICS_TOKEN_FILE: "/empty" }, "METRICS_TOKEN_FILE: /empty is empty"],
    [{ ...ADMIN, METRICS_TOKEN_FILE: "/short" }, "METRICS_TOKEN_FILE: /short does not contain at least 16 letters"],
    [
      { ACME_FLEET_KEY_FILE: "/key" },
      "ACME_FLEET_KEY_FILE needs a CONFIG_FILE_PATH (--config) that starts with etcds://",
    ],
    [{ ...HTTPS_SOURCE, ACME_FLEET_KEY_FILE: "/key" }, "ACME_FLEET_KEY_FILE needs a CONFIG_FILE_PATH (--config)"],
    [{ ...ETCD_SOURCE, ACME_FLEET_KEY_FILE: "/gone" }, "ACME_FLEET_KEY_FILE: cannot read /gone: no such file"],
    [{ ...ETCD_SOURCE, ACME_FLEET_KEY_FILE: "/empty" }, "ACME_FLEET_KEY_FILE: /empty is empty: openssl rand -hex 32"],
    [
      { ...ETCD_SOURCE, ACME_FLEET_KEY_FILE: "/short" },
      "ACME_FLEET_KEY_FILE: /short does not contain 32 random bytes in hex or base64: openssl rand -hex 32 prints",
    ],
    [{ LISTEN_HOST: "0.0.0.0,a:80" }, "LISTEN_HOST: expected host names or IP addresses"],
    [{ ADMIN_CORS_ORIGIN: "*" }, "ADMIN_CORS_ORIGIN: expected origins"],
    [{ ADMIN_HOSTS: "http://gw.lan" }, "ADMIN_HOSTS: expected host names"],
    [{ ADMIN_HOSTS: "gw.lan:8081" }, "ADMIN_HOSTS: expected host names"],
    [{ ADMIN_HOSTS: "*" }, "ADMIN_HOSTS: expected host names"],
    [{ ADMIN_CORS_ORIGIN: "http://a/path" }, "ADMIN_CORS_ORIGIN: expected origins"],
    [{ LOG_LEVEL: "loud" }, "LOG_LEVEL: expected one of debug, info"],
  ])("refuses %j with one issue", (environment, message) => {
    const readFile = (path: string) => {
      if (path === "/empty") return "\n";
      if (path === "/short") return "secret-short\n";
      if (path === "/token") return TOKEN;
      if (path === "/key") return FLEET_KEY;
      throw Object.assign(new Error(), { code: "ENOENT" });
    };
    const found = issues({}, environment, { readFile });
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(message);
    expect(found[0]).not.toMatch(/fifteen|sixteen|secret-short/); // secrets are never repeated
  });

  it(
    "opens a listener for probes with PROBE_PORT, on loopback by default, " +
      "whose /metrics is known by PROBE_HOST and ADMIN_HOSTS",
    () => {
      expect(settings({}, { PROBE_PORT: "9090" })).toMatchObject({
        probe: { host: "127.0.0.1", port: 9090, hosts: ["127.0.0.1"] },
        metricsToken: null,
        admin: null,
      });
      const named = { PROBE_PORT: "9090", PROBE_HOST: "gw.internal", ADMIN_HOSTS: "gw.lan" };
      expect(settings({}, named).probe).toEqual({ host: "gw.internal", port: 9090, hosts: ["gw.lan", "gw.internal"] });
      expect(settings({ "probe-port": "0", "probe-host": "::" }).probe).toMatchObject({ host: "::", port: 0 });
    },
  );

  it("reads METRICS_TOKEN, or METRICS_TOKEN_FILE without its final newline", () => {
    expect(settings({}, { ...ADMIN, METRICS_TOKEN: TOKEN }).metricsToken).toBe(TOKEN);
    expect(
      settings({ "metrics-token-file": "/t" }, { PROBE_PORT: "9" }, { readFile: () => `${TOKEN}\n` }).metricsToken,
    ).toBe(TOKEN);
  });

  it("reads the key of ACME_FLEET_KEY_FILE without its final newline", () => {
    const readFile = () => `${FLEET_KEY}\n`;
    const { acmeFleetKey } = settings({}, { ...ETCD_SOURCE, ACME_FLEET_KEY_FILE: "/key" }, { readFile });
    expect(acmeFleetKey).toEqual(Buffer.from(FLEET_KEY, "hex"));
    expect(settings({}, ETCD_SOURCE).acmeFleetKey).toBeNull();
  });

  it("reports everything at once, under the name of the flag or variable that was set", () => {
    expect(issues({ "http-port": "x", "admin-port": true }, { HTTPS_PORT: "y" })).toEqual([
      '--http-port: expected an integer 0–65535, or off, found "x"',
      'HTTPS_PORT: expected an integer 0–65535, found "y"',
      "--admin-port needs a value: an integer 0–65535",
    ]);
  });

  it("never repeats a secret", () => {
    expect(issues({}, { ADMIN_JWT_SECRET: "too-short" })).toEqual(["ADMIN_JWT_SECRET: expected at least 32 bytes"]);
  });

  it("counts the bytes of the session key, not its characters", () => {
    expect(settings({}, { ...ADMIN, ADMIN_JWT_SECRET: "ü".repeat(16) }).admin!.jwtSecret).toHaveLength(16);
  });

  it("reports errors of flags before those of settings", () => {
    expect(issues({ "http-prot": "1" }, { HTTP_PORT: "x" }, { issues: ["--http-prot is not a known flag"] })).toEqual([
      "--http-prot is not a known flag",
      'HTTP_PORT: expected an integer 0–65535, or off, found "x"',
    ]);
  });

  it("treats a boolean flag without a value as true", () => {
    expect(settings({ "admin-tls": true }, { ...ADMIN, ...TLS }).admin!.tls).toBe(true);
  });

  it("asks for client certificates once there is a CA", () => {
    expect(settings({}, { ...TLS, CA_CERT_PATH: "ca.pem" }).clientAuth).toBe("request");
    expect(settings({}, { ...TLS, CA_CERT_PATH: "ca.pem", CLIENT_AUTH: "require" }).clientAuth).toBe("require");
  });

  it("reads lists and tolerates space around their commas", () => {
    const environment = {
      LISTEN_HOST: "127.0.0.1, ::1",
      ...ADMIN,
      ADMIN_CORS_ORIGIN: "https://a.example, http://b:81/",
      ADMIN_HOSTS: "gw.lan, gw",
    };
    const read = settings({}, environment);
    expect(read.listenHosts).toEqual(["127.0.0.1", "::1"]);
    expect(read.admin!.corsOrigins).toEqual(["https://a.example", "http://b:81"]);
    expect(read.admin!.hosts).toEqual(["gw.lan", "gw", "127.0.0.1"]);
  });

  it("logs text on a terminal by default", () => {
    expect(settings({}, {}, { terminal: true }).logFormat).toBe("text");
    expect(settings({}, { LOG_FORMAT: "json" }, { terminal: true }).logFormat).toBe("json");
  });

  it("lets several listeners take any free port", () => {
    expect(settings({ "http-port": "0", "admin-port": "0" }, ADMIN)).toMatchObject({ httpPort: 0, admin: { port: 0 } });
  });
});

describe("SETTINGS", () => {
  it("SETTINGS has defaults that its own parsers accept, and no two flags alike", () => {
    const rows = Object.values(SETTINGS);
    for (const row of rows) expect(row.fallback === null || row.parse(row.fallback) !== null, row.variable).toBe(true);
    const flags = rows.flatMap((row) => row.flag ?? []);
    expect(new Set(flags).size).toBe(flags.length);
    expect(flags).toContain("config");
  });
});

describe("readClientSettings", () => {
  const read = (flags: Flags = {}, environment: Record<string, string> = {}, host: Host = {}) => {
    const result = readClientSettings(flags, environment, host);
    return result.ok ? result.settings : result.issues;
  };

  it.each<[string, Flags, Record<string, string>, string]>([
    ["the defaults of the settings", {}, {}, "http://127.0.0.1:8081"],
    [
      "port and scheme of the settings",
      {},
      { ADMIN_PORT: "9000", ADMIN_TLS: "true", ADMIN_HOST: "10.0.0.1" },
      "https://10.0.0.1:9000",
    ],
    ["this machine where it listens on all addresses", {}, { ADMIN_HOST: "0.0.0.0" }, "http://127.0.0.1:8081"],
    ["this machine by IPv6", {}, { ADMIN_HOST: "::" }, "http://[::1]:8081"],
    ["ADMIN_URL before those", {}, { ADMIN_URL: "https://gw.example/", ADMIN_PORT: "0" }, "https://gw.example"],
    [
      "the flag before ADMIN_URL",
      { "admin-url": "http://localhost:1" },
      { ADMIN_URL: "https://gw.example" },
      "http://localhost:1",
    ],
  ])("finds the admin interface by %s", (_what, flags, environment, url) => {
    expect(read(flags, { ...ADMIN, ...environment })).toEqual({ url, user: "admin", password: "pw", caPath: null });
  });

  it("accepts --ca and a password file, and ignores settings of the gateway, wrong ones too", () => {
    const environment = { ADMIN_USER: "admin", HTTP_PORT: "x", SERVER_CERT_PATH: "c.pem" };
    expect(
      read({ ca: "ca.pem", "admin-password-file": "f" }, environment, { readFile: () => "secret\n" }),
    ).toMatchObject({ password: "secret", caPath: "ca.pem" });
  });

  it("prefers the file named by the flag to the gateway's own ADMIN_PASSWORD, which may be a hash", () => {
    const environment = { ...ADMIN, ADMIN_PASSWORD: "scrypt$1$2$3$4$5" };
    expect(read({ "admin-password-file": "f" }, environment, { readFile: () => "secret" })).toMatchObject({
      password: "secret",
    });
    expect(read({}, environment)).toEqual([expect.stringContaining("is a hash, which cannot log in")]);
    expect(
      read({}, { ADMIN_USER: "a", ADMIN_PASSWORD_FILE: "f" }, { readFile: () => environment.ADMIN_PASSWORD }),
    ).toHaveLength(1);
  });

  it.each<[string, Flags, Record<string, string>, string[]]>([
    [
      "no user and no password",
      {},
      {},
      ["ADMIN_USER is not set", "neither ADMIN_PASSWORD nor ADMIN_PASSWORD_FILE is set"],
    ],
    ["a URL with a path", { "admin-url": "http://h/x" }, ADMIN, ["--admin-url: expected a URL"]],
    ["a URL with a password in it", { "admin-url": "http://a:b@h" }, ADMIN, ["--admin-url: expected a URL"]],
    ["any free port", {}, { ...ADMIN, ADMIN_PORT: "0" }, ["ADMIN_PORT is 0"]],
  ])("says what is wrong with %s", (_what, flags, environment, told) => {
    const issues = read(flags, environment) as readonly string[];
    expect(issues).toHaveLength(told.length);
    told.forEach((text, i) => expect(issues[i]).toContain(text));
  });
});

describe("the management UI", () => {
  const MANAGER = { MANAGER: "true" };
  const OFF = {
    port: 5173,
    host: "127.0.0.1",
    tls: false,
    backendUrl: null,
    backendCaPath: null,
    basePath: "/",
    traceUrl: null,
    hosts: ["127.0.0.1"],
  };

  it("the management UI stays off by default, and uses the admin interface of the same process", () => {
    expect(settings({}, ADMIN).manager).toBeNull();
    expect(settings({ manager: true }, ADMIN).manager).toEqual(OFF);
    expect(settings({}, { ...ADMIN, ...MANAGER, MANAGER_PORT: "0", MANAGER_HOST: "::" }).manager).toEqual({
      ...OFF,
      port: 0,
      host: "::",
      hosts: ["::"],
    });
  });

  it("the management UI can use the admin interface of another gateway, and then needs no other", () => {
    const environment = {
      ...MANAGER,
      ...TLS,
      MANAGER_TLS: "1",
      MANAGER_BACKEND_API_URL: "https://gw.example/admin/",
      MANAGER_BACKEND_CA_PATH: "ca.pem",
    };
    expect(settings({}, environment).manager).toEqual({
      ...OFF,
      tls: true,
      backendUrl: "https://gw.example/admin",
      backendCaPath: "ca.pem",
    });
  });

  it.each<[string, Flags, Record<string, string>, string]>([
    [
      "no admin interface",
      { manager: true },
      {},
      "MANAGER needs an admin interface to talk to: set ADMIN_USER and ADMIN_PASSWORD, or name",
    ],
    [
      "the port of another listener",
      {},
      { ...ADMIN, ...MANAGER, MANAGER_PORT: "8081" },
      "MANAGER_PORT: port 8081 is already used by ADMIN_PORT",
    ],
    [
      "TLS without a certificate",
      {},
      { ...ADMIN, ...MANAGER, MANAGER_TLS: "true" },
      "MANAGER_TLS needs SERVER_CERT_PATH and SERVER_KEY_PATH",
    ],
    [
      "a CA for what has no certificate",
      {},
      { ...ADMIN, ...MANAGER, MANAGER_BACKEND_CA_PATH: "c" },
      "MANAGER_BACKEND_CA_PATH needs a MANAGER_BACKEND_API_URL that starts with https://",
    ],
    ["a value that is none", { manager: "yes" }, ADMIN, '--manager: expected true or false, found "yes"'],
  ])("%s is an error", (_what, flags, environment, message) => {
    const found = issues(flags, environment);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(message);
  });

  it.each([
    "gw.example",
    "ftp://h",
    "http:h",
    "http://",
    "http://a:b@h",
    "http://u@h",
    "http://h/?x",
    "http://h/#x",
    "http://h/a b",
    "https://h:70000",
    "javascript:x",
  ])("MANAGER_BACKEND_API_URL cannot be %s", (url) => {
    expect(issues({ "manager-backend-api-url": url }, { ...ADMIN, ...MANAGER })).toEqual([
      expect.stringContaining("--manager-backend-api-url: expected an http or https URL"),
    ]);
  });

  it.each([
    "https://tempo.example/trace/{trace_id}",
    "HTTP://[::1]:16686/trace/{trace_id}?{trace_id}#{trace_id}",
    'https://g/explore?left={"q":"{trace_id}"}&a=<b>',
  ])("MANAGER_TRACE_URL can be %s, also for the UI by itself", (traceUrl) => {
    expect(settings({ "manager-trace-url": traceUrl }, { ...ADMIN, ...MANAGER }).manager).toEqual({ ...OFF, traceUrl });
    expect(readManagerSettings({}, { MANAGER_TRACE_URL: traceUrl })).toMatchObject({
      ok: true,
      settings: { manager: { traceUrl } },
    });
  });

  it.each([
    ...[
      "https://tempo.example/trace/",
      "https://tempo.example/{trace_ID}",
      "{trace_id}",
      "tempo.example/{trace_id}",
      "//tempo.example/{trace_id}",
      "javascript:alert('{trace_id}')",
    ],
    ...[
      "javascript://x/%0aalert(1)//{trace_id}",
      "data:text/html,{trace_id}",
      "ftp://h/{trace_id}",
      "https://{trace_id}",
      "https://{trace_id}.example/",
      "https:///{trace_id}",
    ],
    ...[
      "https://h:70000/{trace_id}",
      "https://user:pass@h/{trace_id}",
      "https://h\\@evil/{trace_id}",
      " https://h/{trace_id}",
      "https://h/ {trace_id}",
    ],
    ...[
      "https://h/{trace_id}\n",
      "https://h/\t{trace_id}",
      "https://h/\u0000{trace_id}",
      "https://h/\u202e{trace_id}",
      "https://h/ä{trace_id}",
    ],
  ])("MANAGER_TRACE_URL cannot be %j", (url) => {
    const expected =
      "--manager-trace-url: expected an http or https URL with {trace_id} in its path, query or fragment, " +
      "such as https://traces.example.com/trace/{trace_id},";
    expect(issues({ "manager-trace-url": url }, { ...ADMIN, ...MANAGER })).toEqual([expect.stringContaining(expected)]);
  });

  it.each([
    ["/", "/"],
    ["/edge", "/edge/"],
    ["/edge/", "/edge/"],
    ["/ops/Edge_1/v1.2~x-y", "/ops/Edge_1/v1.2~x-y/"],
    ["/..a/b../.c", "/..a/b../.c/"],
  ])("MANAGER_BASE_PATH can be %s, also for the UI by itself", (written, basePath) => {
    expect(settings({ "manager-base-path": written }, { ...ADMIN, ...MANAGER }).manager).toEqual({ ...OFF, basePath });
    expect(readManagerSettings({}, { MANAGER_BASE_PATH: written })).toMatchObject({
      ok: true,
      settings: { manager: { basePath } },
    });
  });

  it.each([
    ...["edge", "edge/", "//", "//edge", "/edge//", "/a//b", "/./", "/a/..", "/../a", "/a/./b/", "https://h/edge/"],
    ...["/edge?x", "/edge#x", "/a b", "/a%2Fb", "/ä", "/a;b", "/a\\b", '/"', "/<b>", "/edge/\n", "/a\u0000"],
  ])("MANAGER_BASE_PATH cannot be %j", (path) => {
    expect(issues({ "manager-base-path": path }, { ...ADMIN, ...MANAGER })).toEqual([
      expect.stringContaining("--manager-base-path: expected a path such as /edge/, of letters, digits,"),
    ]);
  });

  it("the management UI does not repeat credentials in an address", () => {
    const [message] = issues(
      {},
      { ...ADMIN, ...MANAGER, MANAGER_BACKEND_API_URL: "https://anna:p/w@rd@gw.example:8081" },
    );
    expect(message).toMatch(/found "https:\/\/…@gw\.example:8081"$/);
  });

  it("the management UI ignores its settings while it is off", () => {
    expect(
      settings({}, { MANAGER_PORT: "8008", MANAGER_TLS: "true", MANAGER_BACKEND_CA_PATH: "x" }).manager,
    ).toBeNull();
  });

  const alone = (flags: Flags = {}, environment: Record<string, string> = {}, host: Host = {}) => {
    const result = readManagerSettings(flags, environment, host);
    return result.ok ? result.settings : result.issues;
  };

  it(
    "the management UI needs no settings as its own process, " +
      "and ignores a gateway's settings in the environment, wrong ones too",
    () => {
      const manager = { ...OFF, backendUrl: "http://127.0.0.1:8081" };
      const rest = { serverCertPath: null, serverKeyPath: null, logLevel: "info", logFormat: "json" };
      expect(alone({}, { HTTP_PORT: "x", ADMIN_USER: "a", CA_CERT_PATH: "c" })).toEqual({ manager, ...rest });
      expect(alone({ "manager-port": "1", "log-level": "warn" }, TLS, { terminal: true })).toEqual({
        manager: { ...manager, port: 1 },
        serverCertPath: "c.pem",
        serverKeyPath: "k.pem",
        logLevel: "warn",
        logFormat: "text",
      });
    },
  );

  it("the management UI reports every error and unknown flag at once as its own process", () => {
    const flags = {
      "manager-tls": true,
      "http-port": "1",
      "manager-prot": "1",
      "manager-backend-ca-path": "x",
      "manager-host": "a b",
    } as const;
    expect(
      alone(flags, { SERVER_KEY_PATH: "k.pem" }, { issues: unknownFlags({ flags }, { settings: MANAGER_TABLE }) }),
    ).toEqual([
      "--http-port is not a flag of this command: it is for starting a gateway",
      "--manager-prot is not a known flag; did you mean --manager-port?",
      '--manager-host: expected a host name or IP address, found "a b"',
      "SERVER_KEY_PATH needs SERVER_CERT_PATH",
      "MANAGER_BACKEND_CA_PATH needs a MANAGER_BACKEND_API_URL that starts with https://",
    ]);
  });
});

describe("readHealthcheckSettings", () => {
  it.each<[Record<string, string>, string]>([
    [{ PROBE_PORT: "9090" }, "http://127.0.0.1:9090"],
    [{ PROBE_PORT: "9090", PROBE_HOST: "0.0.0.0", ...ADMIN }, "http://127.0.0.1:9090"],
    [{ PROBE_PORT: "9090", PROBE_HOST: "::" }, "http://[::1]:9090"],
    [{ PROBE_PORT: "9090", PROBE_HOST: "10.0.0.5", ADMIN_TLS: "true" }, "http://10.0.0.5:9090"],
    [{ ADMIN_USER: "a" }, "http://127.0.0.1:8081"],
    [{ ADMIN_USER: "a", ADMIN_PORT: "9081", ADMIN_HOST: "::", HTTP_PORT: "of another command" }, "http://[::1]:9081"],
  ])("with %j the gateway is at %s", (environment, url) => {
    expect(readHealthcheckSettings({}, environment)).toEqual({ ok: true, settings: { url } });
  });

  it.each<[Record<string, string>, string]>([
    [{}, "there is nothing to ask: set PROBE_PORT, as for the gateway itself"],
    [{ PROBE_PORT: "0" }, "PROBE_PORT is 0, any free port: set it to the port in use"],
    [{ ADMIN_USER: "a", ADMIN_PORT: "0" }, "ADMIN_PORT is 0, any free port: set it to the port in use"],
    [{ PROBE_PORT: "x" }, 'PROBE_PORT: expected an integer 0–65535, found "x"'],
    [
      { ADMIN_USER: "a", ADMIN_TLS: "true" },
      "the admin interface uses HTTPS, and its certificate need not name this machine: set PROBE_PORT",
    ],
  ])("%j is refused with one issue", (environment, issue) => {
    expect(readHealthcheckSettings({}, environment)).toEqual({ ok: false, issues: [issue] });
  });
});

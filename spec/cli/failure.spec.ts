import { describe, expect, it, onTestFinished } from "vitest";
import { SERVER, STRANGER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { freePort, socketOrigin } from "../support/origin.ts";
import { fileWith, fileWithKind, program } from "../support/process.ts";
import { connect } from "../support/raw_client.ts";
import { pem } from "./pem.ts";

/** Runs to its end: a start that fails. */
const failed = (words: readonly string[], environment: Record<string, string> = {}, config: unknown = oneService(9)) =>
  program(
    [
      "--config",
      fileWith(config),
      "--listen-host",
      "127.0.0.1",
      "--http-port",
      "0",
      "--https-port",
      "0",
      "--admin-port",
      "0",
      ...words,
    ],
    { environment },
  ).ended;

async function taken(): Promise<number> {
  const other = await socketOrigin((socket) => socket.destroy());
  onTestFinished(() => other.close());
  return other.port;
}

describe("a start that fails", () => {
  it("a start that fails exits 2 for a wrong configuration, reports all errors, and never listens", async () => {
    const { code, stdout, stderr } = await failed([], {}, { services: [{ name: "s" }] });
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/gw\.json:1:14 .*base_path/);
    expect(stderr).toContain("nothing was started.");
    expect(stderr).not.toContain(" started\n");
  });

  it("a start that fails exits 2 without a configuration file, and names the file", async () => {
    const { code, stderr } = await program(["--config", "/nowhere/gw.json"]).ended;
    expect(code).toBe(2);
    expect(stderr).toContain("cannot read /nowhere/gw.json: ");
  });

  it.each([
    [
      "dials throw",
      'dials: { why: "own", urls: () => { throw new TypeError("no URL"); } }, create: () => (next) => next',
      'plugin own of service "s" cannot be created: urls of its "dials" has thrown: no URL',
    ],
    [
      "dials give a text",
      'dials: { why: "own", urls: () => "http://store.example" }, create: () => (next) => next',
      'plugin own of service "s" cannot be created: urls of its "dials" has to return a list of URLs, ' +
        "each with a host, and a port unless it is http, https, redis or rediss",
    ],
    [
      "create throws",
      'create: () => { throw new TypeError("no store"); }',
      'plugin own of service "s" cannot be created: no store',
    ],
  ])(
    "a start that fails exits 2 if %s, with the place of the plugin and what is wrong",
    async (_what, members, message) => {
      const file = fileWithKind(members);
      expect(await program(["--config", file, "--http-port", "0"]).ended).toMatchObject({
        code: 2,
        stdout: "",
        stderr: expect.stringMatching(/gw\.json:1:\d+  services\[0\]\.plugins\[0\]  /),
      });
      expect((await program(["--config", file, "--http-port", "0"]).ended).stderr).toContain(message);
    },
  );

  it("a start that fails exits 1 if HTTP_PORT is in use, and names port and setting", async () => {
    const port = await taken();
    const environment = { HTTP_PORT: String(port), LISTEN_HOST: "127.0.0.1" };
    const { code, stderr } = await program(["--config", fileWith(oneService(9))], { environment }).ended;
    expect(code).toBe(1);
    expect(stderr).toBe(
      `edge-gateway: cannot listen on 127.0.0.1:${port}: the port is already in use; ` +
        `stop the program that listens there, or choose another port with HTTP_PORT (--http-port)\n`,
    );
  });

  it("a start that fails exits 1 if ADMIN_PORT is in use, and closes the open HTTP listener", async () => {
    const [adminPort, httpPort] = [await taken(), await freePort()];
    const config = fileWith(oneService(9));
    const environment = {
      HTTP_PORT: String(httpPort),
      ADMIN_PORT: String(adminPort),
      ADMIN_USER: "a",
      ADMIN_PASSWORD: "b",
      LISTEN_HOST: "127.0.0.1",
    };
    const { code, stderr } = await program(["--config", config], { environment }).ended;
    expect(code).toBe(1);
    expect(stderr).toContain(`cannot listen on 127.0.0.1:${adminPort}`);
    expect(stderr).toContain("ADMIN_PORT (--admin-port)");
    await expect(connect(httpPort)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  it("a start that fails exits 1 if HTTPS_PORT is in use, and names it", async () => {
    const port = await taken();
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const environment = {
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
      HTTP_PORT: "0",
      HTTPS_PORT: String(port),
      LISTEN_HOST: "127.0.0.1",
    };
    const { code, stderr } = await program(["--config", fileWith(oneService(9))], { environment }).ended;
    expect(code).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${port}: the port is already in use`);
    expect(stderr).toContain("HTTPS_PORT (--https-port)");
  });

  it("a start that fails exits 1 if LISTEN_HOST is not an address of this machine, and names it", async () => {
    const { code, stderr } = await program([
      "--config",
      fileWith(oneService(9)),
      "--http-port",
      "0",
      "--listen-host",
      "192.0.2.77",
    ]).ended;
    expect(code).toBe(1);
    expect(stderr).toContain("LISTEN_HOST (--listen-host)");
  });

  const garbage = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
  const cases: [string, Record<string, string>, readonly string[]][] = [
    [
      "a certificate that is garbage",
      { cert: garbage, key: SERVER.key },
      ["cert.pem (SERVER_CERT_PATH) is not a certificate in PEM form"],
    ],
    [
      "a key that is garbage",
      { cert: SERVER.cert, key: "none" },
      ["key.pem (SERVER_KEY_PATH) is not a private key in PEM form"],
    ],
    [
      "a key of another certificate",
      { cert: SERVER.cert, key: STRANGER.key },
      ["key.pem (SERVER_KEY_PATH) does not belong to the certificate", "cert.pem (SERVER_CERT_PATH)"],
    ],
    [
      "a CA that is garbage",
      { cert: SERVER.cert, key: SERVER.key, ca: "none" },
      ["ca.pem (CA_CERT_PATH) is not a certificate in PEM form"],
    ],
    [
      "a chain whose second certificate is garbage",
      { cert: SERVER.cert + garbage, key: SERVER.key },
      ["cert.pem (SERVER_CERT_PATH) is not a certificate in PEM form (number 2 of 2 in it)"],
    ],
  ];
  it.each(cases)("a start that fails exits 2 for %s, and names the file and the reason", async (_what, texts, told) => {
    const files = pem(texts);
    const environment: Record<string, string> = { SERVER_CERT_PATH: files.cert!, SERVER_KEY_PATH: files.key! };
    if (files.ca !== undefined) environment.CA_CERT_PATH = files.ca;
    const { code, stderr } = await failed([], environment);
    expect(code).toBe(2);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    for (const text of told) expect(stderr).toContain(text);
  });

  it.each([
    [
      "is not there",
      "SERVER_CERT_PATH",
      "/nowhere/cert.pem",
      "cannot read the server certificate /nowhere/cert.pem (SERVER_CERT_PATH): no such file",
    ],
    ["is a directory", "SERVER_KEY_PATH", "/tmp", "cannot read the server key /tmp (SERVER_KEY_PATH): it is a folder"],
  ])("a start that fails exits 2 if a file %s, and names the file", async (_what, setting, path, message) => {
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const { code, stderr } = await failed([], {
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
      [setting]: path,
    });
    expect([code, stderr]).toEqual([2, `edge-gateway: ${message}\n`]);
  });

  it("a start that fails exits 2 if the admin password is a malformed hash", async () => {
    const { code, stderr } = await failed([], { ADMIN_USER: "a", ADMIN_PASSWORD: "scrypt$1$2$3" });
    expect(code).toBe(2);
    expect(stderr).toContain("a scrypt hash has six fields");
  });

  it(
    "a start that fails reads its certificate before anything listens: " +
      "a wrong certificate and a port in use exit 2",
    async () => {
      const files = pem({ cert: garbage, key: SERVER.key });
      const environment = {
        SERVER_CERT_PATH: files.cert!,
        SERVER_KEY_PATH: files.key!,
        HTTP_PORT: String(await taken()),
        LISTEN_HOST: "127.0.0.1",
      };
      expect((await program(["--config", fileWith(oneService(9))], { environment }).ended).code).toBe(2);
    },
  );
});

import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import net, { type AddressInfo } from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { CA, CLIENT, EXPIRED, SERVER, STRANGER } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { RENEWED, SHOP, WILDCARD } from "../support/more_certs.ts";
import { fileWith, logLines, program, runningFile, runningProgram, textOf } from "../support/process.ts";
import type { RunningProgram } from "../support/process.ts";
import { pem } from "./pem.ts";

type KeyPair = { readonly cert: string; readonly key: string };

/** An entry of `global.certificates`, and its files. */
function certificate({ cert, key }: KeyPair, ...hosts: string[]) {
  const files = pem({ cert, key });
  return { hosts, cert: files.cert!, key: files.key! };
}
const local = () => certificate(SERVER, "localhost");
const shop = () => certificate(SHOP, "shop.example.com");
const wildcard = () => certificate(WILDCARD, "*.example.com");

const withCertificates = (certificates: readonly object[], port = 9, global: object = {}) =>
  oneService(port, {}, { certificates, ...global } as never);
const httpsPort = ({ started }: RunningProgram) => Number(new URL((started.https as string[])[0]!).port);

/** What a client without the name of a host, or with it, gets: the CN of the certificate, or OpenSSL's error code. */
function shown(port: number, servername: string, options: tls.ConnectionOptions = {}): Promise<string> {
  return new Promise((resolve) => {
    const socket = tls.connect({ host: "127.0.0.1", port, servername, rejectUnauthorized: false, ...options }, () => {
      resolve(socket.getPeerX509Certificate()!.subject);
      socket.destroy();
    });
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code!));
  });
}

function statusOf(port: number, options: tls.ConnectionOptions = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request(
      { host: "127.0.0.1", port, servername: "localhost", path: "/a/x", ca: CA.cert, agent: false, ...options },
      (response: IncomingMessage) => resolve(response.resume().statusCode!),
    );
    asked.on("error", reject).end();
  });
}

const refusedStart = async (config: unknown, environment: Record<string, string> = {}, words: string[] = []) => {
  const free = ["--http-port", "0", "--listen-host", "127.0.0.1", ...words];
  const { code, stderr } = await program(["--config", fileWith(config), ...free], { environment }).ended;
  return [code, stderr] as const;
};

describe("global.certificates without SERVER_CERT_PATH", () => {
  it("open the HTTPS port: HTTP/1.1 and HTTP/2 are served, and the start says where", async () => {
    const origin = await backend();
    const running = await runningProgram(withCertificates([local()], origin.port));
    expect(running.started.https).toEqual([expect.stringMatching(/^https:\/\/127\.0\.0\.1:\d+$/)]);
    const port = httpsPort(running);
    expect(await statusOf(port)).toBe(200);
    const socket = tls.connect({
      host: "127.0.0.1",
      port,
      servername: "localhost",
      ca: CA.cert,
      ALPNProtocols: ["h2"],
    });
    onTestFinished(() => void socket.destroy());
    await once(socket, "secureConnect");
    expect(socket.alpnProtocol).toBe("h2");
  });

  it("each host gets its certificate, a wildcard stands for one label, and no warning calls them unused", async () => {
    const running = await runningProgram(withCertificates([local(), shop(), wildcard()]));
    const port = httpsPort(running);
    expect(await shown(port, "localhost")).toBe("CN=localhost");
    expect(await shown(port, "SHOP.example.com")).toBe("CN=shop.example.com");
    expect(await shown(port, "pay.example.com")).toBe("CN=*.example.com");
    expect(running.stderr()).not.toContain("global.certificates are not used");
  });

  it.each(["TLSv1.2", "TLSv1.3"] as const)(
    "with %s, a handshake for a host that no certificate is for ends with the alert unrecognized_name, one without a " +
      "host with handshake_failure, and both are logged",
    async (version) => {
      const running = await runningProgram(withCertificates([shop(), wildcard()]), ["--log-level", "debug"]);
      const only = { minVersion: version, maxVersion: version };
      for (const name of ["a.b.example.com", "example.com", "other.test", 'x"y'])
        expect([name, await shown(httpsPort(running), name, only)]).toEqual([name, "ERR_SSL_TLSV1_UNRECOGNIZED_NAME"]);
      expect(await shown(httpsPort(running), "", only)).toBe("ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE");
      expect(await shown(httpsPort(running), "shop.example.com", only)).toBe("CN=shop.example.com");
      await running.says(/no shared cipher|no suitable signature/);
      const failed = () => logLines(running.stderr()).filter(({ message }) => message === "TLS handshake failed");
      expect(failed().map(({ error }) => error)).toEqual([
        'no certificate is for "a.b.example.com"',
        'no certificate is for "example.com"',
        'no certificate is for "other.test"',
        'no certificate is for "x\\"y"',
        expect.stringMatching(/no shared cipher|no suitable signature/),
      ]);
    },
  );

  it("one that has expired is used, with a warning", async () => {
    const running = await runningProgram(withCertificates([certificate(EXPIRED, "localhost")]));
    expect(await shown(httpsPort(running), "localhost")).toMatch(/^CN=/);
    expect(logLines(running.stderr())).toContainEqual(
      expect.objectContaining({ level: "warn", message: "the certificate for localhost has expired" }),
    );
  });

  it("a missing file, and a key of another certificate, end the start with exit code 2 and their place", async () => {
    const missing = { ...local(), cert: "/nowhere/cert.pem" };
    expect(await refusedStart(withCertificates([missing]))).toEqual([
      2,
      expect.stringMatching(/gw\.json:1:\d+ +global\.certificates\[0\]\.cert +cannot read \/nowhere\/cert\.pem/),
    ]);
    expect(await refusedStart(withCertificates([certificate({ ...SERVER, key: STRANGER.key }, "localhost")]))).toEqual([
      2,
      expect.stringMatching(
        /gw\.json:1:\d+ +global\.certificates\[0\]\.key .*key\.pem: the key does not belong to the certificate/,
      ),
    ]);
  });

  it("CA_CERT_PATH and CLIENT_AUTH hold for their hosts, and a new CA is used without a restart", async () => {
    const origin = await backend();
    const { ca } = pem({ ca: STRANGER.cert });
    const environment = { CA_CERT_PATH: ca!, CLIENT_AUTH: "require" };
    const running = await runningProgram(withCertificates([local()], origin.port), [], environment);
    const port = httpsPort(running);
    await expect(statusOf(port, CLIENT)).rejects.toThrow();
    writeFileSync(`${ca}.new`, CA.cert);
    renameSync(`${ca}.new`, ca!);
    await running.says("server certificate, key and CA reloaded");
    expect(await statusOf(port, CLIENT)).toBe(200);
    await expect(statusOf(port)).rejects.toThrow();
  });

  it("HTTP_PORT=off leaves their port alone, and https_redirect leads to it", async () => {
    const origin = await backend();
    const alone = await runningProgram(withCertificates([local()], origin.port), [], { HTTP_PORT: "off" });
    expect(alone.started.http).toBe("off: HTTP_PORT is off");
    expect(await statusOf(alone.port)).toBe(200);
    const redirecting = await runningProgram(withCertificates([local()], origin.port, { https_redirect: {} }));
    const answer = await fetch(`http://127.0.0.1:${redirecting.port}/a/x`, { redirect: "manual" });
    expect([answer.status, answer.headers.get("location")]).toEqual([308, "https://127.0.0.1/a/x"]);
  });

  it("the port is HTTPS_PORT: one that is taken, or that another setting names, ends the start", async () => {
    const other = net.createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    onTestFinished(() => void other.close());
    const { port } = other.address() as AddressInfo;
    expect(await refusedStart(withCertificates([local()]), {}, ["--https-port", String(port)])).toEqual([
      1,
      expect.stringContaining(
        `cannot listen on 127.0.0.1:${port}: the port is already in use; stop the program that ` +
          `listens there, or choose another port with HTTPS_PORT (--https-port)`,
      ),
    ]);
    const clash = (config: unknown) => program(["--config", fileWith(config), "--http-port", "8443"]).ended;
    expect(await clash(withCertificates([local()]))).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("HTTPS_PORT: port 8443 is already used by HTTP_PORT"),
    });
  });

  it("the admin interface has no certificate by them: ADMIN_TLS without SERVER_CERT_PATH ends the start", async () => {
    const environment = { ADMIN_USER: "a", ADMIN_PASSWORD: "a long password", ADMIN_TLS: "true" };
    expect(await refusedStart(withCertificates([local()]), environment)).toEqual([
      2,
      expect.stringContaining(
        "ADMIN_TLS needs SERVER_CERT_PATH and SERVER_KEY_PATH: global.certificates are for traffic alone",
      ),
    ]);
  });

  it.each([
    ["HTTP_PORT", "off"],
    ["CA_CERT_PATH", "ca.pem"],
  ])("%s=%s is refused where neither they nor settings name a certificate", async (name, value) => {
    expect(await program(["--config", fileWith(oneService(9))], { environment: { [name]: value } }).ended).toEqual(
      expect.objectContaining({
        code: 2,
        stderr: expect.stringMatching(
          new RegExp(
            `${name}(=off)? needs a certificate, global\\.certificates, global\\.acme or ` +
              "SERVER_CERT_PATH and SERVER_KEY_PATH",
          ),
        ),
      }),
    );
  });
});

describe("a reload of global.certificates", () => {
  it("adds a host, and replaces and removes another one, where the HTTPS port is open", async () => {
    const running = await runningProgram(withCertificates([local(), shop()]));
    const port = httpsPort(running);
    const renewed = certificate(RENEWED, "localhost");
    writeFileSync(running.file, textOf(withCertificates([renewed, wildcard()])));
    await running.says("configuration reloaded");
    expect(await shown(port, "shop.example.com")).toBe("CN=*.example.com");
    writeFileSync(running.file, textOf(withCertificates([wildcard()])));
    await running.says(/(configuration reloaded[^]*){2}/);
    expect(await shown(port, "localhost")).toBe("ERR_SSL_TLSV1_UNRECOGNIZED_NAME");
  });

  it("that removes the last one is refused, and the port stays open with it", async () => {
    const running = await runningProgram(withCertificates([local()]));
    writeFileSync(running.file, textOf(oneService(9)));
    await running.says(/reload refused/);
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      issues: [expect.stringMatching(/global\.certificates +open and close the HTTPS port, and that takes a restart/)],
    });
    expect(await shown(httpsPort(running), "localhost")).toBe("CN=localhost");
  });

  it("that adds the first one is refused, and names the restart; https_redirect needs it, too", async () => {
    const running = await runningProgram(oneService(9));
    writeFileSync(running.file, textOf(withCertificates([local()])));
    await running.says(/reload refused.*\n/);
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      issues: [
        expect.stringMatching(
          /gw\.json:1:\d+ +global\.certificates +open and close the HTTPS port, and that takes a restart/,
        ),
      ],
    });
    writeFileSync(running.file, textOf(oneService(9, {}, { https_redirect: {} } as never)));
    await running.says(/(reload refused[^]*){2}\n/);
    expect(logLines(running.stderr()).at(-1)).toMatchObject({
      issues: [expect.stringContaining("global.https_redirect  needs an HTTPS listener")],
    });
  });

  it(
    "that adds the first one, or removes the last, is accepted where " + "SERVER_CERT_PATH keeps the port open",
    async () => {
      const { cert, key } = local();
      const file = fileWith(oneService(9));
      const running = await runningFile(file, [], { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key });
      writeFileSync(file, textOf(withCertificates([shop()])));
      await running.says("configuration reloaded");
      expect(await shown(httpsPort(running), "shop.example.com")).toBe("CN=shop.example.com");
      writeFileSync(file, textOf(oneService(9)));
      await running.says(/(configuration reloaded[^]*){2}/);
      expect(await shown(httpsPort(running), "shop.example.com")).toBe("CN=localhost");
    },
  );
});

describe("commands that look at global.certificates", () => {
  const run = (words: readonly string[], environment: Record<string, string> = {}) =>
    program(words, { environment }).ended;

  it("validate takes https_redirect, HTTP_PORT=off and CA_CERT_PATH with them, and refuses each without", async () => {
    const { ca } = pem({ ca: CA.cert });
    const redirecting = { https_redirect: {} };
    const [good, bad] = [withCertificates([local()], 9, redirecting), oneService(9, {}, redirecting as never)];
    for (const settings of [[], ["--settings", "none"]])
      expect(await run(["validate", fileWith(good), ...settings])).toMatchObject({
        code: 0,
        stdout: expect.not.stringContaining("the settings decide"),
      });
    expect(await run(["validate", fileWith(bad)])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        "needs an HTTPS listener: add global.certificates or global.acme, or set SERVER_CERT_PATH",
      ),
    });
    for (const environment of [{ HTTP_PORT: "off" }, { CA_CERT_PATH: ca! }]) {
      expect(await run(["validate", fileWith(good)], environment)).toMatchObject({ code: 0 });
      expect(await run(["validate", fileWith(oneService(9))], environment)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining("needs a certificate, global.certificates, global.acme or SERVER_CERT_PATH"),
      });
    }
  });

  it("audit lists the HTTPS port, what HTTPS loads, and the key; evidence counts HTTPS", async () => {
    const { cert, key } = local();
    const file = fileWith(withCertificates([{ hosts: ["localhost"], cert, key }]));
    const audited = JSON.parse((await run(["audit", file, "--json"], { HTTP_PORT: "off" })).stdout);
    expect(audited.listens.map(({ port, why }: { port: number; why: string }) => [port, why])).toEqual([
      [8443, "https"],
      [8443, "https"],
    ]);
    expect(audited.secrets).toContain(`file:${key}`);
    const paths = audited.modules.map(({ path }: { path: string }) => path.replace(/^dist\/|\.js$/g, ""));
    expect(paths).toEqual(expect.arrayContaining(["lib/server/tls", "lib/server/http2", "lib/cli/tls_files"]));
    const { entries } = JSON.parse((await run(["audit", file, "--evidence"], { HTTP_PORT: "off" })).stdout);
    expect(entries).toContainEqual(
      expect.objectContaining({ fact: expect.stringContaining("HTTPS is on, HTTP is off") as string }),
    );
    expect(await run(["audit", fileWith(oneService(9))], { HTTP_PORT: "off" })).toMatchObject({ code: 2 });
  });
});

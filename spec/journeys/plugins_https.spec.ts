/** Plugins that send requests over HTTPS to servers whose certificate is signed by a private CA. */
import { generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import https, { type ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { pem } from "../cli/pem.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { OTHER_CA } from "../support/more_certs.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { recordedLog } from "./harness.ts";

/** An HTTPS server on a free port that records its requests; closed when the test ends. */
async function secureBackend(
  answer: RequestListener,
  options: ServerOptions = {},
): Promise<{ readonly url: string; readonly seen: string[] }> {
  const seen: string[] = [];
  const server = https.createServer({ cert: SERVER.cert, key: SERVER.key, ...options }, (request, response) => {
    seen.push(`${request.method} ${request.url}`);
    request.resume();
    answer(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const guarded = async (plugin: object, options: Parameters<typeof running>[1] = {}) => {
  const origin = await backend();
  return running(oneService(origin.port, { plugins: [plugin as { name: string }] }), options);
};
const status = async (port: number, headers: Record<string, string> = {}) =>
  (await ask(port, { path: "/a/x", headers })).status;

const FILES = () => pem({ ca: CA.cert, other: OTHER_CA.cert, cert: CLIENT.cert, key: CLIENT.key });

describe("forward_auth over HTTPS", () => {
  it("asks a server whose certificate is signed by the CA that tls.ca names, and no other server", async () => {
    const authServer = await secureBackend((_request, response) => void response.end());
    const { ca, other } = FILES();
    const plugin = (tls?: object) => ({
      name: "forward_auth",
      config: { url: authServer.url, timeout_ms: 60_000, ...(tls && { tls }) },
    });
    expect(await status((await guarded(plugin({ ca }))).port)).toBe(200);
    expect(await status((await guarded(plugin({ ca: other }))).port)).toBe(503);
    expect(await status((await guarded(plugin())).port)).toBe(503);
    expect(await status((await guarded(plugin({ ca, servername: "other.example.com" }))).port)).toBe(503);
    expect(authServer.seen).toEqual(["GET /"]);
  });

  it("shows the client certificate of tls.cert to a server that asks for one", async () => {
    const authServer = await secureBackend((_request, response) => void response.end(), {
      ca: CA.cert,
      requestCert: true,
      rejectUnauthorized: true,
    });
    const { ca, cert, key } = FILES();
    const config = { url: authServer.url, timeout_ms: 60_000 };
    expect(
      await status((await guarded({ name: "forward_auth", config: { ...config, tls: { ca, cert, key } } })).port),
    ).toBe(200);
    expect(await status((await guarded({ name: "forward_auth", config: { ...config, tls: { ca } } })).port)).toBe(503);
  });

  it("trusts another CA once the file that tls.ca names has changed", async () => {
    const authServer = await secureBackend((_request, response) => void response.end());
    const { other } = FILES();
    const { gateway, port } = await guarded({
      name: "forward_auth",
      config: { url: authServer.url, timeout_ms: 60_000, tls: { ca: other } },
    });
    expect(gateway.files).toEqual([other]);
    expect(await status(port)).toBe(503);
    writeFileSync(other!, CA.cert);
    expect(gateway.rereadFiles()).toBe(true);
    expect(await status(port)).toBe(200);
    writeFileSync(other!, "garbage");
    expect(() => gateway.rereadFiles()).toThrow(/is not a certificate in PEM form/);
    expect(await status(port)).toBe(200);
  });
});

it(
  "jwt fetches jwks_uri from a server whose certificate is signed by the CA that tls.ca names, " +
    "and from no other server",
  async () => {
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const issuer = await secureBackend(
      (_request, response) => void response.end(JSON.stringify({ keys: [publicKey.export({ format: "jwk" })] })),
    );
    const text = [{ alg: "ES256" }, { sub: "ann", exp: 4e9 }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
      .join(".");
    const signature = sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString(
      "base64url",
    );
    const authorization = `Bearer ${text}.${signature}`;
    const { ca, other } = FILES();
    const plugin = (tls: object) => ({ name: "jwt", config: { alg: "ES256", jwks_uri: `${issuer.url}/keys`, tls } });
    expect(await status((await guarded(plugin({ ca }))).port, { authorization })).toBe(200);
    const { log, lines } = recordedLog();
    expect(await status((await guarded(plugin({ ca: other }), { log })).port, { authorization })).toBe(503);
    const failed = lines.filter(({ message }) => message === "jwt cannot fetch the keys of its issuer; it has none");
    expect(failed.map(({ plugin }) => plugin)).toEqual(["services.s.plugins.jwt"]);
    expect(issuer.seen).toEqual(["GET /keys"]);
  },
);

it("http_log sends its entries to a server whose certificate is signed by the CA that tls.ca names", async () => {
  const server = await secureBackend((_request, response) => void response.end());
  const { ca } = FILES();
  const { port } = await guarded({
    name: "http_log",
    config: { http_endpoint: `${server.url}/log`, batch_size: 1, tls: { ca } },
  });
  expect(await status(port)).toBe(200);
  await eventually(() => server.seen.length === 1, "a request at the server");
  expect(server.seen).toEqual(["POST /log"]);
});

describe("the tls option of a plugin", () => {
  const { cert } = SERVER;
  it.each([
    [
      "beside an http:// URL",
      "forward_auth",
      { url: "http://127.0.0.1/" },
      "ca",
      /tls\s+applies to https:\/\/ URLs; this one starts with http:\/\//,
    ],
    [
      "beside an http:// endpoint",
      "http_log",
      { http_endpoint: "http://127.0.0.1/" },
      "ca",
      /tls\s+applies to https:\/\/ URLs/,
    ],
    [
      "beside an http:// jwks_uri",
      "jwt",
      { alg: "ES256", jwks_uri: "http://127.0.0.1/" },
      "ca",
      /tls\s+applies to https:\/\/ URLs/,
    ],
    ["without jwks_uri", "jwt", { alg: "HS256", secret: "x".repeat(32) }, "ca", /tls\s+is for "jwks_uri"/],
    [
      "with a certificate and no key",
      "forward_auth",
      { url: "https://127.0.0.1/" },
      "cert",
      /tls\s+needs "key" beside "cert"/,
    ],
    [
      "with a file that holds no certificate",
      "forward_auth",
      { url: "https://127.0.0.1/" },
      "garbage",
      /tls\.ca\s+.*is not a certificate in PEM form/,
    ],
  ])("is refused %s", (_title, name, config, given, message) => {
    const files = pem({ ca: cert, cert, garbage: "garbage" });
    const tls = { [given === "garbage" ? "ca" : given]: files[given] };
    return expect(guarded({ name, config: { ...config, tls } })).rejects.toThrow(message);
  });

  it("a plugin configuration is refused with verify: false, because a plugin always verifies the server", () =>
    expect(
      guarded({ name: "forward_auth", config: { url: "https://127.0.0.1/", tls: { verify: false } } }),
    ).rejects.toThrow(/verify/));
});

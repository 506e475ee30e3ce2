/** What clients, and a certificate authority, get of a gateway with `global.acme`: a stand-in orders nothing. */
import { once } from "node:events";
import https from "node:https";
import net, { type AddressInfo } from "node:net";
import tls, { type ConnectionOptions, type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { TlsFiles } from "../../lib/index.ts";
import type { Challenge } from "../../lib/server/issued_certificates.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { OTHER_CA, RENEWED, SHOP, WILDCARD } from "../support/more_certs.ts";
import { fileWith } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";

type Files = { readonly cert: string; readonly key: string };
const pairOf = ({ cert, key }: Files) => ({ cert: Buffer.from(cert), key: Buffer.from(key) });
const NONE: TlsFiles = { cert: null, key: null, ca: null, requireClientCert: false };
const DEFAULT: TlsFiles = { ...NONE, ...pairOf(SERVER) };
const DEMANDING: TlsFiles = { ...DEFAULT, ca: Buffer.from(CA.cert), requireClientCert: true };

const acmeOf = (hosts: readonly string[]) => ({
  directory: "https://ca.example/directory",
  hosts,
  terms_agreed: true,
});

async function serving(hosts: readonly string[], files: TlsFiles, global: object = {}) {
  const origin = await backend();
  const routes = { base_path: "/", routes: [{ path: "/{rest*}" }] };
  const config = oneService(origin.port, routes, { acme: acmeOf(hosts), ...global } as never);
  const { gateway, port: plain } = await running(config, { acme: "checked" });
  const { port } = await gateway.listen({ port: 0, tls: files });
  const { features, runtime } = Gateway.internalsOf(gateway);
  const issued = features.serverTls.issuedIn(runtime);
  const use = (...pairs: readonly (readonly [Files, ...string[]])[]) =>
    issued.use(pairs.map(([pair, ...of]) => ({ ...pairOf(pair), hosts: of })));
  return { gateway, plain, port, issued, use, origin };
}

/** Of a handshake that is done. */
function shaken(port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options });
    onTestFinished(() => void socket.destroy());
    socket.once("error", reject).once("secureConnect", () => resolve(socket));
  });
}

/** By the certificate, in base64. */
const NAMES = new Map(
  Object.entries({ SERVER, SHOP, WILDCARD, RENEWED }).map(([name, { cert }]) => [
    cert.replace(/-----[^-]+-----|\s/g, ""),
    name,
  ]),
);

/** The name of the certificate that a client is shown, or the code of its error. */
async function shown(port: number, options: ConnectionOptions = {}): Promise<string> {
  try {
    const socket = await shaken(port, options);
    const { raw } = socket.getPeerCertificate();
    socket.on("error", () => {}).destroy();
    return NAMES.get(raw.toString("base64"))!;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code!;
  }
}

/** The reply to a request, and the client's port of its connection. */
function overTls(port: number, options: https.RequestOptions): Promise<{ status: number; from: number | undefined }> {
  return new Promise((resolve, reject) => {
    const request = https.request(
      { host: "127.0.0.1", port, path: "/x", rejectUnauthorized: false, ...options },
      (response) => {
        const from = response.socket.localPort;
        response.resume().on("error", reject);
        response.on("end", () => resolve({ status: response.statusCode!, from }));
      },
    );
    request.on("error", reject).end();
  });
}

/** The port of a server that passes on what it gets, each byte by itself. */
async function bytewise(port: number): Promise<number> {
  const server = net.createServer((client) => {
    const next = net.connect({ port, host: "127.0.0.1", noDelay: true });
    next.pipe(client);
    client.on("error", () => next.destroy()).on("close", () => next.destroy());
    next.on("error", () => client.destroy());
    void (async () => {
      for await (const chunk of client) {
        for (const byte of chunk as Buffer) await new Promise((sent) => next.write(Buffer.of(byte), sent));
      }
      next.end();
    })().catch(() => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

const INTERNAL_ERROR = "ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR";
const NO_PROTOCOL = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";

describe("certificates of global.acme", () => {
  it("are never stood in for: until one is there, handshakes for its host end with an alert", async () => {
    const { port, use } = await serving(["shop.example.com"], DEFAULT);
    expect(await shown(port, { servername: "shop.example.com" })).toBe(INTERNAL_ERROR);
    expect(await shown(port, { servername: "SHOP.example.com", maxVersion: "TLSv1.2" })).toBe(INTERNAL_ERROR);
    expect([await shown(port, { servername: "localhost" }), await shown(port)]).toEqual(["SERVER", "SERVER"]);
    use([SHOP, "shop.example.com"]);
    expect(await shown(port, { servername: "Shop.example.com" })).toBe("SHOP");
    expect(await shown(port, { servername: "other.example.com" })).toBe("SERVER");
  });

  it("leave other names unrecognized where there is no other certificate", async () => {
    const { port, use } = await serving(["shop.example.com"], NONE);
    use([SHOP, "shop.example.com"]);
    expect(await shown(port, { servername: "localhost" })).toMatch(/UNRECOGNIZED_NAME/);
    expect(await shown(port)).toMatch(/HANDSHAKE_FAILURE/);
  });

  it("stand beside global.certificates, whose wildcards are for the other names", async () => {
    const file = (files: Files) => ({ cert: fileWith(files.cert), key: fileWith(files.key) });
    const certificates = [{ hosts: ["*.example.com"], ...file(WILDCARD) }];
    const { port, use } = await serving(["shop.example.com"], NONE, { certificates });
    expect(await shown(port, { servername: "shop.example.com" })).toBe(INTERNAL_ERROR);
    use([SHOP, "shop.example.com"]);
    expect(await shown(port, { servername: "shop.example.com" })).toBe("SHOP");
    expect(await shown(port, { servername: "pay.example.com" })).toBe("WILDCARD");
  });

  it("serve new handshakes as soon as they are renewed, and connections stay", async () => {
    const { port, use } = await serving(["localhost"], NONE);
    use([SERVER, "localhost"]);
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    const get = () => overTls(port, { agent, servername: "localhost", ca: CA.cert });
    const first = await get();
    use([RENEWED, "localhost"]);
    expect(await get()).toEqual({ status: 200, from: first.from });
    expect(await shown(port, { servername: "localhost" })).toBe("RENEWED");
  });

  it("are for addresses, which clients do not name: the address that they have connected to counts", async () => {
    const { port, use } = await serving(["127.0.0.1", "shop.example.com"], DEFAULT);
    expect(await shown(port)).toMatch(/HANDSHAKE_FAILURE/);
    expect(await shown(port, { servername: "localhost" })).toBe("SERVER");
    use([RENEWED, "127.0.0.1"], [SHOP, "shop.example.com"]);
    expect([await shown(port), await shown(port, { servername: "shop.example.com" })]).toEqual(["RENEWED", "SHOP"]);
    use([WILDCARD, "127.0.0.1"], [SHOP, "shop.example.com"]);
    expect([await shown(port), await shown(port, { servername: "localhost" })]).toEqual(["WILDCARD", "SERVER"]);
    expect(await overTls(port, {})).toMatchObject({ status: 200 });
  });

  it("for addresses ask clients for a certificate where that is required, also under another CA", async () => {
    const { gateway, port, use } = await serving(["127.0.0.1"], DEMANDING);
    use([RENEWED, "127.0.0.1"]);
    const of = (options: ConnectionOptions) => overTls(port, { ...options, agent: false } as https.RequestOptions);
    await expect(of({})).rejects.toThrow(/certificate required|socket hang up|ECONNRESET/i);
    expect(await of(CLIENT)).toMatchObject({ status: 200 });
    gateway.renewTls({ ...DEMANDING, ca: Buffer.from(OTHER_CA.cert) });
    await expect(of(CLIENT)).rejects.toThrow();
  });

  it("count for misdirected requests", async () => {
    const { port, use } = await serving(["shop.example.com", "localhost"], NONE);
    use([SHOP, "shop.example.com"], [SERVER, "localhost"]);
    const asked = (host: string) =>
      overTls(port, { servername: "shop.example.com", headers: { Host: host }, agent: false });
    expect((await asked("shop.example.com")).status).toBe(200);
    expect((await asked("localhost")).status).toBe(421);
    expect((await asked("nobody.example")).status).toBe(200);
    use([SHOP, "shop.example.com", "localhost"]);
    expect((await asked("localhost")).status).toBe(200);
    // Its certificate is not there, and this one is not for it.
    use([SHOP, "shop.example.com"]);
    expect((await asked("localhost")).status).toBe(421);
  });
});

const HTTP: Challenge = {
  ...{ type: "http-01", host: "shop.example.com", token: "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0" },
  keyAuthorization: "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0.9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI",
};
const PATH = `/.well-known/acme-challenge/${(HTTP as { token: string }).token}`;

describe("challenges over plain HTTP", () => {
  it("are answered before the redirect while they are open, for the exact token alone", async () => {
    const { plain, issued } = await serving(["shop.example.com"], NONE, { https_redirect: {} });
    const at = async (path: string, method = "GET") => {
      const { status, headers, body } = await ask(plain, { path, method, headers: { Host: "shop.example.com" } });
      return [status, headers["content-type"], body.toString()];
    };
    const routed = [200, undefined, "ok"];
    expect(await at(PATH)).toEqual(routed);
    issued.present(HTTP);
    const answered = [200, "application/octet-stream", (HTTP as { keyAuthorization: string }).keyAuthorization];
    expect(await at(PATH)).toEqual(answered);
    expect(await at(`http://shop.example.com${PATH}`)).toEqual(answered);
    expect(await at(PATH, "HEAD")).toEqual([200, "application/octet-stream", ""]);
    for (const path of [`${PATH}0`, PATH.slice(0, -1), `${PATH}?a=b`, `${PATH}/`])
      expect([path, await at(path)]).toEqual([path, routed]);
    for (const path of [PATH.replace("acme", "ACME"), `/x${PATH}`])
      expect([path, (await at(path))[0]]).toEqual([path, 308]);
    expect(await at(PATH, "POST")).toEqual(routed);
    issued.remove({ ...HTTP });
    expect(await at(PATH)).toEqual(routed);
    expect((await at("/other"))[0]).toBe(308);
  });

  it("are no business of plugins, nor of the HTTPS port", async () => {
    const plugins = [{ name: "key_auth", config: { key: "k" } }];
    const { plain, port, issued, use } = await serving(["shop.example.com"], NONE, { plugins });
    use([SHOP, "shop.example.com"]);
    issued.present(HTTP);
    expect((await ask(plain, { path: PATH })).status).toBe(200);
    expect((await ask(plain, { path: `${PATH}0` })).status).toBe(401);
    expect((await overTls(port, { servername: "shop.example.com", path: PATH })).status).toBe(401);
  });
});

const OVER_TLS: Challenge = {
  ...{ type: "tls-alpn-01", host: "shop.example.com", servername: "shop.example.com" },
  pair: pairOf(WILDCARD),
};
const VALIDATOR = { servername: "shop.example.com", ALPNProtocols: ["acme-tls/1"] };

describe("challenges over TLS", () => {
  it("are answered while they are open, and the connection is closed behind the handshake", async () => {
    const { port, issued, use } = await serving(["shop.example.com"], DEMANDING);
    use([SHOP, "shop.example.com"]);
    expect(await shown(port, VALIDATOR)).toBe(NO_PROTOCOL);
    issued.present(OVER_TLS);
    for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
      const socket = await shaken(port, { ...VALIDATOR, maxVersion });
      expect(NAMES.get(socket.getPeerCertificate().raw.toString("base64"))).toBe("WILDCARD");
      expect(socket.alpnProtocol).toBe("acme-tls/1");
      socket.resume();
      await once(socket, "close");
    }
    issued.remove({ ...OVER_TLS });
    expect(await shown(port, VALIDATOR)).toBe(NO_PROTOCOL);
  });

  it("leave all other handshakes as they are", async () => {
    const { port, issued, use } = await serving(["shop.example.com"], DEFAULT);
    use([SHOP, "shop.example.com"]);
    issued.present(OVER_TLS);
    expect(await shown(port, { ...VALIDATOR, servername: "localhost" })).toBe(NO_PROTOCOL);
    expect(await shown(port, { ALPNProtocols: ["acme-tls/1"] })).toBe(NO_PROTOCOL);
    const both = await shaken(port, { ...VALIDATOR, ALPNProtocols: ["acme-tls/1", "http/1.1"] });
    expect([both.alpnProtocol, NAMES.get(both.getPeerCertificate().raw.toString("base64"))]).toEqual([
      "http/1.1",
      "SHOP",
    ]);
    expect(await shown(port, { servername: "shop.example.com" })).toBe("SHOP");
    expect(await shown(port)).toBe("SERVER");
    expect(await overTls(port, { servername: "localhost", ca: CA.cert })).toMatchObject({ status: 200 });
  });

  it("read a first message that comes in single bytes, and close what is none", async () => {
    const { port, issued, use } = await serving(["shop.example.com"], DEFAULT);
    use([SHOP, "shop.example.com"]);
    issued.present(OVER_TLS);
    const slow = await bytewise(port);
    expect(await shown(slow, { servername: "shop.example.com" })).toBe("SHOP");
    expect(await shown(slow, VALIDATOR)).toBe("WILDCARD");
    const other = net.connect(port, "127.0.0.1");
    other.on("error", () => {}).end("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await once(other.resume(), "close");
  });

  it("are answered where a certificate is not there yet", async () => {
    const { port, issued } = await serving(["shop.example.com", "127.0.0.1"], NONE);
    issued.present(OVER_TLS);
    issued.present({ ...OVER_TLS, host: "127.0.0.1", servername: "1.0.0.127.in-addr.arpa" });
    expect(await shown(port, VALIDATOR)).toBe("WILDCARD");
    expect(await shown(port, { ...VALIDATOR, servername: "1.0.0.127.IN-ADDR.arpa" })).toBe("WILDCARD");
    expect(await shown(port, { servername: "shop.example.com" })).toBe(INTERNAL_ERROR);
  });
});

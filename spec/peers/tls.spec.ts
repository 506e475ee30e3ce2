/** TLS with Debian's openssl on the other side: s_client as a client, s_server as an upstream, and its own lists. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { oneService, backend, running } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { ask } from "../support/raw_client.ts";
import { nodeOf } from "./nodes.ts";

const run = promisify(execFile);
let folder = "";
const at = (name: string) => join(folder, name);
const openssl = (...words: string[]) => run("openssl", words, { cwd: folder });

const CA_CONFIG = `[ca]
default_ca = own
[own]
database = index.txt
crlnumber = crlnumber
default_md = sha256
default_crl_days = 30
`;

/** An RSA CA, a server's certificate, two clients', and a list that has the second. */
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "edge-gateway-tls-"));
  await openssl(
    "req",
    "-x509",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-keyout",
    "ca.key",
    "-out",
    "ca.crt",
    "-subj",
    "/CN=ca",
  );
  writeFileSync(at("san.txt"), "subjectAltName=DNS:localhost");
  for (const name of ["server", "good", "bad"]) {
    await openssl(
      "req",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
      "-subj",
      `/CN=${name}`,
    );
    const by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san.txt"];
    await openssl("x509", "-req", "-in", `${name}.csr`, ...by, "-out", `${name}.crt`);
  }
  writeFileSync(at("index.txt"), "");
  writeFileSync(at("crlnumber"), "01\n");
  writeFileSync(at("ca.cnf"), CA_CONFIG);
  const own = ["-config", "ca.cnf", "-keyfile", "ca.key", "-cert", "ca.crt"];
  await openssl("ca", ...own, "-revoke", "bad.crt", "-crl_reason", "keyCompromise");
  await openssl("ca", ...own, "-gencrl", "-out", "ca.crl");
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What s_client prints of a handshake; it asks for /a/x if there is one. */
async function client(port: number, ...words: string[]): Promise<string> {
  const child = spawn("openssl", ["s_client", "-connect", `127.0.0.1:${port}`, "-servername", "localhost", ...words], {
    cwd: folder,
  });
  onTestFinished(() => void child.kill());
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
  child.stdin.on("error", () => {});
  child.stdin.write("GET /a/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  await once(child, "close");
  return text;
}

async function secure(tls: object, files: { readonly ca?: Buffer; readonly requireClientCert?: boolean } = {}) {
  const upstream = await backend();
  const { gateway } = await running(oneService(upstream.port, {}, { tls }));
  const { ca = null, requireClientCert = false } = files;
  const [cert, key] = [readFileSync(at("server.crt")), readFileSync(at("server.key"))];
  return (await gateway.listen({ port: 0, tls: { cert, key, ca, requireClientCert } })).port;
}

const OK = /^HTTP\/1\.1 200 /m;
const WEAK = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";

describe("s_client meets the gateway", () => {
  it.each([["-tls1"], ["-tls1_1"]])("refuses %s, whatever ciphers the client has", async (version) => {
    const text = await client(await secure({}), version, "-cipher", WEAK);
    expect(text).not.toMatch(OK);
    expect(text).toMatch(/protocol version|no protocols available|unsupported protocol/);
  });

  it.each([
    ["no authentication", "aNULL:@SECLEVEL=0"],
    ["no encryption", "eNULL:@SECLEVEL=0"],
    ["no forward secrecy", "kRSA"],
    ["pre-shared keys", "PSK"],
    ["old ciphers", "RC4:3DES:DES:MD5:EXPORT:SEED:IDEA:CAMELLIA:@SECLEVEL=0"],
  ])("refuses ciphers with %s", async (_what, ciphers) => {
    const text = await client(await secure({}), "-tls1_2", "-cipher", ciphers);
    expect(text).not.toMatch(OK);
    expect(text).toMatch(/handshake failure|no cipher match|no ciphers available/);
  });

  it("has forward secrecy, no compression, secure renegotiation alone, and none that a client begins", async () => {
    const text = await client(await secure({}), "-tls1_2");
    expect(text).toMatch(OK);
    expect(text).toMatch(/Server Temp Key: X25519/);
    expect(text).toMatch(/Compression: NONE/);
    expect(text).toMatch(/Secure Renegotiation IS supported/);
  });

  it("takes the versions, ciphers and groups that are named, and no others", async () => {
    const port = await secure({ min_version: "1.3", ciphers: ["TLS_AES_128_GCM_SHA256"], groups: ["P-384"] });
    const text = await client(port);
    expect(text).toMatch(OK);
    expect(text).toMatch(/TLSv1\.3, Cipher is TLS_AES_128_GCM_SHA256/);
    expect(text).toMatch(/Server Temp Key: ECDH, (?:P-384|secp384r1)/);
    for (const words of [["-tls1_2"], ["-ciphersuites", "TLS_AES_256_GCM_SHA384"], ["-groups", "X25519"]])
      expect(await client(port, ...words)).not.toMatch(OK);
  });

  it("accepts the profile of the documents, in both versions", async () => {
    const docs = readFileSync(new URL("../../docs/tls.md", import.meta.url), "utf8");
    const [, profile] = /## A profile of approved algorithms[^]*?```json\n([^]*?)```/.exec(docs)!;
    const { tls } = (JSON.parse(profile!) as { readonly global: { readonly tls: object } }).global;
    const port = await secure(tls);
    expect(await client(port)).toMatch(/Cipher is TLS_AES_256_GCM_SHA384[^]*HTTP\/1\.1 200 /);
    expect(await client(port, "-tls1_2")).toMatch(/Cipher is ECDHE-RSA-AES256-GCM-SHA384[^]*HTTP\/1\.1 200 /);
    for (const words of [
      ["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
      ["-groups", "X25519"],
      ["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"],
    ])
      expect(await client(port, ...words)).not.toMatch(OK);
  });

  it("refuses a client that openssl's list has, and accepts another", async () => {
    const port = await secure(
      { client_crl: at("ca.crl") },
      { ca: readFileSync(at("ca.crt")), requireClientCert: true },
    );
    expect(await client(port, "-cert", "good.crt", "-key", "good.key")).toMatch(OK);
    expect(await client(port, "-cert", "bad.crt", "-key", "bad.key")).not.toMatch(OK);
  });
});

describe("s_server as an upstream", () => {
  /** The status of a request to it. */
  async function status(words: readonly string[], tls: object, shown = "good"): Promise<number> {
    const port = await freePort();
    const own = ["-accept", `127.0.0.1:${port}`, "-cert", `${shown}.crt`, "-key", `${shown}.key`, "-www"];
    const child = spawn("openssl", ["s_server", ...own, ...words], { cwd: folder });
    onTestFinished(() => void child.kill());
    await once(child.stdout, "data");
    const settings = { ca: at("ca.crt"), servername: "localhost", ...tls };
    const gateway = await running(oneService(port, { protocol: "https", tls: settings }));
    return (await ask(gateway.port, { path: "/a/x" })).status;
  }

  it("is met by the versions, ciphers and groups that are named, and by no others", async () => {
    const rules = { min_version: "1.3", ciphers: ["TLS_AES_128_GCM_SHA256"], groups: ["P-384"] };
    expect(await status([], rules)).not.toBe(502);
    for (const words of [["-tls1_2"], ["-ciphersuites", "TLS_AES_256_GCM_SHA384"], ["-groups", "X25519"]])
      expect(await status(words, rules)).toBe(502);
  });

  it("is refused where openssl's list has its certificate", async () => {
    expect(await status([], { crl: at("ca.crl") })).not.toBe(502);
    expect(await status([], { crl: at("ca.crl") }, "bad")).toBe(502);
  });
});

it("agrees on X25519MLKEM768 on Node 24, also with a client that has guessed another group", async () => {
  const specs = ["run", "--config", "spec/vitest.config.ts", "--project", "all", "spec/journeys/tls_rules.spec.ts"];
  const cwd = new URL("../..", import.meta.url);
  const { stdout } = await run(nodeOf(24), ["node_modules/vitest/vitest.mjs", ...specs, "--reporter=verbose"], {
    cwd,
    env: { ...process.env, NO_COLOR: "1" },
  });
  expect(stdout).toMatch(/✓ .*prefers the first group in TLS 1\.3/);
}, 120_000);

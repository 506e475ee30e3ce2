/** The built program with global.acme and Debian's pebble, a directory of RFC 8555 for tests. */
import { X509Certificate } from "node:crypto";
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { CA, CLIENT } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { program, type Program } from "../support/process.ts";
import { soon } from "./browser.ts";
import { emptyFolder, PROGRAM } from "./built.ts";
import { nodeOf } from "./nodes.ts";
import { pebble, type Pebble } from "./pebble.ts";
import { serialAt } from "./served_certificate.ts";
import { probeModule } from "./workers.ts";

interface Setup {
  readonly file: string;
  readonly state: string;
  readonly ports: { readonly http: number; readonly https: number };
  readonly authority: Pebble;
}

/** A configuration for `localhost` and what `acme` says, and a directory that looks at the gateway's ports. */
async function setup(acme: object = {}, global: object = {}): Promise<Setup> {
  const origin = await backend();
  const folder = emptyFolder();
  const ports = { http: await freePort(), https: await freePort() };
  const authority = await pebble({ httpPort: ports.http, tlsPort: ports.https });
  writeFileSync(join(folder, "ca.pem"), CA.cert);
  const own = { directory: authority.directory, hosts: ["localhost"], ca: "ca.pem", terms_agreed: true };
  const file = join(folder, "gw.json");
  writeFileSync(file, JSON.stringify(oneService(origin.port, {}, { acme: { ...own, ...acme }, ...global } as never)));
  return { file, state: join(folder, "state"), ports, authority };
}

function started({ file, state, ports }: Setup, environment: Record<string, string> = {}): Program {
  const words = ["--config", file, "--state-dir", state, "--https-port", String(ports.https)];
  const common = { HTTP_PORT: String(ports.http), LISTEN_HOST: "127.0.0.1", LOG_FORMAT: "json" };
  // Node 20 has no workers.
  return program(words, { main: PROGRAM, node: nodeOf(24), environment: { ...common, ...environment } });
}

async function ends({ child, ended }: Program): Promise<number | null> {
  child.kill("SIGTERM");
  return (await ended).code;
}

const HEX = /^[0-9A-F]{8,}$/;
const filesIn = ({ state }: Setup) => readdirSync(join(state, "acme"));

it("orders over http-01 beside the redirect, for two workers; a restart serves what is kept", async () => {
  const given = await setup({}, { https_redirect: {} });
  const { https } = given.ports;
  const ca = await given.authority.root();
  const first = started(given, { WORKERS: "2" });
  await first.says(/certificates are waited for/);
  await soon(() => serialAt(https, { servername: "localhost", ca })).toMatch(HEX);
  const serial = await serialAt(https, { servername: "localhost", ca });
  // Both workers have it.
  for (let n = 0; n < 20; n++) expect(await serialAt(https, { servername: "localhost", ca })).toBe(serial);
  expect(await serialAt(https, { servername: "other.example", ca })).toMatch(/UNRECOGNIZED_NAME/);
  await first.says(/a certificate is obtained/);
  await soon(async () => filesIn(given)).toContain("certificates.pem");
  expect(statSync(join(given.state, "acme")).mode & 0o777).toBe(0o700);
  for (const name of filesIn(given)) expect(statSync(join(given.state, "acme", name)).mode & 0o777).toBe(0o600);
  const key = readFileSync(join(given.state, "acme", "account.key"), "utf8");
  expect(await ends(first)).toBe(0);

  const second = started(given);
  await second.says(/started/);
  expect(await serialAt(https, { servername: "localhost", ca })).toBe(serial);
  expect(second.stderr()).not.toMatch(/are waited for|a certificate is obtained/);
  expect(readFileSync(join(given.state, "acme", "account.key"), "utf8")).toBe(key);
  expect(await ends(second)).toBe(0);
});

it("orders over tls-alpn-01 without a plain port, where clients need a certificate, for an address, too", async () => {
  const given = await setup({ challenge: "tls-alpn-01", hosts: ["localhost", "127.0.0.1"] });
  const { https } = given.ports;
  const ca = await given.authority.root();
  const clients = { CA_CERT_PATH: join(dirname(given.file), "ca.pem"), CLIENT_AUTH: "require" };
  const running = started(given, { HTTP_PORT: "off", ...clients, WORKERS: "2" });
  const own = { cert: CLIENT.cert, key: CLIENT.key, ca };
  await soon(() => serialAt(https, { ...own, servername: "localhost" })).toMatch(HEX);
  expect(await serialAt(https, own)).toBe(await serialAt(https, { ...own, servername: "localhost" }));
  expect(await ends(running)).toBe(0);
  const pem = readFileSync(join(given.state, "acme", "certificates.pem"), "utf8");
  const [certificate] = /-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/.exec(pem)!;
  expect(new X509Certificate(certificate).subjectAltName).toContain("IP Address:127.0.0.1");
});

it("gives a worker that starts later the certificate that is there", async () => {
  const probe = { plugin_modules: [probeModule()], plugins: [{ name: "probe" }] };
  const given = await setup({}, probe);
  const { http, https } = given.ports;
  const ca = await given.authority.root();
  const running = started(given, { WORKERS: "2" });
  await running.says(/a certificate is obtained/);
  await soon(() => serialAt(https, { servername: "localhost", ca })).toMatch(HEX);
  const serial = await serialAt(https, { servername: "localhost", ca });
  await fetch(`http://127.0.0.1:${http}/a/x?exit`).catch(() => null);
  await running.says(/a worker serves again/);
  for (let n = 0; n < 20; n++) expect(await serialAt(https, { servername: "localhost", ca })).toBe(serial);
  expect(await ends(running)).toBe(0);
});

it("gives the account a new key, while it runs and while it is stopped", async () => {
  const given = await setup();
  const { https } = given.ports;
  const ca = await given.authority.root();
  const key = () => readFileSync(join(given.state, "acme", "account.key"), "utf8");
  const admin = { ADMIN_PORT: "0", ADMIN_USER: "admin", ADMIN_PASSWORD: "peers-only", ADMIN_WRITE: "true" };
  const command = (...more: string[]) =>
    program(["acme", "rollover", "--config", given.file, "--state-dir", given.state, ...more], {
      ...{ main: PROGRAM, environment: { LOG_FORMAT: "json" } },
    }).ended;
  const running = started(given, admin);
  await running.says(/a certificate is obtained/);
  await soon(() => serialAt(https, { servername: "localhost", ca })).toMatch(HEX);
  await soon(async () => filesIn(given)).toContain("certificates.pem");
  const adminUrl = /"admin":"([^"]+)"/.exec(await running.says(/"admin":"/))![1]!;
  const ask = (path: string, method: string, headers: Record<string, string>) =>
    fetch(new URL(path, adminUrl), { method, headers });
  const basic = `Basic ${Buffer.from("admin:peers-only").toString("base64")}`;
  const login = await ask("/login", "POST", { Authorization: basic });
  const cookie = login.headers
    .getSetCookie()
    .map((each) => each.split(";")[0]!)
    .join("; ");
  const first = key();
  await soon(async () => (await ask("/gateway/acme/rollover", "POST", { Cookie: cookie })).status).toBe(200);
  const second = key();
  expect(second).not.toBe(first);
  const { acme } = (await (await ask("/gateway/status", "GET", { Cookie: cookie })).json()) as {
    acme: { state: string; orders: object };
  };
  expect(acme).toMatchObject({ state: "valid", orders: { succeeded: 1, failed: 0 } });
  expect(await command()).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/a gateway uses .*: ask it with POST \/gateway\/acme\/rollover/) as string,
  });
  expect(await ends(running)).toBe(0);
  expect(await command()).toMatchObject({ code: 0, stdout: expect.stringMatching(/has a new key/) as string });
  expect(key()).not.toBe(second);
});

it("ends with 2 where STATE_DIR, or what is in it, cannot be written", async () => {
  const given = await setup();
  const user = 65_534;
  const folder = dirname(given.file);
  chmodSync(folder, 0o755);
  const as = async () => {
    const words = ["--reuid=65534", "--clear-groups", process.execPath, PROGRAM, "--config", given.file];
    const { code, stderr } = await program([...words, "--state-dir", given.state, "--http-port", "0"], {
      ...{ node: "/usr/bin/setpriv", main: "--regid=65534" },
    }).ended;
    return [code, stderr];
  };
  expect(await as()).toEqual([2, expect.stringMatching(/STATE_DIR .*state cannot be made: EACCES/)]);
  mkdirSync(given.state, { mode: 0o755 });
  expect(await as()).toEqual([2, expect.stringMatching(/STATE_DIR .*cannot be opened, which marks it as used/)]);
  chownSync(given.state, user, user);
  mkdirSync(join(given.state, "acme"), { mode: 0o755 });
  expect(await as()).toEqual([2, expect.stringMatching(/STATE_DIR .*acme cannot be written: E/)]);
});

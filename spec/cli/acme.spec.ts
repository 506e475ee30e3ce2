/** What the program does with `global.acme` before a certificate is there. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { oneService } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { fileWith, program } from "../support/process.ts";
import { pem } from "./pem.ts";

const ACME = { directory: "https://127.0.0.1:9/directory", hosts: ["shop.example"], terms_agreed: true };
const withAcme = (acme: object = {}, global: object = {}) =>
  oneService(9, {}, { acme: { ...ACME, ...acme }, ...global } as never);
const run = (words: readonly string[], environment: Record<string, string> = {}) =>
  program(words, { environment }).ended;

describe("global.acme without what it needs", () => {
  it("ends the start with 2 and a sentence where STATE_DIR is not set", async () => {
    const { code, stderr } = await run(["--config", fileWith(withAcme(), "gw.json")]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/gw\.json:1:\d+ +global\.acme +needs STATE_DIR \(--state-dir\), a folder where the account/);
  });

  it("ends the start with 2 where http-01 has no plain port, and validate refuses it then", async () => {
    const file = fileWith(withAcme());
    for (const words of [
      ["--config", file, "--state-dir", join(dirname(file), "state")],
      ["validate", file],
    ]) {
      const { code, stderr } = await run([...words, "--http-port", "off"]);
      expect([code, stderr]).toEqual([2, expect.stringContaining('global.acme.challenge  is "http-01", which is')]);
    }
    const overTls = fileWith(withAcme({ challenge: "tls-alpn-01" }));
    expect(await run(["validate", overTls, "--http-port", "off"])).toMatchObject({ code: 0 });
  });

  it("is refused by createGateway, which keeps no certificates, with a sentence", () => {
    expect(() => createGateway({ config: withAcme() })).toThrow(
      /global\.acme +is for the program edge-gateway, which keeps certificates in STATE_DIR/,
    );
  });
});

/** Nothing listens at the directory. */
async function runningWith(global: object, environment: Record<string, string> = {}) {
  const state = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  onTestFinished(() => rmSync(state, { recursive: true, force: true }));
  const file = fileWith(oneService(9, {}, global as never));
  const https = await freePort();
  const words = ["--config", file, "--http-port", "0", "--https-port", String(https), "--listen-host", "127.0.0.1"];
  const started = program(words, { environment: { STATE_DIR: state, LOG_FORMAT: "json", ...environment } });
  await started.says(/ started"/);
  const reload = async (next: object, says: RegExp) => {
    writeFileSync(file, JSON.stringify(oneService(9, {}, next as never)));
    await started.says(says);
  };
  return { ...started, https, reload, state };
}

/** The code of the error of a handshake. */
function refusal(port: number, servername: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = tls.connect({ host: "127.0.0.1", port, servername });
    onTestFinished(() => void socket.destroy());
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  });
}

describe("the program with global.acme", () => {
  it("starts without a certificate, says what it waits for, and ends at once", async () => {
    const { https, says, child, ended, state } = await runningWith({ acme: ACME });
    await says(/certificates are waited for; until then TLS for these hosts ends with an alert/);
    expect(await refusal(https, "shop.example")).toBe("ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR");
    expect(await refusal(https, "other.example")).toMatch(/UNRECOGNIZED_NAME/);
    await says(/ACME: no certificate for all hosts/);
    expect(statSync(join(state, "acme")).mode & 0o777).toBe(0o700);
    child.kill("SIGTERM");
    expect((await ended).code).toBe(0);
  });

  it("takes a reload with other hosts, and refuses one that leaves no certificate", async () => {
    const { https, reload, says } = await runningWith({ acme: ACME });
    await reload({ acme: { ...ACME, hosts: ["pay.example"] } }, /"hosts":\["pay\.example"\]/);
    expect(await refusal(https, "pay.example")).toBe("ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR");
    expect(await refusal(https, "shop.example")).toMatch(/UNRECOGNIZED_NAME/);
    await reload({}, /global\.certificates  open and close the HTTPS port/);
    expect(await refusal(https, "pay.example")).toBe("ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR");
    await says(/reload refused/);
  });

  it("begins with the reload that brings it, where there is a STATE_DIR", async () => {
    const { cert, key } = pem({ cert: SERVER.cert, key: SERVER.key });
    const settings = { SERVER_CERT_PATH: cert!, SERVER_KEY_PATH: key! };
    const { https, reload } = await runningWith({}, settings);
    await reload({ acme: ACME }, /certificates are waited for/);
    expect(await refusal(https, "shop.example")).toBe("ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR");
    const without = await runningWith({}, { ...settings, STATE_DIR: "" });
    await without.reload({ acme: ACME }, /global\.acme  needs STATE_DIR/);
  });

  it("is refused while its folder cannot be used: a reload that brings it, and the start with 2", async () => {
    const { cert, key } = pem({ cert: SERVER.cert, key: SERVER.key });
    const { reload, state } = await runningWith({}, { SERVER_CERT_PATH: cert!, SERVER_KEY_PATH: key! });
    const folder = join(state, "acme");
    writeFileSync(folder, "a file where the folder has to be");
    const says = /global\.acme  keeps its certificates in STATE_DIR \(--state-dir\): \S+acme cannot be written: EEXIST/;
    await reload({ acme: ACME }, says);
    rmSync(folder);
    await reload({ acme: { ...ACME, hosts: ["pay.example"] } }, /certificates are waited for/);
    const other = mkdtempSync(join(tmpdir(), "edge-gateway-"));
    onTestFinished(() => rmSync(other, { recursive: true, force: true }));
    writeFileSync(join(other, "acme"), "");
    const { code, stderr } = await run(["--config", fileWith(withAcme()), "--state-dir", other]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(says)]);
  });
});

describe("the account of a fleet", () => {
  it("gets no new key by the command, which would be that of one gateway alone", async () => {
    const words = ["acme", "rollover", "--config", "etcd://127.0.0.1:9/gw.json", "--state-dir", "/nowhere"];
    const key = fileWith(randomBytes(32).toString("hex"));
    const { code, stderr } = await run([...words, "--acme-fleet-key-file", key]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(/that of a fleet.*POST \/gateway\/acme\/rollover/)]);
  });
});

describe("commands that look at global.acme", () => {
  it("validate, test, diff and explain need no STATE_DIR, and ask nobody", async () => {
    const file = fileWith(withAcme({}, { https_redirect: {} }));
    const commands = [
      ["validate", file],
      ["test", file],
      ["diff", file, file],
      ["explain", "--config", file, "GET", "/a/x"],
    ];
    for (const words of commands)
      expect([words[0], await run(words)]).toEqual([words[0], expect.objectContaining({ code: 0 })]);
    expect((await run(["validate", file, "--settings", "none"])).stdout).not.toContain("the settings decide");
  });

  it("audit lists the HTTPS port, which it opens, the directory and hosts_allowed, and what orders", async () => {
    const file = fileWith(withAcme({ directory: "https://ca.example:14000/dir", hosts_allowed: ["api.ca.example"] }));
    const audited = JSON.parse((await run(["audit", file, "--json", "--state-dir", "/state"])).stdout) as {
      listens: { port: number; why: string }[];
      dials: { host: string; port: number; why: string[] | string }[];
      modules: { path: string }[];
      writes: string[];
    };
    const dials = audited.dials.filter(({ why }) => [why].flat().includes("acme"));
    expect(dials.map(({ host, port }) => `${host}:${port}`)).toEqual(
      expect.arrayContaining(["ca.example:14000", "api.ca.example:443"]),
    );
    expect(audited.modules.some(({ path }) => path.includes("lib/acme/keeper"))).toBe(true);
    expect(audited.writes).toContain("/state/*");
    const plain = JSON.parse((await run(["audit", fileWith(oneService(9)), "--json"])).stdout) as typeof audited;
    expect(plain.modules.filter(({ path }) => path.includes("/acme"))).toEqual([]);
    expect(audited.listens.filter(({ why }) => why === "https").map(({ port }) => port)).toEqual([8443, 8443]);
  });
});

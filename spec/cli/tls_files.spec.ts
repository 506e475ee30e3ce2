import { X509Certificate, generateKeyPairSync, sign } from "node:crypto";
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { CA, CLIENT, SERVER, STRANGER } from "../support/certs.ts";
import { ALICE, OTHER_CA, RENEWED, SHOP, WILDCARD } from "../support/more_certs.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder, logLines, runningProgram, type RunningProgram } from "../support/process.ts";
import { pem } from "./pem.ts";

const serial = ({ cert }: { cert: string }) => new X509Certificate(cert).serialNumber;

const portOf = (url: unknown) => Number(new URL(String(url)).port);
const httpsPort = ({ started }: RunningProgram) => portOf((started.https as string[])[0]);

function shown(port: number, servername = "localhost"): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: "127.0.0.1", port, servername, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerX509Certificate()!.serialNumber);
      socket.destroy();
    });
    socket.once("error", reject);
  });
}

/** As editors and certificate managers do: under another name first, then renamed over the old one. */
function save(path: string, text: string): void {
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

const TAKEN = "server certificate, key and CA reloaded";
const REFUSED = "new certificate files refused, the old files stay in use";
const NAMED_TAKEN = "files that the configuration names reloaded";
const NAMED_REFUSED = "new files that the configuration names refused, the old files stay in use";
const said = (running: RunningProgram, message: string) =>
  logLines(running.stderr()).filter((line) => line.message === message);

async function serving(extra: Record<string, string> = {}) {
  const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert });
  const running = await runningProgram(oneService(9), [], {
    SERVER_CERT_PATH: files.cert!,
    SERVER_KEY_PATH: files.key!,
    ...extra,
  });
  return { running, files, port: httpsPort(running) };
}

describe("the settings' certificate files, once they change", () => {
  it(
    "the files are reloaded when both fit together: half a change is logged and refused, " +
      "and connections stay open",
    async () => {
      const { running, files, port } = await serving();
      const client = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
      onTestFinished(() => void client.destroy());
      let closed = false;
      client.on("close", () => (closed = true)).on("error", () => {});
      await new Promise((resolve) => client.once("secureConnect", resolve));
      save(files.cert!, RENEWED.cert);
      await running.says(REFUSED);
      expect(said(running, REFUSED)[0]).toMatchObject({
        level: "error",
        reason: expect.stringMatching(/does not belong to the certificate/) as string,
      });
      expect(await shown(port)).toBe(serial(SERVER));
      save(files.key!, RENEWED.key);
      await running.says(TAKEN);
      expect(await shown(port)).toBe(serial(RENEWED));
      expect(closed).toBe(false);
    },
  );

  it("the files are refused when they are garbage, and reloaded when they are valid again", async () => {
    const { running, files, port } = await serving();
    writeFileSync(files.cert!, "garbage");
    await running.says(REFUSED);
    expect(said(running, REFUSED)[0]!.reason).toMatch(
      /cert\.pem \(SERVER_CERT_PATH\) is not a certificate in PEM form/,
    );
    expect(await shown(port)).toBe(serial(SERVER));
    writeFileSync(files.cert!, SERVER.cert + CA.cert);
    await running.says(TAKEN);
    expect(await shown(port)).toBe(serial(SERVER));
  });

  it("the files are followed through links that are swapped, as Kubernetes does", async () => {
    const folder = emptyFolder();
    for (const [name, { cert, key }] of [
      ["one", SERVER],
      ["two", RENEWED],
    ] as const) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, "tls.crt"), cert);
      writeFileSync(join(folder, name, "tls.key"), key);
    }
    symlinkSync("one", join(folder, "..data"));
    for (const file of ["tls.crt", "tls.key"]) symlinkSync(join("..data", file), join(folder, file));
    const { running, port } = await serving({
      SERVER_CERT_PATH: join(folder, "tls.crt"),
      SERVER_KEY_PATH: join(folder, "tls.key"),
    });
    symlinkSync("two", join(folder, "..next"));
    renameSync(join(folder, "..next"), join(folder, "..data"));
    await running.says(TAKEN);
    expect(await shown(port)).toBe(serial(RENEWED));
    expect(said(running, REFUSED)).toEqual([]);
  });

  it("changed certificate files of the settings apply another CA to new connections", async () => {
    const origin = await backend();
    const files = pem({ cert: SERVER.cert, key: SERVER.key, ca: CA.cert });
    const environment = {
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
      CA_CERT_PATH: files.ca!,
      CLIENT_AUTH: "require",
    };
    const running = await runningProgram(oneService(origin.port), [], environment);
    const get = (identity: object) =>
      new Promise<number>((resolve, reject) => {
        const asked = request(
          { host: "127.0.0.1", port: httpsPort(running), path: "/a/x", ca: CA.cert, agent: false, ...identity },
          (response) => {
            response.resume();
            resolve(response.statusCode!);
          },
        );
        asked.on("error", reject).end();
      });
    expect(await get(CLIENT)).toBe(200);
    await expect(get(ALICE)).rejects.toThrow();
    save(files.ca!, OTHER_CA.cert);
    await running.says(TAKEN);
    expect(await get(ALICE)).toBe(200);
    await expect(get(CLIENT)).rejects.toThrow();
    await expect(get(STRANGER)).rejects.toThrow();
  });

  it("the files are shown by the admin interface, too", async () => {
    const { running, files, port } = await serving({ ADMIN_USER: "anna", ADMIN_PASSWORD: "secret", ADMIN_TLS: "true" });
    const admin = portOf(running.started.admin);
    expect(await shown(admin)).toBe(serial(SERVER));
    save(files.key!, RENEWED.key);
    save(files.cert!, RENEWED.cert);
    await running.says(TAKEN);
    expect([await shown(admin), await shown(port)]).toEqual([serial(RENEWED), serial(RENEWED)]);
  });
});

describe("the configuration's certificate files, once they change", () => {
  async function withShop() {
    const named = pem({ shop_cert: SHOP.cert, shop_key: SHOP.key });
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const config = oneService(
      9,
      {},
      { certificates: [{ hosts: ["shop.example.com"], cert: named.shop_cert!, key: named.shop_key! }] },
    );
    const running = await runningProgram(config, [], { SERVER_CERT_PATH: files.cert!, SERVER_KEY_PATH: files.key! });
    return { running, named, config, port: httpsPort(running) };
  }

  it("the files are reloaded when both fit together; half a change is logged and refused", async () => {
    const { running, named, port } = await withShop();
    save(named.shop_cert!, WILDCARD.cert);
    await running.says(NAMED_REFUSED);
    expect(said(running, NAMED_REFUSED)[0]!.reason).toMatch(/the key does not belong to the certificate/);
    expect(await shown(port, "shop.example.com")).toBe(serial(SHOP));
    save(named.shop_key!, WILDCARD.key);
    await running.says(NAMED_TAKEN);
    expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
    expect(await shown(port)).toBe(serial(SERVER));
  });

  it("the files are reloaded even while the configuration file itself is broken", async () => {
    const { running, named, port } = await withShop();
    save(running.file, "{ broken");
    await running.says("reload refused");
    save(named.shop_key!, WILDCARD.key);
    save(named.shop_cert!, WILDCARD.cert);
    await running.says(NAMED_TAKEN);
    expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
  });

  it(
    "changed certificate files of the configuration make a configuration valid that " + "was refused because of them",
    async () => {
      const { running, named, config, port } = await withShop();
      save(named.shop_cert!, WILDCARD.cert);
      await running.says(NAMED_REFUSED);
      save(running.file, JSON.stringify({ ...config, services: [] }));
      await running.says("reload refused");
      save(named.shop_key!, WILDCARD.key);
      await running.says("configuration reloaded");
      expect(said(running, "configuration reloaded")[0]).toMatchObject({ services: 0 });
      expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
    },
  );

  /** A certificate of the configuration, and a key_auth whose key stands in a file. */
  async function withSecret() {
    const origin = await backend();
    const named = pem({ shop_cert: SHOP.cert, shop_key: SHOP.key, secret: "first-key" });
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const plugins = [{ name: "key_auth", config: { key: `\${file:${named.secret!}}` } }];
    const config = oneService(
      origin.port,
      { plugins },
      { certificates: [{ hosts: ["shop.example.com"], cert: named.shop_cert!, key: named.shop_key! }] },
    );
    const admin = { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" };
    const running = await runningProgram(config, [], {
      SERVER_CERT_PATH: files.cert!,
      SERVER_KEY_PATH: files.key!,
      ...admin,
    });
    const status = async (key: string) => (await ask(running.port, { path: `/a/x?apiKey=${key}` })).status;
    const renew = async () => {
      save(named.shop_key!, WILDCARD.key);
      save(named.shop_cert!, WILDCARD.cert);
      await running.says(NAMED_TAKEN);
    };
    return { running, named, status, renew, port: httpsPort(running) };
  }

  it("the files are reloaded while another secret of the configuration is missing", async () => {
    const { running, named, status, renew, port } = await withSecret();
    rmSync(named.secret!);
    await renew();
    expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
    expect(await status("first-key")).toBe(200);
    expect(said(running, NAMED_REFUSED).filter(({ reason }) => !String(reason).includes("does not belong"))).toEqual(
      [],
    );
  });

  it(
    "changed certificate files of the configuration do not apply a rotated secret: " +
      "that needs a reload, which is reported",
    async () => {
      const { running, named, status, renew, port } = await withSecret();
      save(named.secret!, "second-key");
      await renew();
      expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
      expect([await status("first-key"), await status("second-key")]).toEqual([200, 401]);
      running.child.kill("SIGHUP");
      await running.says("its secrets were resolved again");
      expect([await status("first-key"), await status("second-key")]).toEqual([401, 200]);
    },
  );

  it("the files are watched when a reload names other files", async () => {
    const { running, config, port } = await withShop();
    const others = pem({ cert: WILDCARD.cert, key: WILDCARD.key });
    const certificates = [{ hosts: ["shop.example.com"], cert: others.cert!, key: others.key! }];
    save(running.file, JSON.stringify({ ...config, global: { certificates } }));
    await running.says("configuration reloaded");
    expect(await shown(port, "shop.example.com")).toBe(serial(WILDCARD));
    save(others.key!, SHOP.key);
    save(others.cert!, SHOP.cert);
    await running.says(NAMED_TAKEN);
    expect(await shown(port, "shop.example.com")).toBe(serial(SHOP));
  });
});

describe("a jwks_file, once it changes", () => {
  const key = (kid: string) => {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    const text = [{ alg: "EdDSA", kid }, { exp: 4e9 }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
      .join(".");
    const authorization = `Bearer ${text}.${sign(null, Buffer.from(text), privateKey).toString("base64url")}`;
    return { set: JSON.stringify({ keys: [{ ...publicKey.export({ format: "jwk" }), kid }] }), authorization };
  };

  async function guarded(path: string) {
    const origin = await backend();
    const plugin = { name: "jwt", config: { alg: "EdDSA", jwks_file: path } };
    const running = await runningProgram(oneService(origin.port, { plugins: [plugin] }));
    const port = portOf((running.started.http as string[])[0]);
    const status = async ({ authorization }: { authorization: string }) =>
      (await ask(port, { path: "/a/x", headers: { authorization } })).status;
    return { running, status };
  }

  it(
    "a jwks_file is reloaded after a rename-save: tokens of the new key pass, " + "tokens of a removed key do not",
    async () => {
      const [old, renewed] = [key("1"), key("2")];
      const path = join(emptyFolder(), "keys.json");
      writeFileSync(path, old.set);
      const { running, status } = await guarded(path);
      expect([await status(old), await status(renewed)]).toEqual([200, 401]);
      save(path, renewed.set);
      await running.says(NAMED_TAKEN);
      expect([await status(old), await status(renewed)]).toEqual([401, 200]);
    },
  );

  it("a jwks_file is followed through links that are swapped, as Kubernetes does", async () => {
    const [old, renewed] = [key("1"), key("2")];
    const folder = emptyFolder();
    for (const [name, { set }] of [
      ["one", old],
      ["two", renewed],
    ] as const) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, "keys.json"), set);
    }
    symlinkSync("one", join(folder, "..data"));
    symlinkSync(join("..data", "keys.json"), join(folder, "keys.json"));
    const { running, status } = await guarded(join(folder, "keys.json"));
    expect(await status(old)).toBe(200);
    symlinkSync("two", join(folder, "..new"));
    renameSync(join(folder, "..new"), join(folder, "..data"));
    await running.says(NAMED_TAKEN);
    expect([await status(old), await status(renewed)]).toEqual([401, 200]);
  });

  it("keeps the last good keys while it contains none, and logs why", async () => {
    const [old, renewed] = [key("1"), key("2")];
    const path = join(emptyFolder(), "keys.json");
    writeFileSync(path, old.set);
    const { running, status } = await guarded(path);
    save(path, '{"keys":[]}');
    await running.says(NAMED_REFUSED);
    expect(said(running, NAMED_REFUSED)[0]!.reason).toMatch(
      /jwks_file .*keys\.json contains no key that can verify EdDSA/,
    );
    expect(await status(old)).toBe(200);
    save(path, renewed.set);
    await running.says(NAMED_TAKEN);
    expect([await status(old), await status(renewed)]).toEqual([401, 200]);
  });
});

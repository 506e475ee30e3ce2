import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder, startBuilt } from "./built.ts";

/** The parts of `jose` that are used here; without the package this file still compiles. */
interface Signer {
  setProtectedHeader(header: { alg: string; kid?: string; crit?: string[]; b64?: boolean }): Signer;
  setExpirationTime(seconds: number): Signer;
  sign(key: unknown): Promise<string>;
}
interface Jose {
  SignJWT: new (claims: object) => Signer;
  generateKeyPair(alg: string, options: { extractable: true }): Promise<{ publicKey: unknown; privateKey: unknown }>;
  exportSPKI(key: unknown): Promise<string>;
  exportJWK(key: unknown): Promise<object>;
}
let jose: Jose;
beforeAll(async () => {
  const path = createRequire(import.meta.url).resolve("jose");
  jose = (await import(pathToFileURL(path).href)) as unknown as Jose;
});

const HMAC = ["HS256", "HS384", "HS512"];
const PUBLIC = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];

const inAnHour = () => Math.floor(Date.now() / 1000) + 3_600;
const token = (alg: string, key: unknown, claims: object = { sub: "ann" }, kid?: string) =>
  new jose.SignJWT(claims)
    .setProtectedHeader({ alg, ...(kid === undefined ? {} : { kid }) })
    .setExpirationTime(inAnHour())
    .sign(key);

async function status(port: number, path: string, text: string): Promise<number> {
  return (await ask(port, { path: `/a/${path}`, headers: { Authorization: `Bearer ${text}` } })).status;
}

describe("tokens made by jose", () => {
  it(
    "tokens made by jose pass the built gateway with every algorithm, by PEM and by key set; " +
      "another key or algorithm is refused",
    async () => {
      const origin = await backend();
      const folder = emptyFolder();
      const jwt = (config: object) => [{ name: "jwt", config: { ...config, claims_to_headers: { sub: "X-User" } } }];
      const good: { path: string; text: string }[] = [];
      const bad: { path: string; text: string }[] = [];
      const routes: object[] = [];
      for (const alg of HMAC) {
        const secret = randomBytes(48).toString("base64");
        routes.push({ path: `/${alg}`, plugins: jwt({ alg, secret }) });
        good.push({ path: alg, text: await token(alg, Buffer.from(secret)) });
        bad.push({ path: alg, text: await token(alg, randomBytes(64)) });
      }
      for (const alg of PUBLIC) {
        const pair = await jose.generateKeyPair(alg, { extractable: true });
        const other = await jose.generateKeyPair(alg, { extractable: true });
        const pem = await jose.exportSPKI(pair.publicKey);
        const file = join(folder, `${alg}.json`);
        const keys = [
          { ...(await jose.exportJWK(other.publicKey)), kid: "other", alg: "RS1" },
          { ...(await jose.exportJWK(pair.publicKey)), kid: "k", alg, use: "sig" },
        ];
        writeFileSync(file, JSON.stringify({ keys }));
        routes.push(
          { path: `/${alg}/pem`, plugins: jwt({ alg, public_key: pem }) },
          { path: `/${alg}/file`, plugins: jwt({ algs: [alg], jwks_file: file }) },
        );
        good.push(
          { path: `${alg}/pem`, text: await token(alg, pair.privateKey) },
          { path: `${alg}/file`, text: await token(alg, pair.privateKey, { sub: "ann" }, "k") },
        );
        bad.push(
          { path: `${alg}/pem`, text: await token(alg, other.privateKey) },
          { path: `${alg}/file`, text: await token(alg, other.privateKey, { sub: "ann" }, "other") },
        );
        bad.push({ path: `${alg}/pem`, text: await token("HS256", Buffer.from(pem)) });
      }
      const { port } = await startBuilt(oneService(origin.port, { routes: routes as [] }));
      for (const { path, text } of good) expect(`${path} ${await status(port, path, text)}`).toBe(`${path} 200`);
      for (const { path, text } of bad) expect(`${path} ${await status(port, path, text)}`).toBe(`${path} 401`);
      expect(origin.seen).toHaveLength(good.length);
      for (const { headers } of origin.seen) expect(headers).toEqual(expect.arrayContaining(["X-User", "ann"]));
    },
  );

  it("tokens made by jose get 401 if they have a crit header", async () => {
    const origin = await backend();
    const { privateKey, publicKey } = await jose.generateKeyPair("ES256", { extractable: true });
    const { port } = await startBuilt(
      oneService(origin.port, {
        plugins: [{ name: "jwt", config: { alg: "ES256", public_key: await jose.exportSPKI(publicKey) } }],
      }),
    );
    const text = await new jose.SignJWT({})
      .setProtectedHeader({ alg: "ES256", crit: ["b64"], b64: true })
      .setExpirationTime(inAnHour())
      .sign(privateKey);
    expect(await status(port, "x", text)).toBe(401);
  });

  it("tokens made by jose pass with the keys of a jwks_uri, also after a key rotation", async () => {
    const origin = await backend();
    const old = await jose.generateKeyPair("RS256", { extractable: true });
    const fresh = await jose.generateKeyPair("RS256", { extractable: true });
    const published = async (pair: { publicKey: unknown }, kid: string) => ({
      ...(await jose.exportJWK(pair.publicKey)),
      kid,
      use: "sig",
      alg: "RS256",
    });
    let keys = [await published(old, "old")];
    const issuer = await backend(
      (_request, response) => void response.setHeader("Content-Type", "application/json").end(JSON.stringify({ keys })),
    );
    const clock = manualClock();
    const config = oneService(origin.port, {
      plugins: [{ name: "jwt", config: { alg: "RS256", jwks_uri: `http://127.0.0.1:${issuer.port}/keys` } }],
    });
    const { port } = await running(config, { clock });
    expect(await status(port, "x", await token("RS256", old.privateKey, {}, "old"))).toBe(200);
    keys = [await published(old, "old"), await published(fresh, "new")];
    clock.advance(10_000);
    expect(await status(port, "x", await token("RS256", fresh.privateKey, {}, "new"))).toBe(200);
    keys = [await published(fresh, "new")];
    clock.advance(10_000);
    expect(await status(port, "x", await token("RS256", old.privateKey, {}, "gone"))).toBe(401);
    expect(await status(port, "x", await token("RS256", old.privateKey, {}, "old"))).toBe(401);
    expect(await status(port, "x", await token("RS256", fresh.privateKey, {}, "new"))).toBe(200);
    expect(issuer.seen).toHaveLength(3);
  });
});

import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { backend, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder, startBuilt } from "./built.ts";

/** The parts of `oidc-provider` that are used here; without the package this file still compiles. */
interface Provider {
  callback(): RequestListener;
  readonly Client: { find(id: string): Promise<object> };
  readonly Grant: new (of: object) => { save(): Promise<string> };
  readonly AccessToken: new (of: object) => { save(): Promise<string> };
}

const KEYS: readonly (readonly [alg: string, key: KeyObject])[] = [
  ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey],
  ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey],
  ["ES384", generateKeyPairSync("ec", { namedCurve: "P-384" }).privateKey],
  ["ES512", generateKeyPairSync("ec", { namedCurve: "P-521" }).privateKey],
  ["EdDSA", generateKeyPairSync("ed25519").privateKey],
];
/** With characters that a form encodes. */
const [ID, SECRET] = ["the gateway:1", "a+b%/=& secret of thirty-two bytes"];
const APP = "app";

/** An oidc-provider, and how often it was asked about tokens. */
async function provider() {
  const path = createRequire(import.meta.url).resolve("oidc-provider");
  const { default: Own } = (await import(pathToFileURL(path).href)) as {
    default: new (issuer: string, settings: object) => Provider;
  };
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = { grant_types: [], redirect_uris: [], response_types: [] };
  const jwkOf = (key: KeyObject) => ({
    ...key.export({ format: "jwk" }),
    d: undefined,
    p: undefined,
    q: undefined,
    dp: undefined,
    dq: undefined,
    qi: undefined,
  });
  const own = new Own(issuer, {
    clients: [
      { ...client, client_id: APP, client_secret: SECRET, grant_types: ["client_credentials"], scope: "read write" },
      { ...client, client_id: ID, client_secret: SECRET },
      ...KEYS.map(([alg, key]) => ({
        ...client,
        client_id: alg,
        token_endpoint_auth_method: "private_key_jwt",
        token_endpoint_auth_signing_alg: alg,
        jwks: { keys: [{ ...jwkOf(key), kid: "k1" }] },
      })),
    ],
    scopes: ["read", "write"],
    enabledJWA: { clientAuthSigningAlgValues: KEYS.map(([alg]) => alg) },
    features: {
      clientCredentials: { enabled: true },
      revocation: { enabled: true, allowedPolicy: () => true },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
    },
    jwks: { keys: [{ ...KEYS[0]![1].export({ format: "jwk" }), kid: "signing" }] },
    cookies: { keys: ["unused"] },
    ttl: { ClientCredentials: 600, AccessToken: 600, Grant: 600 },
  });
  let questions = 0;
  const answer = own.callback();
  server.on("request", (request, response) => {
    if (request.url === "/token/introspection") questions++;
    answer(request, response);
  });
  const secret = new URLSearchParams([["", SECRET]]).toString().slice(1);
  const basic = `Basic ${Buffer.from(`${APP}:${secret}`).toString("base64")}`;
  const post = (to: string, fields: Record<string, string>) =>
    fetch(issuer + to, { method: "POST", headers: { Authorization: basic }, body: new URLSearchParams(fields) });
  return {
    issuer,
    url: `${issuer}/token/introspection`,
    questions: () => questions,
    /** A token of the app itself. */
    token: async (scope: string) =>
      ((await (await post("/token", { grant_type: "client_credentials", scope })).json()) as { access_token: string })
        .access_token,
    /** A token of the app for a user. */
    userToken: async (accountId: string, expiresIn = 600) => {
      const grantId = await new own.Grant({ accountId, clientId: APP }).save();
      return new own.AccessToken({
        accountId,
        client: await own.Client.find(APP),
        grantId,
        gty: "authorization_code",
        scope: "read",
        expiresIn,
      }).save();
    },
    revoke: async (token: string) => expect((await post("/token/revocation", { token })).status).toBe(200),
  };
}

const status = async (port: number, path: string, token: string) =>
  (await ask(port, { path: `/a/${path}`, headers: { Authorization: `Bearer ${token}` } })).status;

describe("tokens of oidc-provider", () => {
  it(
    "tokens of oidc-provider pass the built gateway until they are revoked, " +
      "as their user or client, and with their scopes",
    async () => {
      const server = await provider();
      const origin = await backend();
      const config = {
        url: server.url,
        client_id: ID,
        client_secret: SECRET,
        claims: { iss: server.issuer },
        claims_to_headers: { sub: "X-User", client_id: "X-Client" },
        cache_s: 0,
        negative_cache_s: 0,
        timeout_ms: 20_000,
      };
      const route = (path: string, more: object = {}) => ({
        path,
        plugins: [{ name: "introspection", config: { ...config, ...more } }],
      });
      const { port } = await startBuilt(
        oneService(origin.port, {
          routes: [
            route("/any"),
            route("/write", { scopes: ["write"] }),
            route("/other", { claims: { iss: "https://other.example" } }),
          ],
        }),
      );
      const [app, user] = [await server.token("read write"), await server.userToken("ann")];
      expect([
        await status(port, "any", app),
        await status(port, "write", app),
        await status(port, "any", user),
        await status(port, "write", user),
      ]).toEqual([200, 200, 200, 403]);
      expect(
        origin.seen.map(({ headers }) => [headerValue(headers, "x-user"), headerValue(headers, "x-client")]),
      ).toEqual([
        [undefined, APP],
        [undefined, APP],
        ["ann", APP],
      ]);
      expect([
        await status(port, "other", app),
        await status(port, "any", `${app}x`),
        await status(port, "any", "made-up"),
      ]).toEqual([401, 401, 401]);
      await server.revoke(app);
      expect([await status(port, "any", app), await status(port, "any", user)]).toEqual([401, 200]);
    },
  );

  it("tokens of oidc-provider are asked about once while they are remembered", async () => {
    const server = await provider();
    const origin = await backend();
    const config = { url: server.url, client_id: ID, client_secret: SECRET, timeout_ms: 20_000 };
    const { port } = await startBuilt(oneService(origin.port, { plugins: [{ name: "introspection", config }] }));
    const token = await server.userToken("ann");
    expect(await Promise.all(Array.from({ length: 20 }, () => status(port, "x", token)))).toEqual(
      Array.from({ length: 20 }, () => 200),
    );
    expect(await Promise.all(Array.from({ length: 20 }, () => status(port, "x", "made-up")))).toEqual(
      Array.from({ length: 20 }, () => 401),
    );
    expect(server.questions()).toBe(2);
  });

  it(
    "oidc-provider accepts the gateway's assertion by every type of key, for the endpoint and for the issuer, " +
      "and refuses a wrong key or secret",
    async () => {
      const server = await provider();
      const origin = await backend();
      const folder = emptyFolder();
      const routes = KEYS.flatMap(([alg, key], i) => {
        const file = join(folder, `${alg}.pem`);
        writeFileSync(file, key.export({ type: "pkcs8", format: "pem" }));
        const config = {
          url: server.url,
          client_id: alg,
          client_key: file,
          client_key_id: "k1",
          cache_s: 0,
          timeout_ms: 20_000,
        };
        return [
          { path: `/${alg}/url`, plugins: [{ name: "introspection", config }] },
          {
            path: `/${alg}/issuer`,
            plugins: [{ name: "introspection", config: { ...config, assertion_audience: server.issuer } }],
          },
          {
            path: `/${alg}/wrong`,
            plugins: [{ name: "introspection", config: { ...config, client_id: KEYS[(i + 1) % KEYS.length]![0] } }],
          },
        ];
      });
      const wrong = { url: server.url, client_id: ID, client_secret: "another secret", timeout_ms: 20_000 };
      const { port } = await startBuilt(
        oneService(origin.port, {
          routes: [...routes, { path: "/wrong", plugins: [{ name: "introspection", config: wrong }] }],
        }),
      );
      const token = await server.token("read");
      for (const [alg] of KEYS) {
        const statuses = [
          await status(port, `${alg}/url`, token),
          await status(port, `${alg}/url`, token),
          await status(port, `${alg}/issuer`, token),
          await status(port, `${alg}/wrong`, token),
        ];
        expect([alg, ...statuses]).toEqual([alg, 200, 200, 200, 503]);
      }
      expect(await status(port, "wrong", token)).toBe(503);
    },
  );
});

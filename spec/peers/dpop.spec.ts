/** DPoP: tokens of oidc-provider, clients of other authors, and replays over workers and gateways. */
import { createHash, type webcrypto } from "node:crypto";
import { describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { dpopClient, SECRET } from "../support/dpop.ts";
import { backend, oneService } from "../support/gateway.ts";
import { APP, APP_SECRET, authorizationServer, peer } from "./authorization_server.ts";
import { startBuilt } from "./built.ts";
import { redis } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

/** The parts of `oauth4webapi`, `dpop` and `jose` that are used here; without them this file still compiles. */
interface OAuth {
  readonly allowInsecureRequests: symbol;
  readonly WWWAuthenticateChallengeError: new () => Error;
  ClientSecretPost(secret: string): unknown;
  DPoP(client: object, keys: webcrypto.CryptoKeyPair): unknown;
  clientCredentialsGrantRequest(...given: unknown[]): Promise<Response>;
  processClientCredentialsResponse(
    server: object,
    client: object,
    response: Response,
  ): Promise<{
    readonly access_token: string;
    readonly token_type: string;
  }>;
  protectedResourceRequest(...given: unknown[]): Promise<Response>;
}
interface DpopPackage {
  generateKeyPair(alg: string): Promise<webcrypto.CryptoKeyPair>;
  generateProof(
    keys: webcrypto.CryptoKeyPair,
    htu: string,
    htm: string,
    nonce: string | undefined,
    accessToken: string,
  ): Promise<string>;
}
interface Jose {
  calculateJwkThumbprint(jwk: unknown): Promise<string>;
  exportJWK(key: webcrypto.CryptoKey): Promise<object>;
  SignJWT: new (claims: object) => {
    setProtectedHeader(header: object): { setIssuedAt(): { sign(key: webcrypto.CryptoKey): Promise<string> } };
  };
}

const RESOURCE = "https://api.example.com/orders";

/** A client of the server with keys of its own, and a token that is bound to them. */
async function boundClient(issuer: string, keys: webcrypto.CryptoKeyPair) {
  const oauth = await peer<OAuth>("oauth4webapi");
  const [server, client] = [{ issuer, token_endpoint: `${issuer}/token` }, { client_id: APP }];
  const insecure = { [oauth.allowInsecureRequests]: true };
  const handle = oauth.DPoP(client, keys);
  const request = (handled: object) =>
    oauth.clientCredentialsGrantRequest(
      server,
      client,
      oauth.ClientSecretPost(APP_SECRET),
      new URLSearchParams({ resource: RESOURCE, scope: "read" }),
      { ...insecure, ...handled },
    );
  const response = await request({ DPoP: handle });
  if (!response.ok) throw new Error(await response.text());
  const { access_token: token, token_type: type } = await oauth.processClientCredentialsResponse(
    server,
    client,
    response,
  );
  expect(type).toMatch(/^dpop$/i);
  return {
    oauth,
    token,
    ask: (url: string, own: object = { DPoP: handle }) =>
      oauth.protectedResourceRequest(token, "GET", new URL(url), undefined, undefined, { ...insecure, ...own }),
  };
}

describe("tokens of oidc-provider that are bound to a key", () => {
  it.each(["ES256", "RS256", "PS256", "Ed25519"])(
    "pass with proofs of oauth4webapi, dpop and jose by a key for %s, each proof once, and as Bearer not at all",
    async (alg) => {
      const [dpop, jose] = [await peer<DpopPackage>("dpop"), await peer<Jose>("jose")];
      const { issuer } = await authorizationServer("read write");
      const origin = await backend();
      const config = { algs: ["RS256"], jwks_uri: `${issuer}/jwks`, iss: issuer, aud: RESOURCE, dpop: "accept" };
      const { url } = await startBuilt(oneService(origin.port, { plugins: [{ name: "jwt", config }] }));
      const keys = await dpop.generateKeyPair(alg);
      const { oauth, ask, token } = await boundClient(issuer, keys);
      expect((await ask(`${url}/a/x?page=2`)).status).toBe(200);
      expect((await ask(`${url}/a/y`)).status).toBe(200);
      await expect(ask(`${url}/a/x`, {})).rejects.toThrow(oauth.WWWAuthenticateChallengeError);

      const sent = async (proof: string) => {
        const headers = { Authorization: `DPoP ${token}`, DPoP: proof };
        return (await fetch(`${url}/a/x`, { headers })).status;
      };
      const proof = await dpop.generateProof(keys, `${url}/a/x`, "GET", undefined, token);
      expect([await sent(proof), await sent(proof)]).toEqual([200, 401]);
      expect(await sent(await dpop.generateProof(keys, `${url}/a/x`, "POST", undefined, token))).toBe(401);

      const jwk = await jose.exportJWK(keys.publicKey);
      const claims = {
        htm: "GET",
        htu: `${url}/a/x`,
        jti: "of jose",
        ath: createHash("sha256").update(token).digest("base64url"),
      };
      const made = await new jose.SignJWT(claims)
        .setProtectedHeader({ typ: "dpop+jwt", alg, jwk })
        .setIssuedAt()
        .sign(keys.privateKey);
      expect(await sent(made)).toBe(200);
      const [, payload] = token.split(".");
      const { cnf } = JSON.parse(Buffer.from(payload!, "base64url").toString()) as { cnf: { jkt: string } };
      expect(await jose.calculateJwkThumbprint(jwk)).toBe(cnf.jkt);
      expect(origin.seen).toHaveLength(4);
    },
  );

  it("opaque ones are known by introspection", async () => {
    const dpop = await peer<DpopPackage>("dpop");
    const { issuer } = await authorizationServer("read write", "opaque");
    const origin = await backend();
    const config = {
      url: `${issuer}/token/introspection`,
      client_id: APP,
      client_secret: APP_SECRET,
      scopes: ["read"],
      dpop: "require",
      timeout_ms: 20_000,
      claims_to_headers: { client_id: "X-Client" },
    };
    const { url } = await startBuilt(oneService(origin.port, { plugins: [{ name: "introspection", config }] }));
    const { oauth, ask } = await boundClient(issuer, await dpop.generateKeyPair("ES256"));
    expect([(await ask(`${url}/a/x`)).status, (await ask(`${url}/a/x`)).status]).toEqual([200, 200]);
    await expect(ask(`${url}/a/x`, {})).rejects.toThrow(oauth.WWWAuthenticateChallengeError);
    const { ask: askAsOther } = await boundClient(issuer, await dpop.generateKeyPair("ES256"));
    expect((await askAsOther(`${url}/a/x`)).status).toBe(200);
    expect(headerValue(origin.seen[0]!.headers, "x-client")).toBe(APP);
  });
});

describe("a proof that is sent several times at once", () => {
  const PROOFS = 20;
  const guarded = (port: number, global: object = {}) => {
    const jwt = { name: "jwt", config: { alg: "HS256", secret: SECRET, dpop: "require" } };
    return oneService(
      port,
      { plugins: [{ name: "probe" }, jwt] } as never,
      { plugin_modules: [probeModule()], trusted_proxies: ["127.0.0.1"], ...global } as never,
    );
  };

  /** How often each of many proofs passes that all these connections send at once. */
  async function passes(clients: readonly Awaited<ReturnType<typeof clientOn>>[]): Promise<number[]> {
    const client = dpopClient();
    const counts: number[] = [];
    for (let i = 0; i < PROOFS; i++) {
      const token = client.token();
      const proof = client.proof("GET", "https://api.example.com/a/x", token);
      const forwarded = { "X-Forwarded-Host": "api.example.com", "X-Forwarded-Proto": "https" };
      const headers = { Authorization: `DPoP ${token}`, DPoP: proof, ...forwarded };
      const answers = await Promise.all(clients.map((each) => each.ask("/a/x", headers)));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 401]));
      counts.push(answers.filter(({ status }) => status === 200).length);
    }
    return counts;
  }

  it("passes once in all workers of a gateway", async () => {
    const { port } = await backend();
    const gateway = await withWorkers(guarded(port), { workers: 2 });
    const workers = await workersOn(gateway.port, 2);
    const clients = await Promise.all(
      [...workers, ...workers].map((worker) => clientOn(gateway.port, (each) => each === worker)),
    );
    expect(await passes(clients)).toEqual(Array.from({ length: PROOFS }, () => 1));
  });

  it("passes once in all workers of two gateways that share counters", async () => {
    const server = await redis();
    const { port } = await backend();
    const counters = { store: "redis", url: `redis://127.0.0.1:${server.port}`, timeout_ms: 5_000 };
    const gateways = [
      await withWorkers(guarded(port, { counters }), { workers: 2 }),
      await withWorkers(guarded(port, { counters }), { workers: 2 }),
    ];
    const clients = await Promise.all(
      gateways.flatMap((gateway) => [0, 1, 2].map(() => clientOn(gateway.port, (worker) => worker > 0))),
    );
    expect(await passes(clients)).toEqual(Array.from({ length: PROOFS }, () => 1));
    const keys = (await server.cli("KEYS", "*")).split("\n");
    expect(keys).toHaveLength(PROOFS);
    const lives = await Promise.all(keys.map((key) => server.cli("PTTL", key)));
    for (const life of lives) expect(Number(life)).toBeLessThanOrEqual(180_000);
  });
});

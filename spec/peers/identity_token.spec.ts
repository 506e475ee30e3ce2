import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { backend, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { emptyFolder, PROGRAM, startBuilt } from "./built.ts";
import { nodeOf } from "./nodes.ts";

/** The parts of `jose` that are used here; without the package this file still compiles. */
interface Jose {
  createRemoteJWKSet(url: URL, options: { cooldownDuration: number; cacheMaxAge: number }): unknown;
  jwtVerify(
    token: string,
    keys: unknown,
    options: object,
  ): Promise<{ payload: Record<string, unknown>; protectedHeader: { kid: string } }>;
}
let jose: Jose;
beforeAll(async () => {
  const path = createRequire(import.meta.url).resolve("jose");
  jose = (await import(pathToFileURL(path).href)) as unknown as Jose;
});

const pem = () => String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));

describe("an upstream that verifies tokens with jose", () => {
  it.each([1, 2])(
    "an upstream that verifies tokens with jose knows the caller by /jwks.json, " +
      "also while keys are replaced (%s threads)",
    async (workers) => {
      const origin = await backend();
      const [old, next] = [pem(), pem()];
      const file = join(emptyFolder(), "ed25519.pem");
      writeFileSync(file, old);
      const plugins = [
        { name: "key_auth", config: { keys: ["ada", "bob"].map((id) => ({ id, key: `key of ${id}` })) } },
        { name: "identity_token", config: { key: file, issuer: "edge", audience: "orders" } },
      ];
      const program = [workers === 1 ? process.execPath : nodeOf(24), PROGRAM];
      const { port, probeUrl } = await startBuilt(
        oneService(origin.port, { plugins }),
        { PROBE_PORT: "0", WORKERS: String(workers) },
        program,
      );
      const keys = jose.createRemoteJWKSet(new URL("/jwks.json", probeUrl!), { cooldownDuration: 0, cacheMaxAge: 0 });
      const options = {
        issuer: "edge",
        audience: "orders",
        algorithms: ["EdDSA"],
        typ: "JWT",
        requiredClaims: ["sub", "groups", "iat", "exp", "jti"],
        maxTokenAge: 60,
      };
      const verified = async (id: string) => {
        expect(
          (await ask(port, { path: "/a/x", headers: { apiKey: `key of ${id}`, "X-Caller-Token": "forged" } })).status,
        ).toBe(200);
        return jose.jwtVerify(headerValue(origin.seen.at(-1)!.headers, "x-caller-token")!, keys, options);
      };
      const first = await verified("ada");
      expect(first.payload).toMatchObject({ sub: "ada", groups: [] });
      expect((await verified("bob")).payload["sub"]).toBe("bob");
      const token = headerValue(origin.seen.at(-1)!.headers, "x-caller-token")!;
      await expect(jose.jwtVerify(token, keys, { ...options, audience: "billing" })).rejects.toThrow(/aud/);
      await expect(jose.jwtVerify(`${token.slice(0, -8)}AAAAAAA${token.slice(-1)}`, keys, options)).rejects.toThrow(
        /signature/,
      );

      const published = async () =>
        ((await (await fetch(new URL("/jwks.json", probeUrl!))).json()) as { keys: object[] }).keys.length;
      writeFileSync(file, old + next);
      await expect.poll(published).toBe(2);
      expect((await verified("ada")).protectedHeader.kid).toBe(first.protectedHeader.kid);
      writeFileSync(file, next + old);
      await expect.poll(async () => (await verified("ada")).protectedHeader.kid).not.toBe(first.protectedHeader.kid);
      writeFileSync(file, next);
      await expect.poll(published).toBe(1);
      expect((await verified("ada")).payload["sub"]).toBe("ada");
    },
  );
});

/**
 * The plugin kind `identity_token` in a whole gateway: what upstreams get of clients that forge it, and its keys on
 * PROBE_PORT over reloads.
 */
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { PluginInput } from "../../lib/config/model.ts";
import { headerValues } from "../../lib/http/headers.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { emptyFolder, runningProgram } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

const pem = () => String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));

function keyFile(content = pem()): string {
  const path = join(emptyFolder(), "key.pem");
  writeFileSync(path, content);
  return path;
}

const keyAuth = { name: "key_auth", config: { keys: [{ id: "ada", key: "k" }] } };
const plugin = (key: string) => ({ name: "identity_token", config: { key, audience: "orders" } });

const FORGED = [
  ["X-Caller-Token", "forged"],
  ["x-caller-token", "forged"],
  ["X_Caller_Token", "forged"],
  ["X-Caller_Token", "forged"],
].flat();

describe("identity_token", () => {
  it.each(["drop", "allow"])(
    "identity_token is the only one that sets its header, in head and trailers, with underscore_headers %s",
    async (underscores) => {
      const origin = await backend();
      const plugins = [{ ...keyAuth }, plugin(keyFile())];
      const { port } = await running(
        oneService(
          origin.port,
          { plugins, routes: [{ path: "/x" }] },
          { h2c: true, ...(underscores === "allow" && { underscore_headers: "allow" }) },
        ),
      );
      await ask(port, {
        method: "POST",
        path: "/a/x",
        headers: ["apiKey", "k", ...FORGED, "Transfer-Encoding", "chunked"],
        body: "hi",
      });
      const lower = FORGED.map((text) => text.toLowerCase()).slice(0, 2);
      await h2Ask(h2Session(port), {
        method: "POST",
        path: "/a/x",
        headers: { apikey: "k", [lower[0]!]: lower[1]! },
        body: "hi",
        trailers: { [lower[0]!]: lower[1]!, "x-more": "stays" },
      });
      expect(origin.seen).toHaveLength(2);
      for (const { headers, trailers } of origin.seen) {
        expect(headerValues(headers, "x-caller-token")).toEqual([
          expect.stringMatching(/^eyJ[\w-]+\.[\w-]+\.[\w-]{86}$/),
        ]);
        expect(JSON.stringify([headers, trailers])).not.toContain("forged");
      }
      expect(origin.seen[1]!.trailers).toContain("x-more");
    },
  );
});

interface Jwks {
  readonly keys: readonly { readonly kid: string; readonly x: string; readonly d?: string }[];
}

describe("GET /jwks.json", () => {
  it(
    "GET /jwks.json on PROBE_PORT has the public keys of the configuration in force, " +
      "and is not there without such a plugin",
    async () => {
      const origin = await backend();
      const file = keyFile();
      const config = (plugins: PluginInput[]) => oneService(origin.port, { plugins });
      const program = await runningProgram(config([keyAuth, plugin(file)]), [], { PROBE_PORT: "0" });
      const probes = Number(new URL(String(program.started.probes)).port);
      const jwks = async () => {
        const { status, headers, body } = await ask(probes, { path: "/jwks.json" });
        return {
          status,
          cache: headers["cache-control"],
          keys: status === 200 ? (JSON.parse(body.toString()) as Jwks).keys : [],
        };
      };
      const first = await jwks();
      expect([first.status, first.cache, first.keys.length]).toEqual([200, "public, max-age=300", 1]);
      expect(first.keys[0]).toEqual({
        kty: "OKP",
        crv: "Ed25519",
        alg: "EdDSA",
        use: "sig",
        x: expect.any(String) as unknown,
        kid: expect.any(String) as unknown,
      });
      expect((await ask(probes, { method: "POST", path: "/jwks.json" })).status).toBe(405);

      const sentKid = async () => {
        await ask(program.port, { path: "/a/x", headers: ["apiKey", "k"] });
        const [token] = headerValues(origin.seen.at(-1)!.headers, "x-caller-token");
        return (JSON.parse(Buffer.from(token!.split(".")[0]!, "base64url").toString()) as { kid: string }).kid;
      };
      expect(await sentKid()).toBe(first.keys[0]!.kid);

      // Two keys: the first one of the file signs.
      writeFileSync(
        program.file,
        JSON.stringify(
          config([
            keyAuth,
            plugin(keyFile(pem())),
            { ...plugin(file), id: "b", config: { ...plugin(file).config, header: "X-Other" } },
          ]),
        ),
      );
      program.child.kill("SIGHUP");
      await expect.poll(async () => (await jwks()).keys.length).toBe(2);
      expect(await sentKid()).not.toBe(first.keys[0]!.kid);

      // A broken file is refused: all stays.
      writeFileSync(program.file, JSON.stringify(config([keyAuth, plugin(keyFile("no key"))])));
      program.child.kill("SIGHUP");
      await program.says(/is not a private key in PEM form/);
      expect((await jwks()).keys).toHaveLength(2);

      writeFileSync(program.file, JSON.stringify(config([keyAuth])));
      program.child.kill("SIGHUP");
      await expect.poll(async () => (await jwks()).status).toBe(404);
    },
  );
});

/** The plugin kind `introspection` in a whole gateway, with an authorization server behind it. */
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { oneService, running } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, client, gate, rawBackend } from "./harness.ts";

/** Calls tokens active that begin with "good", as of the user behind it: "good-ann". */
const authorizationServer = () =>
  backend((_request, response, body) => {
    const token = new URLSearchParams(body.toString()).get("token")!;
    response.end(
      JSON.stringify({
        active: token.startsWith("good-"),
        ...(token.startsWith("good-nobody") ? {} : { sub: token.slice(5) }),
      }),
    );
  });

const plugin = (port: number, config: object = {}) => ({
  name: "introspection",
  config: {
    url: `http://127.0.0.1:${port}/introspect`,
    client_id: "gateway",
    claims_to_headers: { sub: "X-User" },
    timeout_ms: 60_000,
    ...("client_key" in config ? {} : { client_secret: "s" }),
    ...config,
  },
});
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

describe("introspection", () => {
  it(
    "introspection admits callers over HTTP/1.1 and HTTP/2, asks once about a token, " +
      "and is the identity of rate limits",
    async () => {
      const [origin, server] = [await backend(), await authorizationServer()];
      const limit = { name: "rate_limit", config: { limit_hour: 2, limit_by: "credential" } };
      const { port } = await running(oneService(origin.port, { plugins: [plugin(server.port), limit] }, { h2c: true }));
      const session = h2Session(port);
      const overHttp2 = async (token: string) =>
        (await h2Ask(session, { path: "/a/x", headers: bearer(token) })).status;
      const overHttp1 = async (token: string) =>
        (await ask(port, { path: "/a/x", headers: { ...bearer(token), "X-User": "root" } })).status;
      expect([
        await overHttp1("good-ann"),
        await overHttp2("good-ann"),
        await overHttp2("good-ann"),
        await overHttp1("good-bob"),
      ]).toEqual([200, 200, 429, 200]);
      expect([await overHttp1("bad"), await overHttp2("bad")]).toEqual([401, 401]);
      session.close();
      expect(origin.seen.map(({ headers }) => headerValue(headers, "x-user"))).toEqual(["ann", "ann", "bob"]);
      expect([server.seen.length, server.connections.total]).toEqual([3, 1]);
    },
  );

  it("introspection holds a body back until the server has answered, and guards WebSockets", async () => {
    const [origin, server] = [
      await backend((_request, response, body) => void response.end(String(body.length))),
      await authorizationServer(),
    ];
    const { port } = await running(oneService(origin.port, { plugins: [plugin(server.port)] }));
    const sent = await ask(port, {
      method: "POST",
      path: "/a/x",
      body: Buffer.alloc(1024 * 1024, 1),
      headers: bearer("good-ann"),
    });
    expect(sent.body.toString()).toBe(String(1024 * 1024));
    const refused = await client(port);
    refused.send(HANDSHAKE.replace("\r\n", "\r\nAuthorization: Bearer bad\r\n"));
    expect(await refused.closed()).toMatch(/^HTTP\/1\.1 401 /);
    expect(origin.seen).toHaveLength(1);
  });

  it("introspection keeps its answers over a reload, and drops them with other settings", async () => {
    const [origin, server] = [await backend(), await authorizationServer()];
    const config = (name: string, more: object = {}) =>
      oneService(origin.port, { plugins: [plugin(server.port, more)] }, { name });
    const { gateway, port } = await running(config("one"));
    const status = async () => (await ask(port, { path: "/a/x", headers: bearer("good-ann") })).status;
    expect(await status()).toBe(200);
    await gateway.reload(config("two"));
    expect([await status(), server.seen.length]).toEqual([200, 1]);
    await gateway.reload(config("two", { claims: { aud: "shop" } }));
    expect([await status(), server.seen.length]).toEqual([401, 2]);
  });

  it("introspection signs with the new key once the file of client_key has changed", async () => {
    const [origin, server] = [await backend(), await authorizationServer()];
    const file = join(emptyFolder(), "client.key");
    const write = (type: "ed25519" | "ec") =>
      writeFileSync(
        file,
        String(
          (type === "ec"
            ? generateKeyPairSync("ec", { namedCurve: "P-256" })
            : generateKeyPairSync("ed25519")
          ).privateKey.export({ type: "pkcs8", format: "pem" }),
        ),
      );
    write("ed25519");
    const { gateway, port } = await running(
      oneService(origin.port, { plugins: [plugin(server.port, { client_key: file, cache_s: 0 })] }),
    );
    const status = async () => (await ask(port, { path: "/a/x", headers: bearer("good-ann") })).status;
    expect([gateway.files, await status()]).toEqual([[file], 200]);
    write("ec");
    expect([gateway.rereadFiles(), await status()]).toEqual([true, 200]);
    const algorithms = server.seen.map(
      ({ body }) =>
        JSON.parse(
          Buffer.from(
            new URLSearchParams(body.toString()).get("client_assertion")!.split(".")[0]!,
            "base64url",
          ).toString(),
        ).alg as unknown,
    );
    expect(algorithms).toEqual(["EdDSA", "ES256"]);
    writeFileSync(file, "garbage");
    expect(() => gateway.rereadFiles()).toThrow(/is not a private key in PEM form/);
    expect(await status()).toBe(200);
  });

  it(
    "introspection never lets a cache serve one caller the response of another, " +
      "also without a sub and with the token in a cookie",
    async () => {
      const server = await authorizationServer();
      const origin = await backend(
        (request, response) =>
          void response.writeHead(200, { "cache-control": "max-age=60" }).end(`for ${request.headers.cookie!}`),
      );
      const { port } = await running(
        oneService(origin.port, {
          plugins: [{ name: "response_cache" }, plugin(server.port, { token_from: "cookie:t" })],
        }),
      );
      for (const who of ["good-nobody-1", "good-nobody-2", "good-ann", "good-bob"]) {
        expect((await ask(port, { path: "/a/x", headers: { Cookie: `t=${who}` } })).body.toString()).toBe(
          `for t=${who}`,
        );
      }
      expect((await ask(port, { path: "/a/x", headers: { Cookie: "t=bad" } })).status).toBe(401);
    },
  );

  it("introspection leaves nothing behind when the gateway is closed while its server does not answer", async () => {
    const asked = gate();
    const [origin, server] = [await backend(), await rawBackend(() => asked.open())];
    const { gateway, port } = await running(oneService(origin.port, { plugins: [plugin(server.port)] }));
    const leaving = await client(port);
    leaving.send("GET /a/x HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer good-ann\r\n\r\n");
    await asked.opened;
    leaving.socket.destroy();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    await gateway.close(0);
    await eventually(() => server.connections.open === 0, "the connection to the authorization server closing");
    expect(origin.seen).toEqual([]);
  });
});

/** Access tokens that are bound to a key (DPoP) or to a certificate, in a whole gateway. */
import { X509Certificate } from "node:crypto";
import https from "node:https";
import { describe, expect, it } from "vitest";
import type { ConfigInput } from "../../lib/index.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { dpopClient, SECRET, token } from "../support/dpop.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";

const jwt = (config: object = {}) => ({
  name: "jwt",
  config: { alg: "HS256", secret: SECRET, dpop: "accept", ...config },
});
const URL_ASKED = "http://api.example.com/a/x";

async function serving(plugins: readonly object[], global: object = {}) {
  const origin = await backend();
  const config = oneService(origin.port, { plugins } as never, global as ConfigInput["global"]);
  return { ...(await running(config)), origin, config };
}

/** The headers of a request by this client. */
function proven(client: ReturnType<typeof dpopClient>, url = URL_ASKED, accessToken = client.token()) {
  return {
    Host: "api.example.com",
    Authorization: `DPoP ${accessToken}`,
    DPoP: client.proof("GET", url, accessToken),
  };
}

describe("DPoP", () => {
  it("a proof passes once, over HTTP/1.1 and HTTP/2 together, and over a reload", async () => {
    const { port, gateway, origin, config } = await serving([jwt()], { h2c: true });
    const client = dpopClient();
    const { Host, ...headers } = proven(client);
    const statusOf = async () => (await ask(port, { path: "/a/x?q=1", headers: { Host, ...headers } })).status;
    expect([await statusOf(), await statusOf()]).toEqual([200, 401]);
    const session = h2Session(port);
    const overHttp2 = await h2Ask(session, { path: "/a/x", headers: { ":authority": Host, ...headers } });
    session.close();
    expect(overHttp2.status).toBe(401);
    await gateway.reload({ ...config, global: { h2c: true, name: "other" } } as ConfigInput);
    expect(await statusOf()).toBe(401);
    expect((await ask(port, { path: "/a/x", headers: proven(client) })).status).toBe(200);
    expect(origin.seen).toHaveLength(2);
  });

  it("the proof is for the URL at the trusted proxy that ends TLS", async () => {
    const { port } = await serving([jwt()], { trusted_proxies: ["127.0.0.1"] });
    const client = dpopClient();
    const statusOf = async (url: string) => {
      const headers = { ...proven(client, url), Host: "inner.example" };
      const forwarded = { "X-Forwarded-Proto": "https", "X-Forwarded-Host": "api.example.com" };
      return (await ask(port, { path: "/a/x", headers: { ...headers, ...forwarded } })).status;
    };
    expect(await statusOf("https://api.example.com/a/x")).toBe(200);
    expect(await statusOf("http://inner.example/a/x")).toBe(401);
  });

  it("the upstream gets token and proof", async () => {
    const { port, origin } = await serving([jwt()]);
    const headers = proven(dpopClient());
    await ask(port, { path: "/a/x", headers });
    const [seen] = origin.seen;
    expect(headerValue(seen!.headers, "authorization")).toBe(headers.Authorization);
    expect(headerValue(seen!.headers, "dpop")).toBe(headers.DPoP);
  });

  it("metadata of the resource tells clients of DPoP, and its challenge leads there", async () => {
    const metadata = { resource: "https://api.example.com/a", authorization_servers: ["https://id.example.com"] };
    const { port } = await serving([jwt({ dpop: "require", resource_metadata: metadata })]);
    const path = "/.well-known/oauth-protected-resource/a";
    const { body } = await ask(port, { path, headers: { Host: "api.example.com" } });
    expect(JSON.parse(String(body))).toMatchObject({
      dpop_bound_access_tokens_required: true,
      dpop_signing_alg_values_supported: expect.arrayContaining(["ES256", "EdDSA"]) as string[],
    });
    const { headers } = await ask(port, { path: "/a/x" });
    const leads = `resource_metadata="https://api.example.com${path}"`;
    expect(headers["www-authenticate"]).toMatch(new RegExp(`^DPoP realm="edge-gateway", algs="[^"]+", ${leads}$`));
  });

  it("introspection learns from the answer what a token is bound to", async () => {
    const client = dpopClient();
    const answer = { active: true, sub: "ann", cnf: { jkt: client.jkt } };
    const server = await backend((_request, response) => void response.end(JSON.stringify(answer)));
    const config = { url: `http://127.0.0.1:${server.port}/`, client_id: "g", client_secret: "s", timeout_ms: 60_000 };
    const { port } = await serving([{ name: "introspection", config: { ...config, dpop: "accept" } }]);
    const headers = proven(client, URL_ASKED, "opaque");
    const statusOf = async (sent: Record<string, string>) => (await ask(port, { path: "/a/x", headers: sent })).status;
    expect([await statusOf(headers), await statusOf(headers)]).toEqual([200, 401]);
    expect(await statusOf({ Authorization: "Bearer opaque" })).toBe(401);
    expect(await statusOf(proven(dpopClient(), URL_ASKED, "opaque"))).toBe(401);
    expect(await statusOf(proven(client, URL_ASKED, "opaque"))).toBe(200);
    const { port: without } = await serving([{ name: "introspection", config }]);
    expect((await ask(without, { path: "/a/x", headers: { Authorization: "Bearer opaque" } })).status).toBe(401);
  });
});

describe("tokens that are bound to a certificate (RFC 8705)", () => {
  it("pass on connections with this certificate alone", async () => {
    const { gateway } = await serving([jwt()]);
    const { port } = await gateway.listen({
      port: 0,
      tls: {
        cert: Buffer.from(SERVER.cert),
        key: Buffer.from(SERVER.key),
        ca: Buffer.from(CA.cert),
        requireClientCert: false,
      },
    });
    const digest = new X509Certificate(CLIENT.cert).fingerprint256.replaceAll(":", "");
    const bound = token({ cnf: { "x5t#S256": Buffer.from(digest, "hex").toString("base64url") } });
    const statusOf = (certificate: object, accessToken = bound) =>
      new Promise<number>((resolve, reject) => {
        const headers = { Authorization: `Bearer ${accessToken}` };
        const options = { host: "127.0.0.1", port, path: "/a/x", servername: "localhost", ca: CA.cert, agent: false };
        https
          .get({ ...options, headers, ...certificate }, (response) => {
            response.resume();
            response.on("end", () => resolve(response.statusCode!));
          })
          .on("error", reject);
      });
    expect(await statusOf(CLIENT)).toBe(200);
    expect(await statusOf({})).toBe(401);
    expect(await statusOf(CLIENT, token({ cnf: { "x5t#S256": "A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0" } }))).toBe(
      401,
    );
  });
});

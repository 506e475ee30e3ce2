/** What a client says about whom it forwards for counts only if it is a trusted proxy. */
import { text } from "node:stream/consumers";
import tls from "node:tls";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { running } from "../support/gateway.ts";
import { SERVER } from "../support/certs.ts";
import { h2Ask, h2Session, h2TlsSession } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

const FORGED = { "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7", "X-Real-IP": "192.0.2.7" };
/** Nobody who sends requests here. */
const ELSEWHERE = ["10.9.9.9"];

const ON_HEADER = { headers: { "X-Forwarded-Proto": "https" } };

async function gateway(trusted: readonly string[], match: object = ON_HEADER) {
  const [plain, secure] = [
    await backend((_request, response) => void response.end("plain")),
    await backend((_request, response) => void response.end("secure")),
  ];
  const service = (name: string, port: number, route: object) => ({
    name,
    base_path: "/a",
    upstreams: [{ host: "127.0.0.1", port }],
    routes: [{ name, path: "/x", ...route }],
  });
  const config = {
    global: { h2c: true, trusted_proxies: trusted },
    services: [service("plain", plain.port, {}), service("secure", secure.port, { match })],
  };
  return running(config as unknown as AnyConfigInput);
}

describe("headers of proxies", () => {
  it.each([
    ["a client", "them", ELSEWHERE, ON_HEADER, "plain"],
    ["a trusted proxy", "them", ["127.0.0.1"], ON_HEADER, "secure"],
    ["a client", "the scheme", ELSEWHERE, { scheme: "https" }, "plain"],
    ["a trusted proxy", "the scheme", ["127.0.0.1"], { scheme: "https" }, "secure"],
  ])(
    "headers of proxies that %s sends lead to a route with a condition on %s, or not",
    async (_who, _what, trusted, match, answer) => {
      const { port, gateway: running } = await gateway(trusted, match);
      expect((await ask(port, { path: "/a/x", headers: FORGED })).body.toString()).toBe(answer);
      const lower = Object.fromEntries(Object.entries(FORGED).map(([name, value]) => [name.toLowerCase(), value]));
      expect((await h2Ask(h2Session(port), { path: "/a/x", headers: lower })).body.toString()).toBe(answer);
      expect((await running.inject({ url: "/a/x", headers: FORGED })).body.toString()).toBe(answer);
      expect((await running.explain({ method: "GET", url: "/a/x", headers: FORGED })).route).toBe(answer);
    },
  );

  it("a condition on the scheme holds on a listener for HTTPS, of HTTP/1.1 and HTTP/2", async () => {
    const { gateway: running } = await gateway(ELSEWHERE, { scheme: "https" });
    expect((await running.inject({ url: "https://h/a/x" })).body.toString()).toBe("secure");
    const { port } = await running.listen({
      port: 0,
      tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
    });
    expect((await h2Ask(await h2TlsSession(port), { path: "/a/x" })).body.toString()).toBe("secure");
    const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
    socket.write("GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    expect(await text(socket)).toMatch(/secure$/);
  });
});

/** What a client says about whom it forwards for counts only if it is a trusted proxy. */
import { describe, expect, it } from "vitest";
import type { ConfigInput } from "../../lib/config/model.ts";
import { running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

const FORGED = { "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7", "X-Real-IP": "192.0.2.7" };
/** Nobody who sends requests here. */
const ELSEWHERE = ["10.9.9.9"];

async function gateway(trusted: readonly string[]) {
  const [plain, secure] = [await backend((_request, response) => void response.end("plain")), await backend((_request, response) => void response.end("secure"))];
  const service = (name: string, port: number, route: object) => ({ name, base_path: "/a", upstreams: [{ host: "127.0.0.1", port }], routes: [{ name, path: "/x", ...route }] });
  const config = {
    global: { h2c: true, trusted_proxies: trusted },
    services: [service("plain", plain.port, {}), service("secure", secure.port, { match: { headers: { "X-Forwarded-Proto": "https" } } })],
  };
  return running(config as unknown as ConfigInput);
}

describe("headers of proxies", () => {
  it.each([["a client", ELSEWHERE, "plain"], ["a trusted proxy", ["127.0.0.1"], "secure"]])("headers of proxies that %s sends lead to a route with a condition on them, or not", async (_who, trusted, answer) => {
    const { port, gateway: running } = await gateway(trusted);
    expect((await ask(port, { path: "/a/x", headers: FORGED })).body.toString()).toBe(answer);
    const lower = Object.fromEntries(Object.entries(FORGED).map(([name, value]) => [name.toLowerCase(), value]));
    expect((await h2Ask(h2Session(port), { path: "/a/x", headers: lower })).body.toString()).toBe(answer);
    expect((await running.inject({ url: "/a/x", headers: FORGED })).body.toString()).toBe(answer);
    expect((await running.explain({ method: "GET", url: "/a/x", headers: FORGED })).route).toBe(answer);
  });
});

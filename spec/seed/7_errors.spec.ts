import { describe, expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { json, fullGateway } from "./full_gateway.ts";

const config = (port: number, enabled = true) => ({
  services: [
    {
      name: "s",
      base_path: "/s",
      upstreams: [{ host: "127.0.0.1", port }],
      routes: [{ path: "/r", plugins: [{ name: "key_auth", enabled, config: { key: "k" } }] }],
    },
  ],
});

describe("7. Errors", () => {
  it("answers 401 Unauthorized when key_auth is enabled and the apiKey is missing", async () => {
    const { proxy } = await fullGateway(config(9));
    const answer = await proxy("/s/r");
    expect([answer.status, answer.reason]).toEqual([401, "Unauthorized"]);
    expect(json(answer).code).toBe("key_missing");
  });

  it("answers 401 Unauthorized when key_auth is enabled and the apiKey differs from the configured key", async () => {
    const { proxy } = await fullGateway(config(9));
    const answer = await proxy("/s/r?apiKey=x");
    expect([answer.status, answer.reason]).toEqual([401, "Unauthorized"]);
    expect(json(answer).code).toBe("key_invalid");
  });

  it("uses one kind of document for every error of the traffic and the admin interface", async () => {
    const { proxy, admin } = await fullGateway(config(9, false));
    const answers = [
      await proxy("/none"),
      await proxy("/s/r"),
      await proxy("/s/%zz"),
      await admin("GET", "/gateway"),
      await admin("GET", "/none"),
      await admin("PUT", "/login"),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 502, 400, 401, 404, 405]);
    for (const answer of answers) {
      expect(answer.headers["content-type"]).toBe("application/problem+json");
      expect(json(answer)).toMatchObject({
        type: "about:blank",
        title: expect.any(String) as string,
        status: answer.status,
        code: expect.any(String) as string,
      });
      expect(json(answer).request_id).toBe(answer.headers["x-request-id"]);
    }
  });

  it("passes an upstream's own 401 on unchanged", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(401, { "Content-Type": "text/plain" });
      response.end("mine");
    });
    const answer = await (await fullGateway(config(origin.port))).proxy("/s/r?apiKey=k");
    expect([answer.status, answer.headers["content-type"], answer.body.toString()]).toEqual([
      401,
      "text/plain",
      "mine",
    ]);
  });
});

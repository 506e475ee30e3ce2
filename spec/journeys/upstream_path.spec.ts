import { once } from "node:events";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

const ROUTES = [{ path: "/users/{id}", upstream_path: "/v2/people/{id}" }, { path: "/{rest*}" }];

const headerOf = (headers: readonly string[], name: string) =>
  headers[headers.findIndex((each, i) => i % 2 === 0 && each.toLowerCase() === name) + 1];

describe("upstream_path", () => {
  it("is what an upstream gets, with the query byte for byte and the prefix of base_path", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port, { upstream_path: "/api", routes: ROUTES }));
    await ask(port, { method: "GET", path: "/a/users/x%20y%3Bz?q=%2F&&b=+" });
    await ask(port, { method: "POST", path: "/a/other/?x" });
    expect(
      upstream.seen.map(({ method, url, headers }) => [method, url, headerOf(headers, "x-forwarded-prefix")]),
    ).toEqual([
      ["GET", "/api/v2/people/x%20y%3Bz?q=%2F&&b=+", "/a"],
      ["POST", "/api/other/?x", "/a"],
    ]);
  });

  it("is what an upstream gets over HTTP/2", async () => {
    const server = http2.createServer((request, response) => void response.end(request.url)).listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const { port } = await running(
      oneService((server.address() as AddressInfo).port, { upstream_path: "/api", routes: ROUTES, protocol: "h2c" }),
    );
    expect(String((await ask(port, { method: "GET", path: "/a/users/7?x" })).body)).toBe("/api/v2/people/7?x");
  });

  it("is shown by explain, compared by tests, and logged beside the path of the client", async () => {
    const upstream = await backend();
    let lines = "";
    const tests = [
      { name: "another path", request: { url: "/a/users/7" }, expect: { upstream_path: "/api/v2/people/7" } },
    ];
    const config = { ...oneService(upstream.port, { upstream_path: "/api", routes: ROUTES }), tests };
    const { gateway, port } = await running(config, { accessLog: (text) => void (lines += text) });
    expect(await gateway.explain({ method: "GET", url: "/a/users/7?x=1", headers: {} })).toMatchObject({
      outcome: "matched",
      forwarded: "/api/v2/people/7?x=1",
    });
    expect(await gateway.test()).toMatchObject({ passed: 1, failed: 0 });
    await ask(port, { method: "GET", path: "/a/users/7;token=x?x=1" });
    await gateway.close(0);
    expect(JSON.parse(lines)).toMatchObject({
      path: "/a/users/7;token=[redacted]",
      route: "/users/{id}",
      upstream_path: "/api/v2/people/7;token=[redacted]",
    });
  });

  it("is reloaded: an added, a changed and a removed one holds from the next request on", async () => {
    const upstream = await backend();
    const configOf = (written: string | undefined) =>
      oneService(upstream.port, written === undefined ? {} : { upstream_path: written });
    const { gateway, port } = await running(configOf(undefined));
    for (const written of ["/x", "/y/z", undefined]) {
      await gateway.reload(configOf(written));
      await ask(port, { method: "GET", path: "/a/b" });
    }
    expect(upstream.seen.map(({ url }) => url)).toEqual(["/x/b", "/y/z/b", "/b"]);
  });
});

import { describe, expect, it } from "vitest";
import type { Explanation } from "../../../lib/manager/assets/admin_types.ts";
import { formOf, testOf } from "../../../lib/manager/assets/test_json.ts";

const REFUSED: Explanation = {
  ...{
    outcome: "refused",
    status: 405,
    code: "method_not_allowed",
    reasons: [],
    candidates: [],
    path: "/shop/items",
    service: null,
    route: null,
  },
  ...{
    pattern: null,
    params: {},
    forwarded: null,
    plugins: [],
    open: false,
    answer: null,
    strategy: null,
    upstreams: [],
  },
};
const REQUEST = { method: "GET", url: "/shop/items", headers: {} };

const matched = (answer: readonly [number, string | null] | null = null, open = false): Explanation => ({
  ...{ ...REFUSED, outcome: "matched", status: null, code: null, service: "shop", route: "list", open },
  answer: answer && { level: "route", name: "p", id: null, rule: null, status: answer[0], code: answer[1] },
});

describe("the test made of an explanation", () => {
  it("expects status and code of a request that is refused before any plugin", () => {
    expect(testOf(REQUEST, REFUSED)).toEqual({
      name: "GET /shop/items gets 405 method_not_allowed",
      request: { method: "GET", url: "/shop/items" },
      expect: { status: 405, code: "method_not_allowed" },
    });
  });

  it("expects the route and the 200 of the upstream if every plugin passes the request on", () => {
    expect(testOf(REQUEST, matched())).toMatchObject({
      name: "GET /shop/items reaches shop, list",
      expect: { status: 200, service: "shop", route: "list" },
    });
  });

  it("expects the route, status and code of the plugin that answers", () => {
    expect(testOf(REQUEST, matched([401, "key_missing"]))).toMatchObject({
      name: "GET /shop/items gets 401 key_missing",
      expect: { status: 401, code: "key_missing", service: "shop", route: "list" },
    });
    expect(testOf(REQUEST, matched([204, null])).expect).toEqual({ status: 204, service: "shop", route: "list" });
  });

  it("expects no status where a plugin may decide otherwise, also before another one answers", () => {
    for (const answer of [null, [429, "rate_limited"] as const])
      expect(testOf(REQUEST, matched(answer, true)).expect).toEqual({ service: "shop", route: "list" });
  });

  it("has a name of at most 200 characters", () => {
    expect(testOf({ ...REQUEST, url: `/${"x".repeat(500)}` }, REFUSED).name).toHaveLength(200);
  });

  it("has headers, body and client IP as they were entered", () => {
    const request = { ...REQUEST, headers: { Host: "a.example" }, body: " x\n", client_ip: "203.0.113.9" };
    expect(testOf(request, REFUSED).request).toEqual(request);
  });
});

describe("the form made of a test's request", () => {
  it("has what the page Try it takes, a line for each header, and JSON as text", () => {
    const request = {
      method: "POST",
      url: "https://shop.example.com/a?x=1",
      headers: { Host: "h", Accept: ["a/b", "c/d"] },
      body: { n: [1] },
      client_ip: "203.0.113.9",
      times: 1,
    };
    expect(formOf(request)).toEqual({
      input: {
        method: "POST",
        url: request.url,
        headers: "Host: h\nAccept: a/b\nAccept: c/d",
        clientIp: "203.0.113.9",
        body: '{"n":[1]}',
      },
      missing: [],
    });
    expect(formOf({ url: "/a", body: "$${HOME}" })).toEqual({
      input: { method: "GET", url: "/a", headers: "", clientIp: "", body: "${HOME}" },
      missing: [],
    });
  });

  it("leaves out what is masked, has a reference, or is not sent here, and says so of each", () => {
    const headers = { apikey: "********", Authorization: "Bearer ${env:TOKEN}", Accept: "$${env:A}" };
    const request = {
      url: "/a?key=********",
      headers,
      body: { password: "${file:/p}" },
      as: { caller: "c" },
      certificate: { subject: "CN=a" },
      times: 3,
      every_ms: 9,
      trailers: {},
    };
    const { input, missing } = formOf(request);
    expect(input).toEqual({ method: "GET", url: "", headers: "Accept: ${env:A}", clientIp: "", body: "" });
    expect(missing).toEqual([
      "The header apikey is masked for you.",
      "The header Authorization has a reference, which tests alone resolve.",
      "The URL is masked for you.",
      "The body has a reference, which tests alone resolve.",
      expect.stringContaining("“as”"),
      expect.stringContaining("certificate"),
      expect.stringContaining("3 times"),
      expect.stringContaining("“trailers”"),
    ]);
  });
});

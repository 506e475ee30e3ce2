import { describe, expect, it } from "vitest";
import { headerValue } from "../../lib/http/headers.ts";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { redirect } from "../../lib/plugins/redirect.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, problemOf } from "../support/exercise.ts";

function ask(config: unknown, parts: Partial<ExchangeParts> = {}) {
  const { returned, forwarded } = exercise(instance(redirect, config), madeUpExchange(parts));
  expect(forwarded).toBeNull();
  const { status, headers, body } = atOnce(returned);
  expect([body, headerValue(headers, "content-length")]).toEqual([null, "0"]);
  return { status, location: headerValue(headers, "location") };
}

describe("redirect", () => {
  it("answers 308 with the location, without an upstream", () => {
    expect(ask({ location: "/new" })).toEqual({ status: 308, location: "/new" });
  });

  it.each([301, 302, 303, 307, 308])("answers %i when it is configured", (status) => {
    expect(ask({ status, location: "/new" }).status).toBe(status);
  });

  it("fills in parameters of the path as they matched", () => {
    expect(ask({ location: "https://new.example/items/{id}" }, { params: { id: "a%20b" } }).location).toBe(
      "https://new.example/items/a%20b",
    );
  });

  it.each([
    ["/new", "", "/new"],
    ["/new", "?", "/new"],
    ["/new", "?a=%7e+&&b", "/new?a=%7e+&&b"],
    ["/new?x=1", "?a=1", "/new?x=1&a=1"],
    ["/new#part", "?a=1", "/new?a=1#part"],
    ["/new", '?a="<é', "/new?a=%22%3C%E9"],
  ])("the location %s keeps the query %s", (location, query, expected) => {
    expect(ask({ location }, { query }).location).toBe(expected);
  });

  it("drops the query with keep_query false", () => {
    expect(ask({ location: "/new?x=1", keep_query: false }, { query: "?a=1" }).location).toBe("/new?x=1");
  });

  it.each([
    "https://${request.host}${request.path}",
    "http://${request.host}:8080/x",
    "//${request.host}",
    "https://${request.host}?x=1",
  ])("the location %s answers 400 to a request that names no host: its path would become one", (location) => {
    const parts = { authority: "", path: "/evil.example", httpVersion: "1.0" };
    const { returned } = exercise(instance(redirect, { location }), madeUpExchange(parts));
    const reply = atOnce(returned);
    expect([reply.status, problemOf(reply)["code"], headerValue(reply.headers, "location")]).toEqual([
      400,
      "bad_request",
      undefined,
    ]);
    expect(ask({ location }, { ...parts, authority: "h.example:80" }).location).toMatch(/\/\/h\.example/);
  });

  it.each<[string, unknown, RegExp]>([
    ["no location", {}, /location: is required/],
    ["another status", { location: "/", status: 304 }, /status: expected 301, 302, 303, 307 or 308, found 304/],
    [
      "a location that a client could choose",
      { location: "{rest}" },
      /location: \{rest\} would choose where to redirect/,
    ],
  ])("redirect reports %s as a configuration error", (_, config, message) => {
    const { issues } = checked(redirect.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});

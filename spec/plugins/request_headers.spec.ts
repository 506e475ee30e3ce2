import { describe, expect, it } from "vitest";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { requestHeaders } from "../../lib/plugins/request_headers.ts";
import { checked, exercise, instance, madeUpExchange, plainReply } from "../support/exercise.ts";

function forwarded(config: unknown, headers: string[], parts: Partial<ExchangeParts> = {}): readonly string[] {
  const exchange = madeUpExchange({ ...parts, headers });
  const before = [...headers];
  const seen = exercise(instance(requestHeaders, config), exchange).forwarded!.headers;
  expect(exchange.headers).toEqual(before);
  return seen;
}

describe("the four changes", () => {
  it("remove drops every line of a name, in any case", () => {
    expect(forwarded({ remove: ["X-Debug"] }, ["A", "1", "x-debug", "1", "X-DEBUG", "2", "X-Debugg", "3"])).toEqual([
      "A",
      "1",
      "X-Debugg",
      "3",
    ]);
  });

  it("rename keeps place, value and number of the lines", () => {
    expect(forwarded({ rename: { "x-old": "X-New" } }, ["A", "1", "X-Old", "a", "B", "2", "X-OLD", "b"])).toEqual([
      "A",
      "1",
      "X-New",
      "a",
      "B",
      "2",
      "X-New",
      "b",
    ]);
  });

  it("rename drops headers that have the new name already, where there is something to rename", () => {
    expect(forwarded({ rename: { "X-Old": "X-New" } }, ["X-New", "forged", "X-Old", "a"])).toEqual(["X-New", "a"]);
    expect(forwarded({ rename: { "X-Old": "X-New" } }, ["X-New", "own"])).toEqual(["X-New", "own"]);
  });

  it("rename can swap two names, and change the case of a name", () => {
    expect(forwarded({ rename: { a: "B", b: "A" } }, ["A", "1", "B", "2"])).toEqual(["B", "1", "A", "2"]);
    expect(forwarded({ rename: { "x-a": "X-A" } }, ["x-a", "1"])).toEqual(["X-A", "1"]);
  });

  it("set replaces every line of a name", () => {
    expect(forwarded({ set: { "X-User": "u" } }, ["x-user", "forged", "A", "1", "X-USER", "forged"])).toEqual([
      "A",
      "1",
      "X-User",
      "u",
    ]);
  });

  it("add appends one line, or several", () => {
    expect(forwarded({ add: { "X-A": "2", "X-B": ["3", "4"] } }, ["X-A", "1"])).toEqual([
      "X-A",
      "1",
      "X-A",
      "2",
      "X-B",
      "3",
      "X-B",
      "4",
    ]);
  });

  it("changes run in the order remove, rename, set, add", () => {
    const config = { add: { C: "added" }, set: { C: "set" }, rename: { B: "C", R: "S" }, remove: ["A", "S"] };
    expect(forwarded(config, ["A", "1", "B", "2", "C", "3", "R", "4", "S", "5"])).toEqual([
      "S",
      "4",
      "C",
      "set",
      "C",
      "added",
    ]);
  });

  it("a value that comes out empty makes no header, and set still drops the client's header", () => {
    const config = { set: { "X-User": "${claim.sub}" }, add: { "X-Item": "{id}" } };
    expect(forwarded(config, ["X-User", "forged"])).toEqual([]);
    expect(forwarded(config, ["X-User", "forged"], { claims: { sub: "u" }, params: { id: "7" } })).toEqual([
      "X-User",
      "u",
      "X-Item",
      "7",
    ]);
  });

  it("a line break in a claim does not start another header", () => {
    expect(forwarded({ set: { "X-User": "${claim.sub}" } }, [], { claims: { sub: "u\r\nX-Admin: 1" } })).toEqual([
      "X-User",
      "u??X-Admin: 1",
    ]);
  });
});

describe("passing on", () => {
  it("request_headers returns the same reply or promise that the next handler returned", () => {
    const middleware = instance(requestHeaders, { remove: ["X"] });
    const promise = Promise.resolve(plainReply);
    expect(exercise(middleware, madeUpExchange()).returned).toBe(plainReply);
    expect(exercise(middleware, madeUpExchange(), () => promise).returned).toBe(promise);
  });
});

describe("configuration", () => {
  it.each<[string, unknown, RegExp]>([
    ["nothing to do", {}, /needs at least one of "remove", "rename", "set" and "add"/],
    ["nothing in it", { set: {}, remove: [] }, /needs at least one/],
    ["no name of a header", { remove: ["a b"] }, /remove\[0\]: is not the name of a header/],
    ["Connection", { set: { Connection: "x" } }, /set\.Connection: is a header of a single connection/],
    ["Transfer-Encoding", { remove: ["transfer-encoding"] }, /remove\[0\]: is a header of a single connection/],
    [
      "Content-Length",
      { rename: { "X-A": "Content-Length" } },
      /rename\["X-A"\]: is part of how the message is framed/,
    ],
    ["Host", { set: { host: "x" } }, /set\.host: is the upstream's own, or the client's with "preserve_host"/],
    ["Expect", { remove: ["Expect"] }, /remove\[0\]: is part of how the request is sent/],
    ["X-Forwarded-For", { set: { "X-Forwarded-For": "x" } }, /is set by the gateway itself/],
    ["X-Request-Id", { rename: { "x-request-id": "x" } }, /is set by the gateway itself/],
    ["X-Real-IP", { set: { "X-Real-IP": "${client.ip}" } }, /passes from trusted proxies only/],
    ["a certificate's header", { add: { "X_Client-Cert_Subject": "CN=root" } }, /is set by the plugin "mtls" only/],
    ["a name twice", { set: { "X-A": "1", "x-a": "2" } }, /set\["x-a"\]: occurs twice/],
    ["two names for one", { rename: { "X-A": "X-C", "X-B": "x-c" } }, /rename\["X-B"\]: gets the same name as X-A/],
    ["an empty value", { set: { "X-A": "" } }, /expected a non-empty string/],
    ["an empty list", { add: { "X-A": [] } }, /at least 1 item/],
    [
      "an unknown name in a value",
      { set: { "X-A": "${claims.sub}" } },
      /set\["X-A"\]: .*did you mean \$\{claim\.sub\}/,
    ],
    ["an unknown field", { append: { "X-A": "1" } }, /append: is not a known field/],
  ])("request_headers reports %s as a configuration error", (_, config, message) => {
    const { issues } = checked(requestHeaders.schema, config);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });

  it("certificate headers may be renamed or removed", () => {
    expect(
      checked(requestHeaders.schema, {
        rename: { "X-Client-Cert-Subject": "X-Subject" },
        remove: ["X-Client-Cert-SAN"],
      }).issues,
    ).toEqual([]);
  });
});

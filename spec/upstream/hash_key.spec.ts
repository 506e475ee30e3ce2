import { describe, expect, it } from "vitest";
import { hashKey } from "../../lib/upstream/hash.ts";
import { madeUpExchange } from "../support/exercise.ts";

const from = (hashOn: string, parts: Parameters<typeof madeUpExchange>[0]) => hashKey(hashOn)(madeUpExchange(parts));

describe("hashKey", () => {
  it.each([
    [
      "header:X-Tenant",
      { headers: ["x-tenant", "acme"] },
      { headers: ["Accept", "*/*", "X-TENANT", "acme"] },
      { headers: ["X-Tenant", "other"] },
      { headers: ["X-Tenant", ""] },
    ],
    [
      "cookie:session",
      { headers: ["Cookie", "session=1"] },
      { headers: ["Cookie", "x=y; session=1"] },
      { headers: ["Cookie", "session=2"] },
      { headers: ["Cookie", "session=; Session=1"] },
    ],
    [
      "param:user",
      { params: { user: "ada" } },
      { params: { user: "ada", other: "x" } },
      { params: { user: "bob" } },
      { params: { other: "ada" } },
    ],
    [
      "credential",
      { identity: "ada" },
      { identity: "ada", clientAddress: "192.0.2.9" },
      { identity: "bob" },
      { identity: null },
    ],
    [
      "client_ip",
      { clientAddress: "192.0.2.1" },
      { clientAddress: "::ffff:192.0.2.1" },
      { clientAddress: "192.0.2.2" },
      null,
    ],
  ])(
    "%s: equal values have one key, other values another, and a request without the value has none",
    (hashOn, one, same, other, without) => {
      expect(from(hashOn, one)).toBe(from(hashOn, same));
      expect(from(hashOn, one)).not.toBe(from(hashOn, other));
      expect(from(hashOn, one)).toSatisfy((key: number) => Number.isInteger(key) && key >= 0 && key < 2 ** 32);
      if (without !== null) expect(from(hashOn, without)).toBeNull();
    },
  );

  it("takes the first of several headers, and the first cookie of that name which has a value", () => {
    expect(from("header:X-Tenant", { headers: ["X-Tenant", "a", "X-Tenant", "b"] })).toBe(
      from("header:X-Tenant", { headers: ["X-Tenant", "a"] }),
    );
    expect(from("cookie:c", { headers: ["Cookie", "c=; c=1", "Cookie", "c=2"] })).toBe(
      from("cookie:c", { headers: ["Cookie", "c=1"] }),
    );
  });

  it("takes the host from where each version of HTTP has it", () => {
    expect(from("header:Host", { authority: "a.example", headers: [] })).toBe(
      from("header:host", { authority: "a.example", headers: ["Host", "a.example"] }),
    );
    expect(from("header:Host", { authority: "a.example" })).not.toBe(from("header:Host", { authority: "b.example" }));
    expect(from("header:Host", { authority: "" })).toBeNull();
  });

  it("has no value for a parameter that only JavaScript objects have", () => {
    expect(from("param:constructor", { params: {} })).toBeNull();
  });

  it("gives the same number in every gateway, so that several agree", () => {
    expect(from("header:X-Tenant", { headers: ["X-Tenant", "acme"] })).toBe(2019603394);
    expect(from("client_ip", { clientAddress: "2001:db8:1:2::1" })).toBe(
      from("client_ip", { clientAddress: "2001:db8:1:2:ffff::9" }),
    );
  });

  it("spreads similar values over all numbers", () => {
    const places = new Array<number>(16).fill(0);
    for (let i = 0; i < 16_000; i++) places[from("credential", { identity: `user-${i}` })! >>> 28]!++;
    expect(Math.min(...places)).toBeGreaterThan(850);
    expect(Math.max(...places)).toBeLessThan(1150);
  });
});

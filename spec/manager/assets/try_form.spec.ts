import { describe, expect, it } from "vitest";
import { readTryForm, type TryInput } from "../../../lib/manager/assets/try_form.ts";

const read = (form: Partial<TryInput>) =>
  readTryForm({ method: "GET", url: "/shop", headers: "", clientIp: "", body: "", ...form });
const errorsOf = (form: Parameters<typeof read>[0]) => {
  const answer = read(form);
  return "errors" in answer ? answer.errors.map(({ field, message }) => `${field}: ${message}`) : [];
};

describe("the input of the form", () => {
  it("the input of the form becomes a question, without leading and trailing spaces", () => {
    expect(
      read({ method: " POST ", url: " /shop/items?x=1 ", headers: "Host: api.example.com\r\n\n  X-Tenant :  a:b  " }),
    ).toEqual({
      request: { method: "POST", url: "/shop/items?x=1", headers: { Host: "api.example.com", "X-Tenant": "a:b" } },
    });
  });

  it.each(["203.0.113.9", "0.0.0.0", "2001:db8::1", "::", "::ffff:192.0.2.1"])(
    "the form sends the client IP %s, and the body as it was entered",
    (clientIp) => {
      expect(read({ clientIp: ` ${clientIp} `, body: ' {"a": 1}\n' })).toMatchObject({
        request: { client_ip: clientIp, body: ' {"a": 1}\n' },
      });
    },
  );

  it("the form sends neither client IP nor body if the fields are empty", () => {
    expect(read({})).toEqual({ request: { method: "GET", url: "/shop", headers: {} } });
  });

  it("the input of the form accepts an absolute URL", () =>
    expect(errorsOf({ url: "https://api.example.com:8443/v1" })).toEqual([]));

  it("the input of the form joins lines of one name, whatever its case, and cookies by semicolons", () => {
    expect(read({ headers: "Accept: a\naccept: b\nCookie: x=1\ncookie: y=2" })).toMatchObject({
      request: { headers: { Accept: "a, b", Cookie: "x=1; y=2" } },
    });
  });

  it("the input of the form treats header names such as __proto__ as plain names", () => {
    const answer = read({ headers: "__proto__: x\nconstructor: y" });
    expect("request" in answer && Object.entries(answer.request.headers)).toEqual([
      ["__proto__", "x"],
      ["constructor", "y"],
    ]);
  });

  it.each([
    [{ method: "" }, /^method: Enter a method/],
    [{ method: "GE T" }, /^method: “GE T” is not a method/],
    [{ url: "" }, /^url: Enter a path/],
    [{ url: "shop" }, /^url: A path starts with “\/”/],
    [{ url: "ftp://x/" }, /^url: A path starts with “\/”/],
    [{ url: "http:///x" }, /^url: A path starts with “\/”/],
    [{ url: "/a b" }, /^url: A path contains no spaces: write %20/],
    [{ url: "/a#b" }, /^url: The fragment after “#”/],
    [{ headers: "Host: a\nbroken" }, /^headers: Line 2: write “Name: value”/],
    [{ headers: ": x" }, /^headers: Line 1: the name before the colon is missing/],
    [{ headers: "a b: x" }, /^headers: Line 1: “a b” is not a header name/],
    [{ headers: "X: a\u0001b" }, /^headers: Line 1: the value of X contains a character that no header can carry/],
    [{ headers: "X: \u2603" }, /^headers: Line 1: the value of X contains a character that no header can carry/],
    [{ url: "/caf\u00e9" }, /^url: A path contains only ASCII characters/],
    [{ url: "http://ada:x@api.example.com/" }, /^url: User name and password are not sent in a URL/],
    [{ clientIp: "256.0.0.1" }, /^clientIp: “256.0.0.1” is not an IP address such as/],
    [{ clientIp: "10.0.0.0/8" }, /^clientIp: “10.0.0.0\/8” is not an IP address/],
    [{ clientIp: "::1::" }, /^clientIp: “::1::” is not an IP address/],
    [{ clientIp: "localhost" }, /^clientIp: “localhost” is not an IP address/],
  ])("the input of the form reports the error in %j and its field", (form, message) => {
    expect(errorsOf(form)).toEqual([expect.stringMatching(message)]);
  });

  it("the input of the form reports all errors at once", () =>
    expect(errorsOf({ method: "", url: "x", headers: "a\nb" })).toHaveLength(4));
});

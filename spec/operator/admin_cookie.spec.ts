import { describe, expect, it } from "vitest";
import { signJwt } from "../../lib/base/jwt.ts";
import { isAdminToken, sessionRemover } from "../../lib/operator/admin_cookie.ts";

const session = signJwt({ sub: "admin", iss: "edge-gateway", aud: "edge-gateway-admin", exp: 1 }, "k");
const device = signJwt({ sub: "admin", jti: "x", iss: "edge-gateway", aud: "edge-gateway-device", exp: 1 }, "k");
const theirs = signJwt({ sub: "ann", iss: "shop", aud: "shop" }, "k");

describe("isAdminToken", () => {
  it.each([
    ["a session, whoever has signed it, live or not", session, true],
    ["a device cookie", device, true],
    ["a JWT of an application", theirs, false],
    ["a JWT of our issuer for another audience", signJwt({ iss: "edge-gateway", aud: "shop" }, "k"), false],
    ["claims that are null", `eyJh.${Buffer.from("null").toString("base64url")}.c`, false],
    ["claims that are no JSON", "eyJh.eyJ.c", false],
    ["two parts", session.split(".").slice(0, 2).join("."), false],
    ["four parts", `${session}.x`, false],
    ["nothing", "", false],
  ])("recognises %s", (_what, token, is) => {
    expect(isAdminToken(token)).toBe(is);
  });
});

describe("sessionRemover", () => {
  const remove = sessionRemover("token");

  it.each<[string, string[], string[]]>([
    ["alone", ["A", "b", "Cookie", `token=${session}`, "C", "d"], ["A", "b", "C", "d"]],
    [
      "among others, which stay as they are",
      ["cookie", `a=b;  token=${session} ;c="d e";e`],
      ["cookie", 'a=b;c="d e";e'],
    ],
    ["first", ["cookie", `token=${session}; c=d`], ["cookie", "c=d"]],
    ["in quotes", ["COOKIE", `a=b; token="${session}"`], ["COOKIE", "a=b"]],
    [
      "beside an application's cookie of this name",
      ["Cookie", `token=${theirs}; token=${session}`],
      ["Cookie", `token=${theirs}`],
    ],
    [
      "and the device cookie beside it",
      ["Cookie", `token-device=${device}; a=b; token=${session}; token-device=${theirs}`],
      ["Cookie", `a=b; token-device=${theirs}`],
    ],
    ["with a device cookie of our issuer alone", ["Cookie", `token-device=${device}`], []],
    ["in a second line", ["Cookie", "a=b", "Cookie", `token=${session}`], ["Cookie", "a=b"]],
  ])("sessionRemover removes a session %s", (_what, headers, left) => {
    expect(remove(headers)).toEqual(left);
  });

  it.each<[string, string[]]>([
    ["no cookies", ["A", `token=${session}`]],
    ["a cookie of another name", ["Cookie", `mytoken=${session}; token2=${session}; Token=${session}`]],
    ["an application's own token", ["Cookie", `token=${theirs}; token=abc; token; token=`]],
  ])("sessionRemover gives the same list for %s", (_what, headers) => {
    const left = remove(headers);
    expect(left).toEqual(headers);
  });
});

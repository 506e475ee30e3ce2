import { expect, it } from "vitest";
import { basicCredentials } from "../../lib/http/basic.ts";

const encoded = (text: string | Buffer) => Buffer.from(text as string).toString("base64");

it.each<[string, string, string, string]>([
  ["user and password", `Basic ${encoded("ada:lovelace")}`, "ada", "lovelace"],
  ["the scheme in any case, with blanks", `bASIC   ${encoded("ada:lovelace")} `, "ada", "lovelace"],
  ["without padding", `Basic ${encoded("a:b").replace(/=+$/, "")}`, "a", "b"],
  ["a password with colons", `Basic ${encoded("ada:a:b:")}`, "ada", "a:b:"],
  ["an empty password", `Basic ${encoded("ada:")}`, "ada", ""],
  ["an empty user", `Basic ${encoded(":x")}`, "", "x"],
  ["UTF-8 (RFC 7617 §2.1)", "Basic dGVzdDoxMjPCow==", "test", "123£"],
])("reads %s", (_, authorization, user, password) => {
  expect(basicCredentials(authorization)).toEqual({ user, password });
});

it.each<[string, string | undefined]>([
  ["nothing", undefined],
  ["an empty header", ""],
  ["the scheme alone", "Basic"],
  ["another scheme", `Bearer ${encoded("a:b")}`],
  ["no colon", `Basic ${encoded("ab")}`],
  ["what is not base64", "Basic a:b"],
  ["base64 that goes on behind its end", "Basic YTo=YTpi"],
  ["bits that base64 has no use for", "Basic YTpjZB=="],
  ["what is not UTF-8", `Basic ${encoded(Buffer.from("a:\xe9", "latin1"))}`],
  ["two of them", `Basic ${encoded("a:b")}, Basic ${encoded("a:b")}`],
])("returns null for %s", (_, authorization) => {
  expect(basicCredentials(authorization)).toBeNull();
});

import { describe, expect, it } from "vitest";
import { HASH_ON } from "../../lib/config/hash_on.ts";
import { checked } from "../support/exercise.ts";

describe("hash_on", () => {
  it.each(["client_ip", "credential", "header:X-Tenant", "cookie:session", "param:user_id"])("accepts %s as it is", (text) => {
    expect(checked(HASH_ON, text)).toEqual({ value: text, issues: [] });
  });

  it.each([
    ["client-ip", /"client-ip".*did you mean "client_ip"\?/],
    ["headers:X-Tenant", /did you mean "header:X-Tenant"\?/],
    ["Cookie:a", /did you mean "cookie:a"\?/],
    ["credentials", /did you mean "credential"\?/],
    ["client_ip:x", /did you mean "client_ip"\?/],
    ["header", /write a name behind it, as in "header:X-Tenant"/],
    ["cookie:", /write a name behind it, as in "cookie:session"/],
    ["header:X Tenant", /"X Tenant" cannot be the name of a header/],
    ["cookie:a;b", /"a;b" cannot be the name of a cookie/],
    ["param:{user_id}", /write the placeholder's name alone, as in "param:user_id"/],
    ["query:user", /expected "client_ip", "credential", "header:<name>", "cookie:<name>" or "param:<name>", found "query:user"$/],
    ["", /expected "client_ip"/],
    [7, /expected "client_ip".*found 7/],
  ])("refuses %j and says what to write", (value, message) => {
    expect(checked(HASH_ON, value)).toEqual({ value: null, issues: [expect.stringMatching(message)] });
  });
});

import { describe, expect, it } from "vitest";
import { REDACTED, redactedPath } from "../../lib/http/redact.ts";
import { redacted } from "../../lib/http/redact_query.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";

const JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";

describe("redacted", () => {
  it.each([
    ["", ""],
    ["?a=1&b=2", "?a=1&b=2"],
    ["?apiKey=k&a=1", `?apiKey=${REDACTED}&a=1`],
    ["?a=1&api%4Bey=k", `?a=1&api%4Bey=${REDACTED}`],
    ["?APIKEY=k", `?APIKEY=${REDACTED}`],
    ["?access_token=a&token=b&sig=c", `?access_token=${REDACTED}&token=${REDACTED}&sig=${REDACTED}`],
    [`?t=${JWT}&x=1`, `?t=${REDACTED}&x=1`],
    ["?%zz=1&token=b", `?%zz=1&token=${REDACTED}`],
    ["https://user:pass@host/p#id_token=x", `https://${REDACTED}@host/p#id_token=${REDACTED}`],
  ])("shows %j as %j", (text, shown) => {
    expect(redacted(text)).toBe(shown);
  });
});

describe("redactedPath", () => {
  it("removes JWTs to the end of their segment", () => {
    expect(redactedPath(`/reset/${JWT}/now`)).toBe(`/reset/${REDACTED}/now`);
    expect(redactedPath("/monkeyJumps/of")).toBe("/monkeyJumps/of");
  });

  it.each([
    ["/a;token=k/b;v=1", `/a;token=${REDACTED}/b;v=1`],
    ["/cart;JSESSIONID=k", `/cart;JSESSIONID=${REDACTED}`],
    ["/a;v=1;api%4Bey=k;w=2", `/a;v=1;api%4Bey=${REDACTED};w=2`],
    ["/a%3FapiKey=k&b=2", `/a%3FapiKey=${REDACTED}&b=2`],
    ["/a%3fb=2%26apiKey=k%26c=3", `/a%3fb=2%26apiKey=${REDACTED}%26c=3`],
    ["/token=k/;=", "/token=k/;="],
    ["//user:pw@host/a", `//${REDACTED}@host/a`],
    ["/fetch/http://user:pw@host/a@b", `/fetch/http://${REDACTED}@host/a@b`],
    ["/http:/user@host", `/http:/${REDACTED}@host`],
    ["/@scope/name/ada@example.com", "/@scope/name/ada@example.com"],
  ])("shows %j as %j", (path, shown) => {
    expect(redactedPath(path)).toBe(shown);
  });

  it.each(["%3F", ";", ";a", "%26=", ";token=", "//", ":/@", "//a@"])(
    "takes linear time for a path of many %j",
    async (part) => {
      const redact = await counted(() => import("../../lib/http/redact.ts"));
      expect(growth((size) => redact.redactedPath(`/=/${part.repeat(size / part.length)}`), 1_024)).toBeLessThan(
        LINEAR,
      );
    },
  );
});

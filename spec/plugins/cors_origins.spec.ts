import { describe, expect, it } from "vitest";
import { originProblem, originTest } from "../../lib/plugins/cors_origins.ts";

describe("an entry", () => {
  const entries = ["https://app.example.com", "http://localhost:3000", "https://*.example.org", "https://*.example.net:8443", "http://[::1]:3000", "capacitor://localhost"];
  const isAllowed = originTest(entries);

  it.each(entries)("%s is a right one", (entry) => expect(originProblem(entry)).toBeUndefined());

  it.each([
    "https://app.example.com",
    "http://localhost:3000",
    "https://a.example.org",
    "https://a.b-c.example.org",
    "https://x_1.example.net:8443",
    "http://[::1]:3000",
    "capacitor://localhost",
  ])("allows %s", (origin) => expect(isAllowed(origin)).toBe(true));

  it.each([
    "",
    "null",
    "*",
    "http://app.example.com",
    "https://app.example.com:8443",
    "https://app.example.com.evil.example",
    "https://APP.example.com",
    "https://app.example.com/",
    "http://localhost",
    "https://example.org",
    "https://.example.org",
    "https://evilexample.org",
    "http://a.example.org",
    "https://a.example.org:444",
    "https://evil.example/.example.org",
    "https://evil.example#.example.org",
    "https://evil.example?.example.org",
    "https://evil.example\\.example.org",
    "https://u:p@a.example.org",
    "https://evil.example:1.example.org",
    "https://*.example.org",
    "https://a.example.net",
  ])("does not allow %s", (origin) => expect(isAllowed(origin)).toBe(false));
});

describe("what is no origin is said to be none, and what to write", () => {
  it("* is one", () => expect(originProblem("*")).toBeUndefined());

  it.each<[string, string | RegExp]>([
    ["", ""],
    ["app.example.com", ""],
    ["https://", ""],
    ["https://a.*.example.com", ""],
    ["https://*example.com", ""],
    ["https://*", ""],
    ["https://a.example.com:", ""],
    ["https://u@example.com", ""],
    ["null", /any page/],
    ["https://App.example.com", 'browsers write it in lower case, "https://app.example.com"'],
    ["https://app.example.com/", 'an origin has no path: write "https://app.example.com"'],
    ["https://app.example.com:8443/a/b", 'an origin has no path: write "https://app.example.com:8443"'],
    ["https://app.example.com:443", 'browsers leave out the default port: write "https://app.example.com"'],
    ["http://*.example.com:80", 'browsers leave out the default port: write "http://*.example.com"'],
    ["http://a.example:65536", "a port is a number from 1 to 65535"],
    ["http://a.example:0", "a port is a number from 1 to 65535"],
    ["https://bücher.example", "browsers write names beyond ASCII in their xn-- form"],
  ])("%s", (text, problem) => expect(originProblem(text)).toEqual(typeof problem === "string" ? problem : expect.stringMatching(problem)));

  it("a long one is looked at once", () => {
    const begun = performance.now();
    for (const text of [`https://${"a.".repeat(100_000)}!`, `https://${"a-".repeat(100_000)}!`, `https://${"a".repeat(200_000)}!`]) expect(originProblem(text)).toBe("");
    expect(performance.now() - begun).toBeLessThan(2_000);
  });
});

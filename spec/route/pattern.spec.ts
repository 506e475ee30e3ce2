import { describe, expect, it } from "vitest";
import { parsePattern, type Segment } from "../../lib/route/pattern.ts";

const literal = (text: string): Segment => ({ kind: "literal", text });
const one = (name: string): Segment => ({ kind: "one", name });
const rest = (name: string): Segment => ({ kind: "rest", name });

describe("patterns", () => {
  it.each<[string, Segment[]]>([
    ["/", []],
    ["/a", [literal("a")]],
    ["/a/b/", [literal("a"), literal("b")]],
    ["/users/{id}", [literal("users"), one("id")]],
    ["/users/<id>", [literal("users"), one("id")]],
    ["/files/{path*}", [literal("files"), rest("path")]],
    ["/files/<path*>/", [literal("files"), rest("path")]],
    ["/{_a1}/{B}", [one("_a1"), one("B")]],
    ["/{__proto__}", [one("__proto__")]],
    ["/%3Aid/%2A", [literal(":id"), literal("*")]],
    ["/a%28.%2A%29/%5B1%5D/%24x%5E", [literal("a(.*)"), literal("%5B1%5D"), literal("$x%5E")]],
    ["/a*b/items:batch", [literal("a*b"), literal("items:batch")]],
    ["/café", [literal("caf%C3%A9")]],
    ["/caf%c3%a9", [literal("caf%C3%A9")]],
    ["/%61|b", [literal("a%7Cb")]],
    ["/items%3aexport", [literal("items:export")]],
    ["/%7Bid%7D", [literal("%7Bid%7D")]],
  ])("the pattern %j is read", (text, segments) => expect(parsePattern(text, "path")).toEqual({ segments }));

  it.each([
    ["", /must start with "\/"/],
    ["users", /write "\/users"/],
    ["{id}", /must start with "\/"/],
    ["/a//b", /empty segment/],
    ["//", /empty segment/],
    ["/a//", /empty segment/],
    ["/v{x}", /whole segment/],
    ["/{x}.json", /whole segment/],
    ["/{a}{b}", /whole segment/],
    ["/{a>", /whole segment/],
    ["/a{", /whole segment/],
    ["/{}", /needs a name/],
    ["/{*}", /needs a name/],
    ["/{1a}", /needs a name/],
    ["/{user-id}", /needs a name/],
    ["/{a**}", /needs a name/],
    ["/{a}/{a}", /"a" occurs twice.*rename/],
    ["/{a}/{a*}", /"a" occurs twice/],
    ["/{a}/<a>", /"a" occurs twice/],
    ["/{a*}/b", /must be the last segment/],
    ["/a/.", /never matches.*“\.\.” segment/],
    ["/a/../b", /never matches/],
    ["/%2e%2E", /never matches/],
    ["/a%2Fb", /inside placeholders only/],
    ["/a%5cb", /never matches/],
    ["/a%4", /never matches.*hexadecimal/],
    ["/a\nb", /never matches.*control/],
    ["/\ud800", /surrogate/],
    [
      "/*",
      new RegExp(
        String.raw`^"\*" is no pattern here: write "\{rest\*\}" as the last segment for the rest ` +
          String.raw`of the path, "\{name\}" for one segment, or %2A for the character$`,
      ),
    ],
    ["/a/**", /is no pattern here/],
    ["/items/:id", /^":id" is no placeholder here: write "\{id\}", or %3A for the character$/],
    ["/items/:id.json", /^":id.json" is no placeholder here: write "\{id\}"/],
    [
      "/u/(.*)",
      new RegExp(
        String.raw`^"\(\.\*\)" looks like a regular expression, which is no pattern here: write ` +
          String.raw`"\{name\}" for one segment, "\{name\*\}" for the rest of the path; %28 stands ` +
          String.raw`for the character "\("$`,
      ),
    ],
    ["/u/[0-9]+", /regular expression.*%5B/],
    ["/u/a]", /regular expression.*%5D/],
    ["/u/a)", /regular expression.*%29/],
    ["/^u", /regular expression.*%5E/],
    ["/u$", /regular expression.*%24/],
    ["/u\\d", /regular expression.*no path can contain a backslash/],
    ["/u.*", /regular expression.*%2E%2A stands for the characters/],
    ["/{id:[0-9]}", /regular expression/],
    ["/${env:A}", /regular expression|whole segment/],
    [
      "/items/:id?",
      /^":id\?" is no placeholder here: write "\{id\}", and a route of its own for the path without it, or %3A/,
    ],
    [
      "/files/:path*",
      /^":path\*" is no placeholder here: write "\{path\*\}", and a route of its own for the path without it/,
    ],
    ["/files/:path+", /^":path\+" is no placeholder here: write "\{path\*\}", or %3A/],
    ["/items/{id?}", /^"\{id\?\}" cannot be optional: write "\{id\}", and a route of its own for the path without it$/],
    ["/items/{id}?", /^"\{id\}\?" cannot be optional: write "\{id\}"/],
    ["/u/(?:a|b)", /^"\(\?:a\|b\)" looks like a regular expression.*%28 stands for the character "\("$/],
    ["/u/(?<id>\\d+)?", /looks like a regular expression/],
    ["/v/.+?", /^"\.\+\?" looks like a regular expression.*%2E%2B stands for the characters "\.\+"$/],
    ["/v/.+", /looks like a regular expression/],
    ["/v/[a-z]?x", /looks like a regular expression.*%5B/],
    ["/search?q=(.*)", /leave out everything from "\?"/],
    ["/search/?", /leave out everything from "\?"/],
    ["/:id?page=1", /leave out everything from "\?"/],
    ["/a?b=c", /leave out everything from "\?"/],
    ["/a#b", /leave out/],
  ])("the pattern %j causes an error with its remedy", (text, message) => {
    expect(parsePattern(text, "path")).toEqual({ error: expect.stringMatching(message) });
  });

  it("{x*} is refused in a base_path, and {x} is accepted", () => {
    expect(parsePattern("/a/{x*}", "base_path")).toEqual({ error: expect.stringContaining(`"{x}"`) });
    expect(parsePattern("/a/{x}", "base_path")).toEqual({ segments: [literal("a"), one("x")] });
  });

  it("a name bound in the base_path cannot be bound again below it", () => {
    expect(parsePattern("/{x}", "path", [one("x")])).toEqual({ error: expect.stringContaining("occurs twice") });
    expect(parsePattern("/{y}", "path", [one("x")])).toEqual({ segments: [one("y")] });
  });
});

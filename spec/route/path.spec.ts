import { describe, expect, it } from "vitest";
import { comparable, normalisePath, readTarget } from "../../lib/route/path.ts";
import { random, type Random } from "../support/random.ts";

const plain = (path: string, query = "", authority: string | null = null) => ({
  path,
  query,
  authority,
  encodedSlash: false,
});
const ambiguous = { code: "path_ambiguous", detail: expect.any(String) };
const bad = { code: "bad_request", detail: expect.any(String) };

describe("the forms of a request target", () => {
  it.each([
    ["/", plain("/")],
    ["/a/b", plain("/a/b")],
    ["/a/b/", plain("/a/b/")],
    ["/a?x=1", plain("/a", "?x=1")],
    ["/a?", plain("/a", "?")],
    ["/a?x=%zz&y=//../%2e?\\|", plain("/a", "?x=%zz&y=//../%2e?\\|")],
    ["/?/../", plain("/", "?/../")],
    ["/a?\xe9", bad],
    ["/a?\x80", bad],
  ])("origin-form %j is read, its query byte for byte, and refused with a byte outside ASCII", (target, expected) =>
    expect(readTarget(target)).toEqual(expected),
  );

  it.each([
    ["http://example.com", plain("/", "", "example.com")],
    ["http://example.com?x=1", plain("/", "?x=1", "example.com")],
    ["http://Example.com:8008/a/b?x", plain("/a/b", "?x", "Example.com:8008")],
    ["HTTPS://[::1]:8443//a", plain("/a", "", "[::1]:8443")],
  ])("absolute-form %j is read, with its authority", (target, expected) =>
    expect(readTarget(target)).toEqual(expected),
  );

  it.each([
    "*",
    "",
    "example.com:443",
    "a/b",
    "?x",
    "ftp://example.com/",
    "file:///etc/passwd",
    "http:/a",
    "http://",
    "http:///a",
    "http://:80/",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://exa mple.com/",
    "http://exa\\mple.com/",
    "http://ex\xe9.com/",
    "http://example.com#x",
    "/a#b",
    "/a?b#c",
    "/a?b c",
    "/a?b\r\nX: y",
    "/a?b\0",
    "/a?\x7f",
    "/a?\u010d",
    "/caf\xe9",
    "/\u010d",
  ])("the target %j gets 400 bad_request", (target) => expect(readTarget(target)).toEqual(bad));
});

describe("the normal form of a path", () => {
  it.each([
    ["/%61%7E%2D%5f%2Ea", "/a~-_.a", "percent-encoded unreserved characters are decoded"],
    ["/caf%c3%a9/%e2%82%ac", "/caf%C3%A9/%E2%82%AC", "hex digits are upper-cased"],
    ["//a///b//", "/a/b/", "// is merged"],
    ["//evil.example/a", "/evil.example/a", "// at the start is merged too"],
    ['/a|b{c}"^`<> []', "/a%7Cb%7Bc%7D%22%5E%60%3C%3E%20%5B%5D", "what may not stand raw is encoded"],
    ["/a%7cb%7b", "/a%7Cb%7B", "and stays encoded"],
    ["/a:b@c!$&'()*+,;=", "/a:b@c!$&'()*+,;=", "reserved characters stay raw where they were raw"],
    ["/a%3ab%2b%3f%23%25", "/a%3Ab%2B%3F%23%25", "and encoded where they were encoded"],
    ["/%2541", "/%2541", "decoding happens once"],
    ["/.well-known/...", "/.well-known/...", "dots among other characters are ordinary"],
    ["/a.b/..c/d..", "/a.b/..c/d..", "and so are leading and trailing dots"],
    ["/%2e%2e%2e", "/...", "three encoded dots are a name"],
    ["/admin;x/a;b=1", "/admin;x/a;b=1", "parameters of a name stay"],
    ["/a;../b;..", "/a;../b;..", "dots among parameters climb nowhere"],
    ["/...;x/a..;x/..a;x", "/...;x/a..;x/..a;x", "nor do dots that are part of a name"],
  ])("the path %j becomes %j: %s", (raw, normal) => expect(readTarget(raw)).toEqual(plain(normal)));

  it.each([
    "/.",
    "/..",
    "/a/./b",
    "/a/../b",
    "/a/..",
    "/%2e",
    "/%2E%2e/a",
    "/.%2e/a",
    "/%2e./a",
    "/a/.%2E",
    "/..;/a",
    "/a/.;x=1/b",
    "/a/..;",
    "/.;",
    "/public/..;x/admin",
    "/..%3Bx",
    "/.%3bx",
    "/%2e%2e;x",
    "/%2E.%3b/a",
    "/a%2F..;x",
    "/..;%2Fa",
    "//..;//a",
    "//../a",
    "/a%2F../b",
    "/a%2f%2e%2e%2fb",
    "/..%2Fa",
    "/a%5cb",
    "/a%5C",
    "/a\\b",
    "/\\",
    "/a%00",
    "/a\0",
    "/%0d%0a",
    "/a\tb",
    "/%1F",
    "/%7f",
    "/\x7f",
    "/%",
    "/a%4",
    "/%zz",
    "/%4g",
    "/%%41",
    "/%u0041",
    "http://h/../a",
    "http://h/%2e%2e",
  ])("the path %j gets 400 path_ambiguous", (target) => expect(readTarget(target)).toEqual(ambiguous));

  it('an encoded "/" is kept, in upper case, and reported', () => {
    expect(readTarget("/a%2fb/%2F")).toEqual({ path: "/a%2Fb/%2F", query: "", authority: null, encodedSlash: true });
    expect(readTarget("/a%2f//b")).toHaveProperty("path", "/a%2F/b");
    expect(readTarget("/a%252Fb")).toEqual(plain("/a%252Fb"));
  });

  it("the detail of a refusal does not repeat the path", () => {
    for (const target of ["/secret/../a", "/secret%5C", "/secret%zz", "/secret\0", "/secret\xe9"]) {
      const refusal = readTarget(target);
      expect(refusal).toHaveProperty("detail");
      expect(JSON.stringify(refusal)).not.toContain("secret");
    }
  });
});

describe("the comparison of spellings", () => {
  it.each([
    ["/a:b", "/a:b"],
    ["/a%3Ab%2B%40", "/a:b+@"],
    ["/a%2Fb%25%3F%23%7C%C3%A9", "/a%2Fb%25%3F%23%7C%C3%A9"],
    ["/%253A%3A", "/%253A:"],
  ])("the path %j compares as %j", (path, expected) => expect(comparable(path)).toBe(expected));
});

describe("the forms of any target", () => {
  const PIECES = [
    "/",
    "/",
    "a",
    "B",
    ".",
    "..",
    "%2e",
    "%2E",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "%",
    "%4",
    "1",
    "%41",
    "%25",
    "%00",
    "\x01",
    "%7f",
    "|",
    "{",
    "%7c",
    ":",
    "%3a",
    ";",
    "%3b",
    "+",
    "%c3%a9",
    "\xe9",
    "#",
    " ",
    "~",
    "%7e",
  ];
  const anyPath = (r: Random) => "/" + r.list(0, 8, () => r.pick(PIECES)).join("");

  it("normalising twice equals normalising once, and a normalised path has only one reading", () => {
    const r = random(1);
    let passed = 0;
    for (let n = 0; n < 15_000; n++) {
      const raw = anyPath(r);
      const once = normalisePath(raw);
      if ("code" in once) continue;
      passed++;
      const { path } = once;
      expect(normalisePath(path), raw).toEqual(once);
      expect(readTarget(path), raw).toEqual({ ...plain(path), encodedSlash: once.encodedSlash });
      expect(/^\/[\x21-\x7e]*$/.test(path) && !/\/\/|[\\#?|{" ]|%(?![0-9A-F]{2})/.test(path), raw).toBe(true);
      expect(once.encodedSlash, raw).toBe(path.includes("%2F"));
      // What a backend sees that decodes once, even one that takes %2F for a separator.
      const decoded = path.replace(/%(..)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
      expect(/[\x00-\x1f\x7f\\]/.test(decoded), raw).toBe(false);
      expect(
        decoded.split("/").some((segment) => segment === "." || segment === ".."),
        raw,
      ).toBe(false);
      // And one that cuts parameters off first.
      expect(
        decoded.split("/").some((segment) => /^\.\.?(;|$)/.test(segment)),
        raw,
      ).toBe(false);
    }
    expect(passed).toBeGreaterThan(2_000);
  });

  it("the fast check for clean paths and normalising agree", () => {
    const r = random(2);
    for (let n = 0; n < 10_000; n++) {
      const raw = anyPath(r);
      const long = normalisePath(raw);
      expect(readTarget(raw), raw).toEqual("code" in long ? long : { ...long, query: "", authority: null });
    }
  });
});

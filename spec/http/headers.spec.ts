import { describe, expect, it } from "vitest";
import {
  endToEnd,
  hasHeader,
  hasToken,
  headerValue,
  headerValues,
  isHopByHop,
  NameMap,
  nameSet,
  tokens,
  trimmed,
  withHeader,
  withoutHeader,
  type HeaderList,
  withoutNamed,
} from "../../lib/http/headers.ts";
import { withAddedHeader } from "../../lib/plugins/kit.ts";
import { random, type Random } from "../support/random.ts";

type Pair = readonly [name: string, value: string];

const pairsOf = (list: HeaderList): Pair[] =>
  Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i]!, list[2 * i + 1]!]);
const listOf = (pairs: readonly Pair[]): string[] => pairs.flat();
const named =
  (name: string) =>
  ([other]: Pair) =>
    other.toLowerCase() === name.toLowerCase();

const NAMES = [
  "Host",
  "host",
  "Set-Cookie",
  "set-cookie",
  "SET-COOKIE",
  "X-A",
  "x-a",
  "X-AB",
  "Content-Length",
  "Accept",
  "TE",
  "Te",
  "Connection",
  "connection",
  "Keep-Alive",
  "Transfer-Encoding",
  "Upgrade",
  "Proxy-Connection",
  "HTTP2-Settings",
];
const VALUES = [
  "",
  "1",
  "a, b",
  "keep-alive",
  "close",
  "Close",
  "x-a",
  " X-A , accept",
  "upgrade, x-ab",
  "host, content-length",
  "close,set-cookie",
];

const anyList = (from: Random): string[] => listOf(from.list(0, 10, (): Pair => [from.pick(NAMES), from.pick(VALUES)]));

function always(promise: (list: readonly string[], name: string, from: Random) => void) {
  const from = random(11);
  for (let i = 0; i < 2_000; i++) {
    const list = Object.freeze(anyList(from)); // no function may change its argument
    promise(list, from.pick(NAMES), from);
  }
}

describe("header look-up", () => {
  it("finds the first value, and all values in order, whatever the case of the name", () => {
    always((list, name) => {
      const expected = pairsOf(list)
        .filter(named(name))
        .map(([, value]) => value);
      expect(headerValues(list, name.toLowerCase())).toEqual(expected);
      expect(headerValue(list, name.toLowerCase())).toBe(expected[0]);
      expect(hasHeader(list, name.toLowerCase())).toBe(expected.length > 0);
    });
  });

  it("finds names that begin with each character that a name may have", () => {
    for (const first of "!#$%&'*+-.^_`|~09azAZ")
      expect(headerValue([`${first}a`, "1"], `${first.toLowerCase()}a`), first).toBe("1");
  });

  it("never reads a value as a name", () => {
    expect(headerValue(["x", "host", "y", "z"], "host")).toBeUndefined();
    expect(withoutHeader(["x", "host", "host", "x"], "host")).toEqual(["x", "host"]);
  });
});

describe("header changes", () => {
  it("withoutHeader drops that name only; case, order and duplicates of the others survive", () => {
    always((list, name) => {
      expect(withoutHeader(list, name.toLowerCase())).toEqual(
        listOf(pairsOf(list).filter((pair) => !named(name)(pair))),
      );
    });
  });

  it("withoutHeader returns the same list when there is nothing to drop", () => {
    const list = ["A", "1"];
    expect(withoutHeader(list, "b")).toBe(list);
  });

  it("withHeader leaves one line, in the place of the first or at the end", () => {
    always((list, name) => {
      const pairs = pairsOf(list);
      const first = pairs.findIndex(named(name));
      const expected = pairs.flatMap((pair, i): Pair[] =>
        i === first ? [[name, "new"]] : named(name)(pair) ? [] : [pair],
      );
      if (first < 0) expected.push([name, "new"]);
      expect(withHeader(list, name, "new")).toEqual(listOf(expected));
    });
  });

  it("withAddedHeader adds a line at the end and touches no other", () => {
    always((list, name) => expect(withAddedHeader(list, name, "new")).toEqual([...list, name, "new"]));
  });
});

describe("withoutNamed (RFC 9110 §7.6.1)", () => {
  it.each([
    ["close, X-User", ["Connection", "close"]],
    ["x-user", []],
    ["X-USER ,keep-alive,x-b", ["Connection", "keep-alive"]],
    ["X-User, Upgrade, x-b", ["Connection", "Upgrade"]],
    ["close", ["Connection", "close"]],
    ["TE, host, content-length", ["Connection", "TE, host, content-length"]],
    ["x-other", []],
    [",, x-user ,", []],
  ])("removes the headers that Connection: %s names, and leaves %j", (value, left) => {
    const fields = [
      "X-User",
      "u",
      "x-user",
      "v",
      "X-B",
      "b",
      "TE",
      "trailers",
      "Upgrade",
      "websocket",
      "Host",
      "h",
      "Content-Length",
      "0",
      "A",
      "1",
    ];
    const dropped = new Set(
      value
        .toLowerCase()
        .split(",")
        .map((option) => option.trim())
        .filter((option) => option.startsWith("x-")),
    );
    const stay = fields.flatMap((name, i) =>
      i % 2 === 0 && !dropped.has(name.toLowerCase()) ? [name, fields[i + 1]!] : [],
    );
    expect(withoutNamed(["Connection", value, ...fields])).toEqual([...left, ...stay]);
  });

  it("reads every line of Connection, wherever it stands", () => {
    expect(withoutNamed(["X-A", "1", "connection", "x-b", "X-B", "2", "CONNECTION", "x-a, close"])).toEqual([
      "CONNECTION",
      "close",
    ]);
  });

  it("returns the same list if no header is named", () => {
    for (const list of [
      ["A", "1"],
      ["Connection", "keep-alive", "A", "1"],
      ["Connection", "Upgrade", "Upgrade", "websocket"],
    ])
      expect(withoutNamed(list)).toBe(list);
  });

  it("leaves nothing that endToEnd would drop because Connection names it", () => {
    always((list) => expect(endToEnd(withoutNamed(list))).toEqual(endToEnd(list)));
  });
});

describe("endToEnd (RFC 9110 §7.6.1)", () => {
  it("drops the headers of one connection, and all headers that Connection names, but neither framing nor Host", () => {
    const hop = [
      "connection",
      "keep-alive",
      "proxy-connection",
      "te",
      "transfer-encoding",
      "upgrade",
      "http2-settings",
    ];
    always((list) => {
      const pairs = pairsOf(list);
      const listed = pairs.filter(named("connection")).flatMap(([, value]) => value.split(","));
      const dropped = new Set(listed.map((token) => token.trim().toLowerCase()));
      for (const name of ["host", "content-length"]) dropped.delete(name);
      for (const name of hop) dropped.add(name);
      expect(endToEnd(list)).toEqual(listOf(pairs.filter(([name]) => !dropped.has(name.toLowerCase()))));
    });
  });

  it("returns a new list, which may be extended", () => {
    const list = ["A", "1"];
    endToEnd(list).push("B", "2");
    expect(list).toEqual(["A", "1"]);
  });

  it("keeps Trailer: it describes the message, not the connection", () => {
    expect(endToEnd(["Trailer", "x"])).toEqual(["Trailer", "x"]);
  });

  it.each([
    ["Connection", true],
    ["te", true],
    ["Upgrade", true],
    ["HTTP2-Settings", true],
    ["Via", false],
    ["Host", false],
    ["", false],
  ])("isHopByHop(%j) is %s", (name, expected) => expect(isHopByHop(name)).toBe(expected));
});

describe("tokens", () => {
  it.each<[string | undefined, string, boolean]>([
    ["close", "close", true],
    ["Close", "close", true],
    ["keep-alive, CLOSE", "close", true],
    ["gzip;q=1, br", "gzip", true],
    ["gzip ; q=1", "gzip", true],
    ["closed", "close", false],
    ["not-close", "close", false],
    ["abcde", "close", false],
    ["", "close", false],
    [undefined, "close", false],
  ])("hasToken(%j, %j) is %s", (value, token, expected) => {
    expect(hasToken(value, token)).toBe(expected);
  });

  it("covers all lines of a header, in order, in lower case, without empty tokens", () => {
    expect(tokens(["Via", "1.1 A, ,1.0 b", "x", "y", "via", "C"], "via")).toEqual(["1.1 a", "1.0 b", "c"]);
    expect(tokens([], "via")).toEqual([]);
  });
});

describe("a map by header name", () => {
  it("finds names in any case, and no other name of the same length or of one that is 32 longer", () => {
    const map = new NameMap([
      ["Host", 0],
      ["te", null],
    ]);
    expect(["host", "HOST", "Te"].map((name) => map.get(name))).toEqual([0, 0, null]);
    for (const other of ["", "hosts", "hose", "t", `host${"x".repeat(32)}`])
      expect([map.get(other), map.has(other)]).toEqual([undefined, false]);
  });

  it("keeps the last value of a name that is given twice, in any case", () => {
    expect(
      new NameMap([
        ["A", 1],
        ["a", 2],
      ]).get("A"),
    ).toBe(2);
  });

  it("a set of names gives each name as it was written, and an empty set gives none", () => {
    expect([nameSet(["Age"]).get("AGE"), nameSet([]).has("")]).toEqual(["Age", false]);
  });
});

it.each([
  ["  a b\t ", "a b"],
  ["", ""],
  [" \t", ""],
  ["a", "a"],
])("trims %j to %j", (text, bare) => {
  expect(trimmed(text, 0, text.length)).toBe(bare);
});

import { describe, expect, it } from "vitest";
import { isHost } from "../../lib/http/headers.ts";
import { isDropped, readFraming, type Framing } from "../../lib/server/request_head.ts";
import { CERTIFICATE_NAMES, HOSTS } from "./framing.cases.ts";

/** The framing of a request with `Host: h` and these header lines. */
function framing(lines: readonly string[], { method = "GET", version = "1.1", host = true } = {}): Framing {
  const flat = (host ? ["Host: h", ...lines] : lines).flatMap((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return readFraming(method, flat, version);
}

describe("readFraming: the length of the body", () => {
  it.each<[title: string, headers: string[], version: string, length: Framing["bodyLength"]]>([
    ["no length", [], "1.1", 0],
    ["a length", ["Content-Length: 5"], "1.1", 5],
    ["a length of zero", ["Content-Length: 0"], "1.1", 0],
    ["a length of 15 digits", ["Content-Length: 999999999999999"], "1.1", 999_999_999_999_999],
    ["a length in HTTP/1.0", ["content-LENGTH: 5"], "1.0", 5],
    ["the coding chunked", ["Transfer-Encoding: chunked"], "1.1", "chunked"],
    ["the coding CHUNKED", ["TRANSFER-ENCODING: CHUNKED"], "1.1", "chunked"],
  ])("reads the length of a body with %s", (_title, headers, version, length) => {
    expect(framing(headers, { version })).toMatchObject({ bodyLength: length, refusal: null });
  });

  it.each<[title: string, headers: string[], version: string, refused: RegExp]>([
    ["two lengths", ["Content-Length: 5", "content-length: 5"], "1.1", /more than one Content-Length/],
    ["length and coding", ["Content-Length: 5", "Transfer-Encoding: chunked"], "1.1", /both/],
    ["coding and length", ["Transfer-Encoding: chunked", "Content-Length: 0"], "1.1", /both/],
    ["two codings", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], "1.1", /only Transfer-Encoding/],
    ["a list of codings", ["Transfer-Encoding: gzip, chunked"], "1.1", /only Transfer-Encoding/],
    ["another coding", ["Transfer-Encoding: identity"], "1.1", /only Transfer-Encoding/],
    ["an empty coding", ["Transfer-Encoding:"], "1.1", /only Transfer-Encoding/],
    ["chunked with a parameter", ["Transfer-Encoding: chunked;q=1"], "1.1", /only Transfer-Encoding/],
    ["chunked in HTTP/1.0", ["Transfer-Encoding: chunked"], "1.0", /HTTP\/1\.0/],
    ["an empty length", ["Content-Length:"], "1.1", /plain number/],
    ["a length with a leading zero", ["Content-Length: 05"], "1.1", /plain number/],
    ["a length of 16 digits", ["Content-Length: 1000000000000000"], "1.1", /plain number/],
  ])("refuses %s", (_title, headers, version, refused) => {
    const { refusal } = framing(headers, { version });
    expect(refusal?.code).toBe("bad_request");
    expect(refusal?.detail).toMatch(refused);
  });
});

it.each<[title: string, headers: string[], version: string, refused: boolean]>([
  ["one", ["Host: h"], "1.1", false],
  ["one, empty", ["Host:"], "1.1", false],
  ["none", [], "1.1", true],
  ["none in HTTP/1.0", [], "1.0", false],
  ["two", ["Host: h", "HOST: h"], "1.1", true],
  ["two in HTTP/1.0", ["Host: h", "Host: i"], "1.0", true],
  ["a bad one in HTTP/1.0", ["Host: a b"], "1.0", true],
])("refuses a Host that is missing, repeated or invalid: %s", (_title, headers, version, refused) => {
  expect(framing(headers, { version, host: false }).refusal !== null).toBe(refused);
});

it.each<[headers: string[], version: string, isPersistent: boolean]>([
  [[], "1.1", true],
  [["Connection: x"], "1.1", true],
  [["Connection: x, CLOSE"], "1.1", false],
  [["Connection: keep-alive", "Connection: close"], "1.1", false],
  [["Connection: close;a"], "1.1", false],
  [["Proxy-Connection: close"], "1.1", false],
  [["Proxy-Connection: keep-alive"], "1.0", false],
  [[], "1.0", false],
  [["Connection: x"], "1.0", false],
  [["Connection: Keep-Alive"], "1.0", true],
  [["Connection: keep-alive;a"], "1.0", false],
  [["Connection: keep-alive, close"], "1.0", false],
])("reports whether the connection persists after %j in HTTP/%s: %j", (headers, version, isPersistent) => {
  expect(framing(headers, { version }).isPersistent).toBe(isPersistent);
});

it.each<[headers: string[], parts: { method?: string; version?: string }, asks: boolean]>([
  [["Connection: Upgrade", "Upgrade: websocket"], {}, true],
  [["connection: keep-alive, UPGRADE", "upgrade: h2c, WebSocket"], {}, true],
  [["Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket"], {}, true],
  [["Connection: Upgrade", "Upgrade: websocket"], { method: "POST" }, false],
  [["Connection: Upgrade", "Upgrade: websocket"], { version: "1.0" }, false],
  [["Connection: Upgrade", "Upgrade: h2c"], {}, false],
  [["Connection: keep-alive", "Upgrade: websocket"], {}, false],
  [["Upgrade: websocket"], {}, false],
  [["Connection: Upgrade", "Upgrade: websockets"], {}, false],
  [["Connection: Upgrade;a", "Upgrade: websocket"], {}, false],
  [["Connection: Upgrade", "Upgrade: websocket;a"], {}, false],
])("reports whether %j %j asks for a WebSocket: %j", (headers, parts, asks) => {
  expect(framing(headers, parts).upgrade === "websocket").toBe(asks);
});

it.each<[headers: string[], version: string, expects: Framing["expects"]]>([
  [[], "1.1", "nothing"],
  [["Expect: 100-Continue"], "1.1", "continue"],
  [["Expect: x"], "1.1", "unknown"],
  [["Expect:"], "1.1", "unknown"],
  [["Expect: 100-continue", "Expect: 100-continue"], "1.1", "unknown"],
  [["Expect: 100-continue"], "1.0", "nothing"],
])("reads from %j in HTTP/%s that the client expects %s", (headers, version, expects) => {
  expect(framing(headers, { version }).expects).toBe(expects);
});

it("refuses CONNECT", () => {
  expect(framing([], { method: "CONNECT" }).refusal?.detail).toMatch(/no forward proxy/);
});

it.each(HOSTS)("reports whether %j may stand in Host: %j", (host, fits) => {
  expect(isHost(host)).toBe(fits);
});

it.each(CERTIFICATE_NAMES)(
  "drops %s as a forged header about the client's certificate, even where underscores are allowed: %j",
  (name, poses) => {
    expect(isDropped(name, "allow")).toBe(poses);
  },
);

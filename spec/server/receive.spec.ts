import type { IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import { cidrSet } from "../../lib/base/cidr.ts";
import { isHost, readFraming } from "../../lib/server/framing.ts";
import { receive, refuseSize } from "../../lib/server/receive.ts";
import { manualClock } from "../support/clock.ts";
import { defaultLimits } from "../support/limits.ts";

interface Parts {
  readonly method?: string;
  readonly url?: string;
  readonly version?: string;
  readonly remote?: string | undefined;
  readonly encrypted?: boolean;
}

/** A request as node's parser would give it. */
function request(headers: readonly string[], parts: Parts = {}) {
  const { method = "GET", url = "/", version = "1.1", encrypted = false } = parts;
  const remote = "remote" in parts ? parts.remote : "192.0.2.1";
  const flat = headers.flatMap((line) => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return { rawHeaders: flat, method, url, httpVersion: version, socket: { remoteAddress: remote, encrypted }, rawTrailers: [] } as unknown as IncomingMessage;
}

const trusted = cidrSet(["10.0.0.0/8", "2001:db8:1::/48"]);
const options = { clock: manualClock(), isTrusted: (address: string) => trusted.has(address), limits: defaultLimits };
const received = (headers: readonly string[], parts: Parts = {}) => receive(request(headers, parts), options, () => {});

describe("framing", () => {
  test.each<[title: string, headers: string[], version: string, body: boolean, refused: RegExp | null]>([
    ["no length", [], "1.1", false, null],
    ["a length", ["Content-Length: 5"], "1.1", true, null],
    ["a length of zero", ["Content-Length: 0"], "1.1", false, null],
    ["a length in HTTP/1.0", ["Content-Length: 5"], "1.0", true, null],
    ["chunked", ["Transfer-Encoding: chunked"], "1.1", true, null],
    ["CHUNKED", ["TRANSFER-ENCODING: CHUNKED"], "1.1", true, null],
    ["two lengths", ["Content-Length: 5", "content-length: 5"], "1.1", true, /more than one Content-Length/],
    ["length and coding", ["Content-Length: 5", "Transfer-Encoding: chunked"], "1.1", true, /both/],
    ["coding and length", ["Transfer-Encoding: chunked", "Content-Length: 0"], "1.1", true, /both/],
    ["two codings", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], "1.1", true, /only Transfer-Encoding/],
    ["a list of codings", ["Transfer-Encoding: gzip, chunked"], "1.1", true, /only Transfer-Encoding/],
    ["another coding", ["Transfer-Encoding: identity"], "1.1", true, /only Transfer-Encoding/],
    ["an empty coding", ["Transfer-Encoding:"], "1.1", true, /only Transfer-Encoding/],
    ["a length with a leading zero", ["Content-Length: 05"], "1.1", true, /plain number/],
    ["a length of 15 digits", ["Content-Length: 999999999999999"], "1.1", true, null],
    ["a length of 16", ["Content-Length: 1000000000000000"], "1.1", true, /plain number/],
    ["a length in disguise", ["Content_Length: 5"], "1.1", false, null],
    ["a coding in disguise", ["TRANSFER_ENCODING: chunked"], "1.1", false, null],
    ["chunked with a parameter", ["Transfer-Encoding: chunked;q=1"], "1.1", true, /only Transfer-Encoding/],
    ["chunked in HTTP/1.0", ["Transfer-Encoding: chunked"], "1.0", true, /HTTP\/1\.0/],
    ["HTTP/0.9", [], "0.9", false, /version/],
    ["HTTP/2.0", [], "2.0", false, /version/],
  ])("%s", (_title, headers, version, body, refused) => {
    const { body: has, refusal } = received(["Host: h", ...headers], { version });
    expect(has !== null).toBe(body);
    if (refused === null) expect(refusal).toBeNull();
    else {
      expect(refusal?.code).toBe("bad_request");
      expect(refusal?.detail).toMatch(refused);
    }
  });

  test.each<[title: string, headers: string[], version: string, refused: boolean]>([
    ["one", ["Host: h"], "1.1", false],
    ["one, empty", ["Host:"], "1.1", false],
    ["none", [], "1.1", true],
    ["none in HTTP/1.0", [], "1.0", false],
    ["two", ["Host: h", "HOST: h"], "1.1", true],
    ["two in HTTP/1.0", ["Host: h", "Host: i"], "1.0", true],
    ["a bad one in HTTP/1.0", ["Host: a b"], "1.0", true],
  ])("Host: %s", (_title, headers, version, refused) => {
    expect(received(headers, { version }).refusal !== null).toBe(refused);
  });

  test("a WebSocket request has no body, and may say so", () => {
    const asks = ["Host: h", "Connection: Upgrade", "Upgrade: websocket"];
    expect(received(asks)).toMatchObject({ body: null, refusal: null, upgrade: "websocket" });
    expect(received([...asks, "Content-Length: 0"]).refusal).toBeNull();
    expect(received([...asks, "Content-Length: 1"])).toMatchObject({ body: null, refusal: { code: "bad_request" } });
  });
});

test.each([
  ["", true], ["h", true], ["h:80", true], ["[::1]:80", true], ["a.b-c_d~e", true], ["a,b", true], ["h:", true], ["[::1]", true],
  ["%41", false], ["h:abc", false], ["a:b:c", false], ["[::1", false], ["[x]", false], ["[::1]x", false], ["h:99999", false], ["h:65535", true],
  ["a b", false], ["a/b", false], ["a\\b", false], ["u@h", false], ["h?", false], ["h#", false], ["\u00e9", false], ["a\tb", false],
  ['"', false], ["<h>", false], ["{h}", false], ["h|", false], ["h^", false], ["`", false],
])("%j may stand in Host: %j", (host, fits) => {
  expect(isHost(host)).toBe(fits);
});

test.each<[title: string, target: string, headers: readonly string[], code: string | null]>([
  ["a target of the bound", "/" + "x".repeat(63), [], null],
  ["a target beyond it", "/" + "x".repeat(64), [], "uri_too_long"],
  ["as many header lines as allowed", "/", ["a", "1", "b", "2"], null],
  ["one more", "/", ["a", "1", "b", "2", "c", "3"], "headers_too_large"],
  ["a length of the bound", "/", ["Content-Length", "1000"], null],
  ["a length beyond it", "/", ["Content-Length", "1001"], "body_too_large"],
  ["a length beyond what numbers hold", "/", ["Content-Length", "9".repeat(30)], "body_too_large"],
])("%s", (_title, target, headers, code) => {
  const limits = { ...defaultLimits, maxUriBytes: 64, maxHeaders: 2, maxBodyBytes: 1000 };
  expect(refuseSize(target, headers, limits)?.code ?? null).toBe(code);
});

test("without max_body_bytes no length is too large", () => {
  expect(refuseSize("/", ["Content-Length", "9".repeat(30)], defaultLimits)).toBeNull();
});

describe("who it comes from", () => {
  test.each<[title: string, remote: string | undefined, chain: string[], client: string]>([
    ["nobody trusted", "192.0.2.1", ["X-Forwarded-For: 1.2.3.4"], "192.0.2.1"],
    ["a trusted proxy", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4"], "1.2.3.4"],
    ["a trusted proxy that says nothing", "10.0.0.1", [], "10.0.0.1"],
    ["right-most untrusted", "10.0.0.1", ["X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"],
    ["all trusted: the left-most", "10.0.0.1", ["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3"],
    ["over several lines", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4", "x-forwarded-for: 10.0.0.2"], "1.2.3.4"],
    ["IPv6", "10.0.0.1", ["X-Forwarded-For: 2001:db8:2::1, 2001:db8:1::1"], "2001:db8:2::1"],
    ["brackets and ports", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4:99, [2001:db8:1::1]:443"], "1.2.3.4"],
    ["mapped", "::ffff:10.0.0.1", ["X-Forwarded-For: ::ffff:1.2.3.4"], "1.2.3.4"],
    ["garbage ends the walk", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4, unknown, 10.0.0.2"], "10.0.0.2"],
    ["an empty hop ends the walk", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4,"], "10.0.0.1"],
    ["an open bracket ends the walk", "10.0.0.1", ["X-Forwarded-For: [::1"], "10.0.0.1"],
    ["a socket that is gone", undefined, ["X-Forwarded-For: 1.2.3.4"], ""],
  ])("%s", (_title, remote, chain, client) => {
    expect(received(["Host: h", ...chain], { remote }).clientAddress).toBe(client);
  });

  test("scheme and id are the connection's own, unless a trusted proxy says them", () => {
    const headers = ["Host: h", "X-Forwarded-Proto: https", "X-Request-Id: given"];
    expect(received(headers)).toMatchObject({ scheme: "http" });
    expect(received(headers).call.id).not.toBe("given");
    expect(received(headers, { remote: "10.0.0.1" })).toMatchObject({ scheme: "https", call: { id: "given", trustedRemote: true } });
    expect(received(["Host: h", "X-Forwarded-Proto: gopher"], { remote: "10.0.0.1", encrypted: true }).scheme).toBe("https");
    expect(received(["Host: h"], { encrypted: true }).scheme).toBe("https");
  });
});

test.each<[string[], Parts, boolean]>([
  [["Connection: Upgrade", "Upgrade: websocket"], {}, true],
  [["connection: keep-alive, UPGRADE", "upgrade: h2c, WebSocket"], {}, true],
  [["Connection: Upgrade", "Upgrade: websocket"], { method: "POST" }, false],
  [["Connection: Upgrade", "Upgrade: websocket"], { version: "1.0" }, false],
  [["Connection: Upgrade", "Upgrade: h2c"], {}, false],
  [["Connection: keep-alive", "Upgrade: websocket"], {}, false],
  [["Upgrade: websocket"], {}, false],
  [["Connection: Upgrade", "Upgrade: websockets"], {}, false],
])("%j %j asks for a WebSocket: %j", (headers, parts, asks) => {
  const { method, rawHeaders, httpVersion } = request(headers, parts);
  expect(readFraming(method!, rawHeaders, httpVersion).upgrade === "websocket").toBe(asks);
});

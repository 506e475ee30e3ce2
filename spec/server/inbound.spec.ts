import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { connectionOf } from "../../lib/server/client_certificate.ts";
import { receive } from "../../lib/server/node_request.ts";
import { refuseBody, refuseSize, type ReceiveOptions } from "../../lib/server/inbound.ts";
import { trustedProxies } from "../../lib/server/trusted_proxies.ts";
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
  return {
    rawHeaders: flat,
    method,
    url,
    httpVersion: version,
    socket: { remoteAddress: remote, encrypted },
    rawTrailers: [],
  } as unknown as IncomingMessage;
}

const options = {
  clock: manualClock(),
  proxies: trustedProxies(["10.0.0.0/8", "2001:db8:1::/48"]),
  limits: defaultLimits,
};
const received = (headers: readonly string[], parts: Parts = {}, rules: ReceiveOptions = options) => {
  const from = request(headers, parts);
  return receive(from, connectionOf(from.socket), rules, () => {});
};

it("gives a body, or a refusal, by the framing of the head", () => {
  expect(received(["Host: h"])).toMatchObject({ body: null, refusal: null });
  expect(received(["Host: h", "Content-Length: 0"])).toMatchObject({ body: null, refusal: null });
  expect(received(["Host: h", "Content-Length: 5"])).toMatchObject({ body: expect.anything(), refusal: null });
  expect(received(["Host: h", "Content-Length: 05"])).toMatchObject({ refusal: { code: "bad_request" } });
  for (const version of ["0.9", "2.0"])
    expect(received(["Host: h"], { version }).refusal?.detail).toMatch(/HTTP\/1\.1 or HTTP\/1\.0/);
});

it("tells of a target that is too long before other faults, and of too many header lines", () => {
  const rules = { ...options, limits: { ...defaultLimits, maxHeaderBytes: 100, maxUriBytes: 64, maxHeaders: 2 } };
  const codeOf = (headers: readonly string[], parts: Parts = {}) => received(headers, parts, rules).refusal?.code;
  expect(codeOf([], { url: `/${"x".repeat(64)}` })).toBe("uri_too_long");
  expect(codeOf(["a: 1", "b: 2", "c: 3"])).toBe("headers_too_large");
  expect(codeOf(["Host: h", `a: ${"x".repeat(100)}`])).toBe("headers_too_large");
  expect(codeOf(["Host: h"], { url: "*" })).toBe("bad_request");
  expect(codeOf(["Host: h"], { url: "*", method: "OPTIONS" })).toBeUndefined();
});

it("accepts a request for a WebSocket with Content-Length: 0, and refuses one with a body", () => {
  const asks = ["Host: h", "Connection: Upgrade", "Upgrade: websocket"];
  expect(received(asks)).toMatchObject({ body: null, refusal: null, upgrade: "websocket" });
  expect(received([...asks, "Content-Length: 0"]).refusal).toBeNull();
  expect(received([...asks, "Content-Length: 1"])).toMatchObject({ body: null, refusal: { code: "bad_request" } });
});

it.each<[title: string, target: string, headers: readonly string[], code: string | null]>([
  ["a target of the bound", "/" + "x".repeat(63), [], null],
  ["a target beyond the bound", "/" + "x".repeat(64), [], "uri_too_long"],
  ["as many header lines as allowed", "/", ["a", "1", "b", "2"], null],
  ["one header line more than allowed", "/", ["a", "1", "b", "2", "c", "3"], "headers_too_large"],
  ["a length of the bound", "/", ["Content-Length", "1000"], null],
  ["a length beyond the bound", "/", ["Content-Length", "1001"], "body_too_large"],
  ["a length beyond what numbers hold", "/", ["Content-Length", "9".repeat(30)], "body_too_large"],
])("checks the size of a request with %s", (_title, target, headers, code) => {
  const limits = { ...defaultLimits, maxUriBytes: 64, maxHeaders: 2, maxBodyBytes: 1000 };
  expect((refuseSize(target, headers, limits) ?? refuseBody(headers, limits))?.code ?? null).toBe(code);
});

it("accepts every length without max_body_bytes", () => {
  expect(refuseBody(["Content-Length", "9".repeat(30)], defaultLimits)).toBeNull();
});

describe("the client of a request", () => {
  it.each<[title: string, remote: string | undefined, chain: string[], client: string]>([
    ["no proxy is trusted", "192.0.2.1", ["X-Forwarded-For: 1.2.3.4"], "192.0.2.1"],
    ["a trusted proxy", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4"], "1.2.3.4"],
    ["a trusted proxy that says nothing", "10.0.0.1", [], "10.0.0.1"],
    ["the right-most untrusted hop", "10.0.0.1", ["X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"],
    ["all trusted: the left-most", "10.0.0.1", ["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3"],
    ["over several lines", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4", "x-forwarded-for: 10.0.0.2"], "1.2.3.4"],
    ["IPv6", "10.0.0.1", ["X-Forwarded-For: 2001:db8:2::1, 2001:db8:1::1"], "2001:db8:2::1"],
    ["brackets and ports", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4:99, [2001:db8:1::1]:443"], "1.2.3.4"],
    ["mapped", "::ffff:10.0.0.1", ["X-Forwarded-For: ::ffff:1.2.3.4"], "1.2.3.4"],
    ["garbage ends the walk", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4, unknown, 10.0.0.2"], "10.0.0.2"],
    ["an empty hop ends the walk", "10.0.0.1", ["X-Forwarded-For: 1.2.3.4,"], "10.0.0.1"],
    ["an open bracket ends the walk", "10.0.0.1", ["X-Forwarded-For: [::1"], "10.0.0.1"],
    ["a socket that is gone", undefined, ["X-Forwarded-For: 1.2.3.4"], ""],
  ])("finds the client's address: %s", (_title, remote, chain, client) => {
    expect(received(["Host: h", ...chain], { remote }).clientAddress).toBe(client);
  });

  it.each<[title: string, remote: string, headers: string[], client: string]>([
    ["the first that is there", "10.0.0.1", ["True-Client-IP: 3.3.3.3", "CF-Connecting-IP: 2.2.2.2"], "2.2.2.2"],
    ["the next one", "10.0.0.1", ["True-Client-IP: 3.3.3.3"], "3.3.3.3"],
    ["in any case", "10.0.0.1", ["cf-connecting-ip:  2001:DB8::1 "], "2001:DB8::1"],
    ["mapped", "10.0.0.1", ["CF-Connecting-IP: ::ffff:2.2.2.2"], "2.2.2.2"],
    ["even a trusted address", "10.0.0.1", ["CF-Connecting-IP: 10.0.0.9"], "10.0.0.9"],
    ["not one that is there twice", "10.0.0.1", ["CF-Connecting-IP: 2.2.2.2", "cf-connecting-ip: 6.6.6.6"], "1.2.3.4"],
    ["not two addresses", "10.0.0.1", ["CF-Connecting-IP: 2.2.2.2, 6.6.6.6"], "1.2.3.4"],
    ["not a name", "10.0.0.1", ["CF-Connecting-IP: unknown"], "1.2.3.4"],
    ["not an empty one", "10.0.0.1", ["CF-Connecting-IP:"], "1.2.3.4"],
    ["X-Forwarded-For without any of them", "10.0.0.1", [], "1.2.3.4"],
    ["nobody but trusted proxies", "192.0.2.1", ["CF-Connecting-IP: 2.2.2.2"], "192.0.2.1"],
  ])("is named by client_ip_headers: %s", (_title, remote, headers, client) => {
    const proxies = trustedProxies(["10.0.0.0/8"], ["CF-Connecting-IP", "True-Client-IP"]);
    const lines = ["Host: h", "X-Forwarded-For: 1.2.3.4", ...headers];
    expect(received(lines, { remote }, { ...options, proxies }).clientAddress).toBe(client);
  });

  it("is the only one who sends headers of a proxy, unless it is a trusted one", () => {
    const sent = [
      "Host: forwarded",
      "X-Forwarded-For: 1.2.3.4",
      "x-forwarded-proto: https",
      "X-Forwarded-Ssl: on",
      "Forwarded: for=1.2.3.4",
      "X-REAL-IP: 1.2.3.4",
      "X-Forwarded-More: 1",
      "X-Request-Id: given",
    ];
    const names = (headers: readonly string[]) => headers.filter((_text, i) => i % 2 === 0);
    expect(names(received(sent).headers)).toEqual(["Host", "X-Forwarded-More", "X-Request-Id"]);
    expect(names(received(sent, {}, { ...options, proxies: null }).headers)).toEqual([
      "Host",
      "X-Forwarded-More",
      "X-Request-Id",
    ]);
    expect(received(sent, { remote: "10.0.0.1" }).headers).toHaveLength(2 * sent.length);
  });

  it("accepts scheme and id from the headers of a trusted proxy only", () => {
    const headers = ["Host: h", "X-Forwarded-Proto: https", "X-Request-Id: given"];
    expect(received(headers)).toMatchObject({ scheme: "http" });
    expect(received(headers).call.id).not.toBe("given");
    expect(received(headers, { remote: "10.0.0.1" })).toMatchObject({
      scheme: "https",
      call: { id: "given", trustedRemote: true },
    });
    expect(received(["Host: h", "X-Forwarded-Proto: gopher"], { remote: "10.0.0.1", encrypted: true }).scheme).toBe(
      "https",
    );
    expect(received(["Host: h"], { encrypted: true }).scheme).toBe("https");
  });
});

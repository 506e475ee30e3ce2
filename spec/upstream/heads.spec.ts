import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import { fieldLines, headText, requestHead, websocketAccept, trailerFields } from "../../lib/upstream/heads.ts";
import { isWebsocketKey } from "../../lib/upstream/http2_request.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";

const peer = madeUpPeer("u", madeUpPool({ host: "10.0.0.1", port: 81 }));
const options = { preserveHost: false, viaName: "gw" };
type Parts = Parameters<typeof madeUpExchange>[0];

const lines = (parts: Parts, opts = options) => {
  const { headers } = requestHead(madeUpExchange(parts), peer, opts);
  return headers.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${headers[i + 1]}`] : []));
};
const call = (trustedRemote: boolean) =>
  new Call({ id: "id-1", remoteAddress: "192.0.2.9", trustedRemote, startedAt: 0, inform: () => {} });

it("begins with Host, then has the client's headers, then the gateway's", () => {
  expect(lines({ call: call(false), headers: ["Host", "gw.example", "Accept", "*/*", "x-a", "1"] })).toEqual([
    "Host: 10.0.0.1:81",
    "Accept: */*",
    "x-a: 1",
    "X-Forwarded-For: 192.0.2.9",
    "X-Forwarded-Proto: http",
    "X-Forwarded-Port: 80",
    "X-Forwarded-Host: gateway.example",
    "X-Forwarded-Prefix: /a",
    "X-Request-Id: id-1",
    "Via: 1.1 gw",
  ]);
});

describe("framing", () => {
  const body = Readable.from([]);
  it.each<[string, Parts, number, string | undefined]>([
    ["GET without a body", {}, 0, undefined],
    ["POST without a body", { method: "POST" }, 0, "Content-Length: 0"],
    ["PUT with a written zero", { method: "PUT", headers: ["content-length", "0"] }, 0, "content-length: 0"],
    ["an unknown method without a body", { method: "PURGE" }, 0, "Content-Length: 0"],
    ["DELETE without a body", { method: "DELETE" }, 0, undefined],
    [
      "a body that a plugin took away, and left its length",
      { method: "POST", headers: ["Content-Length", "50"] },
      0,
      "Content-Length: 0",
    ],
    [
      "two lengths, without a body, of a method that needs none",
      { headers: ["Content-Length", "0", "Content-Length", "5"] },
      0,
      undefined,
    ],
    ["a body with a length", { method: "POST", body, headers: ["Content-Length", "3"] }, 3, "Content-Length: 3"],
    [
      "a chunked body",
      { method: "POST", body, headers: ["Transfer-Encoding", "chunked"] },
      Infinity,
      "Transfer-Encoding: chunked",
    ],
    [
      "a body with neither (HTTP/2)",
      { method: "POST", body, headers: [], httpVersion: "2.0" },
      Infinity,
      "Transfer-Encoding: chunked",
    ],
  ])("frames the request: %s", (_title, parts, length, line) => {
    expect(requestHead(madeUpExchange(parts), peer, options).length).toBe(length);
    expect(lines(parts).filter((each) => /^(content-length|transfer-encoding)/i.test(each))).toEqual(
      line === undefined ? [] : [line],
    );
  });

  it.each([["5", "5"], ["5", "7"], ["5, 5"], ["5e0"], ["0x5"], ["-5"], ["+5"], [""]])(
    "throws for a body with Content-Length %j, %j",
    (...values) => {
      const headers = values.flatMap((value) => ["Content-Length", value!]);
      expect(() => requestHead(madeUpExchange({ method: "POST", body, headers }), peer, options)).toThrow(TypeError);
    },
  );

  it("a request head has Trailer only with a chunked body", () => {
    const headers = ["Trailer", "X-Sum"];
    expect(lines({ method: "POST", body, headers })).toContain("Trailer: X-Sum");
    expect(lines({ method: "POST", body, headers: [...headers, "Content-Length", "3"] })).not.toContain(
      "Trailer: X-Sum",
    );
    expect(lines({ headers })).not.toContain("Trailer: X-Sum");
  });
});

it("names only the protocol of the exchange in Connection and Upgrade", () => {
  const headers = ["Connection", "Upgrade, X-Hop", "Upgrade", "websocket, h2c", "X-Hop", "1", "TE", "trailers"];
  const all = lines({ headers, upgrade: "websocket" });
  expect(all.filter((line) => /^(connection|upgrade|te|x-hop)/i.test(line))).toEqual([
    "Connection: Upgrade",
    "Upgrade: websocket",
  ]);
});

describe("X-Forwarded-Prefix", () => {
  it.each([
    ["/", "/b", []],
    ["/a", "/a/b", ["/a"]],
    ["/t/{tenant}", "/t/42/orders", ["/t/42"]],
    ["/t/{tenant}", "/t/42", ["/t/42"]],
    ["/{x}/<y>", "/1/2/3", ["/1/2"]],
    ["/t/{tenant}", "/t/4%2F2/orders", ["/t/4%2F2"]],
  ])("names the part of the path that base_path took: %s of %s", (basePath, path, prefix) => {
    const all = lines({ service: { name: "s", basePath }, path });
    expect(all.filter((line) => line.startsWith("X-Forwarded-Prefix")).map((line) => line.slice(20))).toEqual(prefix);
  });

  it.each([
    ["/outer", "/outer/a"],
    ["/outer/", "/outer/a"],
    ["/", "/a"],
  ])("follows a trusted proxy's own %s", (outer, joined) => {
    expect(lines({ call: call(true), headers: ["X-Forwarded-Prefix", outer] })).toContain(
      `X-Forwarded-Prefix: ${joined}`,
    );
  });
});

it.each([
  ["h", "http", "80"],
  ["h", "https", "443"],
  ["h:8443", "https", "8443"],
  ["[::1]", "http", "80"],
  ["[::1]:9", "http", "9"],
  ["h:", "http", "80"],
  ["", "http", "80"],
] as const)("the port of authority %j over %s is %s", (authority, scheme, port) => {
  const all = lines({ authority, scheme });
  expect(all).toContain(`X-Forwarded-Port: ${port}`);
  expect(all.some((line) => line.startsWith("X-Forwarded-Host"))).toBe(authority !== "");
});

it("a request head has the client's Host with preserve_host, and the upstream's name if the client sent none", () => {
  const keep = { ...options, preserveHost: true };
  expect(lines({ authority: "gw.example:99" }, keep)[0]).toBe("Host: gw.example:99");
  expect(lines({ authority: "" }, keep)[0]).toBe("Host: 10.0.0.1:81");
});

describe("a WebSocket's key", () => {
  const headers = ["Host", "gw.example", "sec-websocket-version", "13", "Sec-WebSocket-Key", "the client's"];

  it("a WebSocket's key comes from an HTTP/1.1 client, which checks the answer", () => {
    const exchange = { upgrade: "websocket", headers };
    expect(lines(exchange)).toContain("Sec-WebSocket-Key: the client's");
    expect(requestHead(madeUpExchange(exchange), peer, options).accept).toBe(null);
  });

  it("a WebSocket's key comes from the gateway for a client of HTTP/2, and the gateway checks the answer", () => {
    const made = requestHead(madeUpExchange({ upgrade: "websocket", httpVersion: "2.0", headers }), peer, options);
    const keys = made.headers.flatMap((name, i) =>
      name.toLowerCase() === "sec-websocket-key" ? [made.headers[i + 1]!] : [],
    );
    expect(keys).toHaveLength(1);
    expect(made.accept).toBe(websocketAccept(keys[0]!));
  });
});

describe("traceparent and tracestate", () => {
  const headers = ["TraceParent", "theirs", "tracestate", "a=1", "Traceparent", "again", "X-Trace", "kept"];
  const spanned = (tracestate: string | null) => {
    const traced = call(false);
    traced.notes.span = {
      traceId: "t",
      spanId: null,
      traceparent: "ours",
      tracestate,
      try: () => expect.unreachable(),
    };
    return lines({ call: traced, headers }).filter((line) => /trace/i.test(line));
  };

  it("traceparent and tracestate come from the client if requests are not traced", () => {
    expect(lines({ call: call(false), headers }).filter((line) => /trace/i.test(line))).toEqual([
      "TraceParent: theirs",
      "tracestate: a=1",
      "Traceparent: again",
      "X-Trace: kept",
    ]);
  });

  it("traceparent and tracestate come from the request's span, and not from the client, if requests are traced", () => {
    expect(spanned("b=2")).toEqual(["X-Trace: kept", "traceparent: ours", "tracestate: b=2"]);
    expect(spanned(null)).toEqual(["X-Trace: kept", "traceparent: ours"]);
  });
});

describe("the text of a head", () => {
  it("the text of a head has its case, order and duplicates, each character a byte", () => {
    const text = headText("PROPFIND", "/a?b=\xe9", ["Host", "h", "x-B", "caf\xe9", "X-b", "", "X-T", "a\tb"]);
    expect(text).toBe(
      "PROPFIND /a?b=\xe9 HTTP/1.1\r\nHost: h\r\nx-B: caf\xe9\r\nX-b: \r\nX-T: a\tb\r\nConnection: keep-alive\r\n\r\n",
    );
  });

  it("the text of a head keeps an existing Connection", () => {
    expect(headText("GET", "/", ["Host", "h", "connection", "TE"])).toBe(
      "GET / HTTP/1.1\r\nHost: h\r\nconnection: TE\r\n\r\n",
    );
  });

  it.each<[string, string, string, string[]]>([
    ["a method with a blank", "GET /x", "/", ["Host", "h"]],
    ["no method", "", "/", ["Host", "h"]],
    ["a target with a blank", "GET", "/a b", ["Host", "h"]],
    ["a target with a line of its own", "GET", "/ HTTP/1.1\r\nX-A: b\r\n", ["Host", "h"]],
    ["a target beyond Latin-1", "GET", "/\u2028", ["Host", "h"]],
    ["a name with a line break", "GET", "/", ["X\r\nY", "a"]],
    ["a name with a colon", "GET", "/", ["X:", "a"]],
    ["a name that has its own value behind it", "GET", "/", ["Content-Length: 5", "a"]],
    ["an empty name", "GET", "/", ["", "a"]],
    ["a value that is a line of its own", "GET", "/", ["X", "a\r\nY: b"]],
    ["a value that ends the head", "GET", "/", ["X", "a\r\n\r\nGET / HTTP/1.1\r\nY: b"]],
    ["a value with a bare LF", "GET", "/", ["X", "a\nb"]],
    ["a value with a bare CR", "GET", "/", ["X", "a\rb"]],
    ["a value with NUL", "GET", "/", ["X", "a\0"]],
    ["a value beyond Latin-1", "GET", "/", ["X", "\u0100"]],
    ["a name without a value", "GET", "/", ["X", "a", "Y"]],
  ])("the text of a head cannot contain %s", (_title, method, target, headers) => {
    expect(() => headText(method, target, headers)).toThrow(TypeError);
  });
});

it("writes one trailer a line, and refuses line breaks in them", () => {
  expect(fieldLines([])).toBe("");
  expect(fieldLines(["X-Sum", "3", "x", "\xe9"])).toBe("X-Sum: 3\r\nx: \xe9\r\n");
  for (const value of ["a\r\nY: b", "a\n", "\0", "\u0100"]) expect(() => fieldLines(["X", value])).toThrow(TypeError);
  for (const name of ["X Y", "X: Y", ""]) expect(() => fieldLines([name, "a"])).toThrow(TypeError);
});

it("computes Sec-WebSocket-Accept as in RFC 6455 §1.3", () => {
  expect(websocketAccept("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
});

it("accepts one Sec-WebSocket-Key of 16 bytes only", () => {
  const key = "dGhlIHNhbXBsZSBub25jZQ==";
  expect(isWebsocketKey([key])).toBe(true);
  for (const values of [[], [""], [key, key], [`${key}, ${key}`], ["c2hvcnQ="], [key.slice(0, -2)], [` ${key}`]])
    expect(isWebsocketKey(values)).toBe(false);
});

it("forwards trailers about the content, in order and with duplicates", () => {
  const list = ["X-Sum", "1", "grpc-status", "0", "x-sum", "2", "Server-Timing", "a;dur=1", "ETag", '"x"'];
  expect(trailerFields(list)).toEqual(list);
});

it.each([
  "Content-Length",
  "transfer-encoding",
  "Host",
  "Connection",
  "TE",
  "Trailer",
  "Upgrade",
  "Authorization",
  "Cookie",
  "Set-Cookie",
  "Content-Type",
  "Content-Encoding",
  "Content-Range",
  "Expect",
  "Cache-Control",
  "X-Forwarded-For",
  "x-forwarded-proto",
  "Forwarded",
  "X-Request-Id",
  "Via",
  "Proxy-Authorization",
])("removes the trailer %s, which would rewrite what was checked in the head", (name) => {
  expect(trailerFields(["X-A", "1", name, "x", "X-B", "2"])).toEqual(["X-A", "1", "X-B", "2"]);
});

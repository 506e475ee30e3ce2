import { describe, expect, it } from "vitest";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { Call } from "../../lib/http/exchange.ts";
import { redactedPath } from "../../lib/http/redact.ts";
import { jsonLines, pathOf } from "../../lib/observe/access_line.ts";
import { combinedLines } from "../../lib/observe/combined_line.ts";
import { requestFacts } from "../support/request_facts.ts";

const WALL = Date.UTC(2026, 0, 1) + 12;

function entry(changes: Partial<RequestFacts> = {}, notes: Partial<Call["notes"]> = {}): RequestFacts {
  const call = new Call({
    id: "r1",
    remoteAddress: "192.0.2.1",
    trustedRemote: false,
    startedAt: 100,
    inform: () => {},
  });
  Object.assign(call.notes, notes);
  return requestFacts(call, { authority: "a.example:8080", ...changes });
}

const json = (changes?: Partial<RequestFacts>, notes?: Partial<Call["notes"]>) =>
  JSON.parse(jsonLines()(entry(changes, notes), 112.345, WALL)) as Record<string, unknown>;
const combined = (changes?: Partial<RequestFacts>, notes?: Partial<Call["notes"]>) =>
  combinedLines()(entry(changes, notes), 112.345, WALL);

const TARGETS = [
  ["/a?apiKey=secret", "/a"],
  ["/a#fragment?secret", "/a"],
  ["/a?b#secret", "/a"],
  ["http://user:secret@h.example/a/b?c", "/a/b"],
  ["http://user:secret@h.example", "/"],
  ["http://user:secret@h.example?q=/secret", "/"],
  ["user:secret@h.example:443", "h.example:443"],
  ["user:sec@ret@h.example:443?q", "h.example:443"],
  ["h.example:443", "h.example:443"],
  ["*", "*"],
  ["/reset/eyJhbGciOiJub25lIn0.secret.secret/now", "/reset/[redacted]/now"],
  ["/a;token=secret/b", "/a;token=[redacted]/b"],
  ["/a%3FapiKey=secret", "/a%3FapiKey=[redacted]"],
  ["/a;token=secret?b", "/a;token=[redacted]"],
  ["/eyJ.secret?b=eyJ", "/[redacted]"],
  ["/a?/../eyJ.secret", "/a"],
] as const;

describe("a line of JSON", () => {
  it("a line of JSON has these fields in this order", () => {
    const headers = ["User-Agent", "curl/8", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"];
    const notes = {
      service: "s",
      route: "r",
      status: 200,
      upstream: "u",
      attempts: 1,
      upstreamMs: 10,
      answeredAt: 111.5,
      received: 3,
      sent: 4,
      identity: "anna",
    };
    expect(jsonLines()(entry({ headers }, notes), 112.345, WALL)).toBe(
      '{"time":"2026-01-01T00:00:00.012Z","request_id":"r1","trace_id":"0af7651916cd43dd8448eb211c80319c",' +
        '"client_ip":"192.0.2.1","method":"GET",' +
        ('"scheme":"http","host":"a.example:8080","path":"/a/b","protocol":"HTTP/1.1","tls":null,"status":200,' +
          '"code":null,"bytes_received":3,"bytes_sent":4,"service":"s","route":"r","upstream":"u",') +
        '"attempts":1,"caller":"anna","duration_ms":12.35,"upstream_ms":10,"plugins_ms":1.50,"user_agent":"curl/8"}\n',
    );
  });

  it.each([
    ["a.example", "/x", "a.example"],
    ["[2001:db8::1]:8443", "/x", "[2001:db8::1]:8443"],
    ["a.example", "http://b.example:81/x?q", "b.example:81"],
    ["a.example", "*", "a.example"],
    ["", "/x", null],
    ["user:secret@a.example", "/x", null],
    ["a.example", "http://user:secret@b.example/x", null],
    ['a"b', "/x", null],
    ["a b", "/x", null],
    ["é", "/x", null],
    ["a".repeat(300), "/x", null],
  ])("names the requested host: Host %j and target %j give %j", (authority, target, host) => {
    expect(json({ authority, target }).host).toBe(host);
  });

  it("a line of JSON has null for every unknown value", () => {
    expect(json()).toMatchObject({
      trace_id: null,
      status: null,
      code: null,
      bytes_received: null,
      bytes_sent: null,
      service: null,
      route: null,
    });
    expect(json()).toMatchObject({
      upstream: null,
      attempts: 0,
      caller: null,
      upstream_ms: null,
      plugins_ms: null,
      user_agent: null,
    });
  });

  it("a line of JSON has the fault of an error, and no fault when a client disconnected", () => {
    const [failed, left] = [entry(), entry()];
    failed.call.fail("upstream_reset", "socket hang up");
    left.call.abort();
    left.call.fail("upstream_reset", "the client went away");
    const [first, second] = [failed, left].map(
      (each) => JSON.parse(jsonLines()(each, 0, WALL)) as Record<string, unknown>,
    );
    expect(first).toMatchObject({ code: "upstream_reset", fault: "socket hang up" });
    expect(second).toMatchObject({ code: "client_closed" });
    expect(second).not.toHaveProperty("fault");
  });

  it.each(TARGETS)("a line of JSON writes the target %j as %j, without secrets", (target, path) => {
    expect(json({ target }).path).toBe(path);
    expect(JSON.stringify(json({ target }))).not.toContain("secret");
  });

  it("a line of JSON writes the path of every target without the secrets in it, in any combination", () => {
    const pieces = [
      "/",
      "a",
      "?",
      "#",
      "=",
      ";token=",
      "&sig=",
      "%3F",
      "e",
      "y",
      "J",
      "eyJ",
      "-",
      "<",
      ">",
      "@",
      '"',
      "\\",
      "\u007f",
      "\u00e9",
      "http://u:p@h",
    ];
    const line = jsonLines();
    for (const first of pieces) {
      for (const second of pieces) {
        for (const third of pieces) {
          const target = `/${first}${second}${third}x`;
          for (const each of [target, target.slice(1)]) {
            const { path } = JSON.parse(line(entry({ target: each }), 0, WALL)) as { path: string };
            if (path !== redactedPath(pathOf(each))) expect(path, each).toBe(redactedPath(pathOf(each)));
          }
        }
      }
    }
  });

  it("a line of JSON has the values of the current request, however similar the previous request was", () => {
    const line = jsonLines();
    const requests = [
      ["GET", "1.1", { service: "s", route: "/", upstream: "u", status: 200, attempts: 1 }],
      ["GET", "1.1", { service: "t", route: "/", upstream: "u", status: 200, attempts: 2 }],
      ["GET", "2.0", { service: "t", route: "/", upstream: "v", status: 200, attempts: 2 }],
      ["POST", "2.0", { service: "t", route: null, upstream: "v", status: 404, attempts: 1 }],
      ["ODD", "1.1", { service: null, route: null, upstream: null, status: null, attempts: 0 }],
      ["GET", "1.1", { service: "null", route: "null", upstream: "null", status: 404, attempts: 1 }],
    ] as const;
    for (const [method, httpVersion, notes] of [...requests, ...requests]) {
      const said = JSON.parse(line(entry({ method, httpVersion }, notes), 0, WALL)) as Record<string, unknown>;
      expect(said).toMatchObject({ method, protocol: `HTTP/${httpVersion}`, ...notes });
    }
  });

  it(
    "a line of JSON parses as one line to the original values, whatever they contain, " +
      "without control characters for terminals",
    () => {
      const odd = '/"\\\u0001\n\u007f\u009b\u00e9';
      const notes = { service: odd, route: odd, upstream: odd, identity: odd, code: odd, fault: odd };
      const line = jsonLines()(
        entry({ target: odd, method: odd, clientAddress: odd, headers: ["User-Agent", odd] }, notes),
        0,
        WALL,
      );
      expect(line).toMatch(/^[^\x00-\x1f\x7f-\x9f]+\n$/);
      const { fault, ...more } = JSON.parse(line) as Record<string, unknown>;
      expect([
        more.path,
        more.method,
        more.client_ip,
        more.user_agent,
        more.service,
        more.route,
        more.upstream,
        more.caller,
        more.code,
        fault,
      ]).toEqual(Array(10).fill(odd));
    },
  );

  it("a line of JSON has the first 256 characters of a user agent", () => {
    expect(json({ headers: ["user-agent", "x".repeat(300)] }).user_agent).toBe("x".repeat(256));
  });

  it.each([
    [0, 0],
    [0.004, 0],
    [0.05, 0.05],
    [7.1, 7.1],
    [99.999, 100],
    [-1, 0],
  ])("a line of JSON reports %d ms as %d", (ms, said) => {
    const line = jsonLines()(entry(), 100 + ms, WALL);
    expect((JSON.parse(line) as Record<string, unknown>).duration_ms).toBe(said);
  });

  it("a line of JSON has the right time within a second and across seconds", () => {
    const line = jsonLines();
    const times = [0, 7, 40, 999, 1000, 61_000, 500].map((ms) =>
      (JSON.parse(line(entry(), 0, Date.UTC(2026, 0, 1) + ms)) as { time: string }).time.slice(14),
    );
    expect(times).toEqual([
      "00:00.000Z",
      "00:00.007Z",
      "00:00.040Z",
      "00:00.999Z",
      "00:01.000Z",
      "01:01.000Z",
      "00:00.500Z",
    ]);
  });
});

describe("a line of the combined format", () => {
  it("a line of the combined format has Apache's combined format", () => {
    const headers = ["User-Agent", 'a "b" \\c', "Referer", "https://shop.example/cart"];
    expect(combined({ headers }, { status: 200, sent: 2326, identity: "anna b" })).toBe(
      '192.0.2.1 - anna\\x20b [01/Jan/2026:00:00:00 +0000] "GET /a/b HTTP/1.1" 200 2326 ' +
        '"https://shop.example/cart" "a \\"b\\" \\\\c"\n',
    );
  });

  it(
    "a line of the combined format has - for absent values, " + "and 499 when the client disconnected before an answer",
    () => {
      expect(combined({}, { status: 304, sent: 0 })).toMatch(
        /^192\.0\.2\.1 - - \[[^\]]+\] "GET \/a\/b HTTP\/1\.1" 304 - "-" "-"\n$/,
      );
      const left = entry();
      left.call.abort();
      expect(combinedLines()(left, 0, WALL)).toContain('" 499 - "');
    },
  );

  it.each(TARGETS)("a line of the combined format writes the target %j as %j, without secrets", (target, path) => {
    expect(combined({ target })).toContain(`"GET ${path} HTTP/1.1"`);
    expect(combined({ target })).not.toContain("secret");
  });

  it("a line of the combined format has the Referer without its secrets", () => {
    const line = combined({ headers: ["Referer", "https://user:secret@h.example/a?token=secret#secret"] });
    expect(line).toContain('"https://h.example/a"');
    expect(line).not.toContain("secret");
    expect(combined({ headers: ["Referer", "https://h.example/eyJhbGciOiJub25lIn0.secret./a"] })).toContain(
      '"https://h.example/[redacted]/a"',
    );
  });

  it("a line of the combined format contains one line of printable ASCII, whatever the values contain", () => {
    const odd = '/"\\\u0001\n\u00e9';
    const line = combined(
      { target: odd, headers: ["User-Agent", odd, "Referer", odd] },
      { identity: "\u2028\u{1f600}" },
    );
    expect(line).toMatch(/^[\x20-\x7e]+\n$/);
    expect(line).toContain('"GET /\\"\\\\\\x01\\x0a\\xe9 HTTP/1.1"');
    expect(line).toContain(" - \\xe2\\x80\\xa8\\xf0\\x9f\\x98\\x80 [");
  });
});

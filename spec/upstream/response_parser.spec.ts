import { describe, expect, it, onTestFinished, vi } from "vitest";
import { MAX_RESPONSE_HEAD_BYTES, ResponseParser, type ResponseSink } from "../../lib/upstream/response_parser.ts";

interface Read {
  readonly events: readonly string[];
  readonly invalid: string | null;
  readonly parser: ResponseParser;
}

/** What a parser tells of these bytes, given in pieces of `size`. */
function read(text: string, { size = Infinity, method = "GET", closes = false } = {}): Read {
  const events: string[] = [];
  let body = "";
  const flush = () => {
    if (body !== "") events.push(`body ${body}`);
    body = "";
  };
  const sink: ResponseSink = {
    informed: ({ statusCode }) => events.push(`informed ${statusCode}`),
    switched: ({ statusCode }, behind) => events.push(`switched ${statusCode} ${behind}`),
    answered({ statusCode, statusMessage, httpVersion, rawHeaders }, whole) {
      events.push(`answered ${httpVersion} ${statusCode} ${statusMessage} ${rawHeaders.join("|")}`);
      body = whole?.toString("latin1") ?? "";
    },
    body: (bytes) => void (body += bytes.toString("latin1")),
    ended(trailers, connection) {
      flush();
      events.push(`ended ${connection} ${trailers.join("|")}`);
    },
  };
  const parser = new ResponseParser();
  parser.begin(method, sink);
  const bytes = Buffer.from(text, "latin1");
  let invalid: string | null = null;
  for (let at = 0; at < bytes.length && invalid === null; at += size)
    invalid = parser.feed(Buffer.from(bytes.subarray(at, at + Math.min(size, bytes.length))));
  if (closes && invalid === null) parser.endOfConnection();
  flush();
  return { events, invalid, parser };
}

const CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

describe.each([Infinity, 7, 1])("the parser of responses in pieces of %d bytes", (size) => {
  it.each<[string, string, string[]]>([
    [
      "a body of stated length",
      "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood",
      ["answered 1.1 200 OK Content-Length|4", "body good", "ended reusable "],
    ],
    [
      "no reason phrase",
      "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
      ["answered 1.1 200  Content-Length|0", "ended reusable "],
    ],
    [
      "headers with order, case, duplicates, blanks around them and Latin-1",
      "HTTP/1.1 204 X\r\nx-B:\t 1 \t\r\nX-b:\r\nX-L: caf\xe9\r\n\r\n",
      ["answered 1.1 204 X x-B|1|X-b||X-L|caf\xe9", "ended reusable "],
    ],
    [
      "chunks with extensions, and trailers",
      `${CHUNKED}2;a=b;c="d\\"e"\r\nok\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 3\r\nx-sum:4\r\n\r\n`,
      ["answered 1.1 200 OK Transfer-Encoding|chunked", "body ok0123456789", "ended reusable X-Sum|3|x-sum|4"],
    ],
    [
      "informational responses before it",
      "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
      ["informed 103", "informed 100", "answered 1.1 200 OK Content-Length|0", "ended reusable "],
    ],
    [
      "that HTTP/1.0 ends the connection",
      "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
      ["answered 1.0 200 OK Content-Length|2", "body ok", "ended spent "],
    ],
    [
      "that HTTP/1.0 keeps it if it says so",
      "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok",
      ["answered 1.0 200 OK Connection|Keep-Alive|Content-Length|2", "body ok", "ended reusable "],
    ],
    [
      "that Connection: close ends it",
      "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok",
      ["answered 1.1 200 OK Connection|x, Close|Content-Length|2", "body ok", "ended spent "],
    ],
  ])("reads %s", (_title, text, events) => {
    expect(read(text, { size })).toMatchObject({ events, invalid: null });
  });

  it("reads a body that lasts until the connection ends", () => {
    expect(read("HTTP/1.1 200 OK\r\n\r\nall of it", { size, closes: true }).events).toEqual([
      "answered 1.1 200 OK ",
      "body all of it",
      "ended spent ",
    ]);
    expect(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npart", { size, closes: true }).events).toEqual([
      "answered 1.1 200 OK Content-Length|5",
      "body part",
    ]);
  });

  it.each(["HEAD", "GET"])("reads no body of HEAD, 204 and 304, whatever their headers say: %s", (method) => {
    for (const status of method === "HEAD" ? [200, 404] : [204, 304]) {
      for (const framing of ["Content-Length: 9", "Transfer-Encoding: chunked"]) {
        // A 204 must not speak of one (RFC 9112 §6.1, §6.2): whoever does may send it, too, and behind the end it would
        // be the next response.
        const connection = status === 204 ? "spent" : "reusable";
        expect(read(`HTTP/1.1 ${status} X\r\n${framing}\r\n\r\n`, { size, method }).events.at(-1)).toBe(
          `ended ${connection} `,
        );
      }
    }
  });
});

const head = (...lines: string[]) => `HTTP/1.1 200 OK\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n`;

describe("the refusals of the parser", () => {
  it.each<[string, string]>([
    ["another protocol", "SSH-2.0-x"],
    ["another version", "HTTP/2.0 200 OK\r\n\r\n"],
    ["leading blank lines", "\r\nHTTP/1.1 200 OK\r\n\r\n"],
    ["a status of two digits, four, or below 100", "HTTP/1.1 099 X\r\n\r\n"],
    ["no blank before the reason", "HTTP/1.1 200OK\r\n\r\n"],
    ["a bare LF before the head is whole", "HTTP/1.1 200 OK\n"],
    ["a bare CR before the head is whole", "HTTP/1.1 200 OK\rX"],
    ["a folded line", head("X-A: a", " b")],
    ["a blank before a colon", head("X-A : a")],
    ["no name", head(": a")],
    ["no colon", head("X-A")],
    ["a name that is no token", head("X(A): a")],
    ["NUL in a value", head("X-A: a\0")],
    ["DEL in a value", head("X-A: a\x7f")],
    ["two lengths, even if they agree", head("Content-Length: 1", "content-length: 1")],
    ["a list of lengths", head("Content-Length: 1, 1")],
    ["no length where one is named", head("Content-Length:")],
    ["a signed length", head("Content-Length: +1")],
    ["a length beyond 10^15", head("Content-Length: 1000000000000000")],
    ["both framings", head("Content-Length: 1", "Transfer-Encoding: chunked")],
    ["two codings", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")],
    ["a coding other than chunked", head("Transfer-Encoding: identity")],
    ["an empty coding", head("Transfer-Encoding:")],
    ["chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ["101 without an upgrade", "HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n"],
    ["an informational response that ends the connection", "HTTP/1.1 103 X\r\nConnection: close\r\n\r\n"],
    ["a chunk without a size", `${CHUNKED}\r\n`],
    ["a chunk whose size is none", `${CHUNKED}g\r\n`],
    ["a size with 0x", `${CHUNKED}0x2\r\nok\r\n`],
    ["a size with a sign", `${CHUNKED}-2\r\nok\r\n`],
    ["a size of fourteen digits", `${CHUNKED}${"0".repeat(14)}\r\n`],
    ["a blank behind a size", `${CHUNKED}2 \r\nok\r\n`],
    ["a bare LF behind a size", `${CHUNKED}2\nok\r\n`],
    ["a bare CR behind a size", `${CHUNKED}2\rok\r\n`],
    ["an extension that is none", `${CHUNKED}2;\r\nok\r\n`],
    ["an extension with a bare CR", `${CHUNKED}2;a=b\rc\r\nok\r\n`],
    ["an extension that is not closed", `${CHUNKED}2;a="b\r\nok\r\n`],
    ["an extension without end", `${CHUNKED}2;${"a".repeat(2000)}`],
    ["extensions of more than 8 KiB in all", CHUNKED + `1;a=${"b".repeat(900)}\r\nx\r\n`.repeat(10)],
    ["a chunk longer than its size", `${CHUNKED}2\r\nokay\r\n`],
    ["a trailer with a bare LF", `${CHUNKED}0\r\nX-A: b\n\r\n`],
    ["a trailer that is folded", `${CHUNKED}0\r\nX-A: b\r\n c\r\n\r\n`],
    ["trailers of more than 16 KiB", `${CHUNKED}0\r\n${`X-A: ${"b".repeat(1000)}\r\n`.repeat(17)}`],
    ["a trailer without end", `${CHUNKED}0\r\nX-A: ${"b".repeat(17_000)}`],
    ["a head of more than 32 KiB", head(`X-A: ${"b".repeat(MAX_RESPONSE_HEAD_BYTES)}`)],
  ])("the refusals of the parser include %s", (_title, text) => {
    const { invalid, events } = read(text);
    expect(invalid).not.toBeNull();
    expect(events.filter((event) => event.startsWith("ended"))).toEqual([]);
    expect(read(text, { size: 13 }).invalid).not.toBeNull();
  });
});

it("hands over a body of stated length with the head if all of it has arrived with the head", () => {
  const wholes: (string | null)[] = [];
  for (const pieces of [
    [head("Content-Length: 2") + "ok"],
    [head("Content-Length: 2") + "o", "k"],
    [head("Content-Length: 2"), "ok"],
    [head("Content-Length: 0")],
    [`${CHUNKED}0\r\n\r\n`],
  ]) {
    const parser = new ResponseParser();
    parser.begin("GET", {
      informed: () => expect.unreachable(),
      switched: () => expect.unreachable(),
      answered: (_head, whole) => void wholes.push(whole && whole.toString()),
      body() {},
      ended() {},
    });
    for (const piece of pieces) parser.feed(Buffer.from(piece));
  }
  expect(wholes).toEqual(["ok", null, null, null, null]);
});

describe("the bytes behind a response", () => {
  it("the bytes behind a response end the connection behind a complete response, and the parser drops them", () => {
    for (const surplus of ["x", "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]) {
      const { events, invalid } = read(`HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok${surplus}`);
      expect(events.slice(1)).toEqual(["body ok", "ended spent "]);
      expect(invalid).toBeNull();
    }
  });

  it("the bytes behind a response belong to the other protocol behind a 101", () => {
    const { events } = read(
      "HTTP/1.1 101 X\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 no",
    );
    expect(events).toEqual(["switched 101 HTTP/1.1 no"]);
  });
});

it.each<[string, number]>([
  ["timeout=5", 4000],
  ["timeout=5, max=100", 4000],
  ["timeout=1", 0],
  ["timeout=0", 0],
  ["timeout=999999999", 2 ** 31 - 1],
  ["max=100", Infinity],
  ["5", Infinity],
])("Keep-Alive: %s keeps the connection for %d ms, a second less than it says", (value, ms) => {
  expect(read(`HTTP/1.1 204 X\r\nKeep-Alive: ${value}\r\n\r\n`).parser.keepsFor).toBe(ms);
});

it("copies and decodes a head that arrives in single bytes in proportion to its length", () => {
  const decoded = vi.spyOn(Buffer.prototype, "toString");
  const joined = vi.spyOn(Buffer, "concat");
  const copied = vi.spyOn(Buffer, "from");
  onTestFinished(() => void vi.restoreAllMocks());
  const length = 30_000;
  const { events } = read(`HTTP/1.1 200 OK\r\nX-Long: ${"a".repeat(length)}\r\nContent-Length: 0\r\n\r\n`, { size: 1 });
  expect(events.at(-1)).toBe("ended reusable ");
  const decodedBytes = decoded.mock.results.reduce((sum, { value }) => sum + String(value).length, 0);
  const copiedBytes = copied.mock.results.reduce((sum, { value }) => sum + (value as Buffer).length, 0);
  expect(joined).not.toHaveBeenCalled();
  // For each byte the start of the line of status, and the byte before it.
  expect(decodedBytes).toBeLessThan(12 * length);
  expect(copiedBytes).toBeLessThan(4 * length);
});

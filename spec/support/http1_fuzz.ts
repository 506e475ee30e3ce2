/**
 * Random requests, mutated and split at random, read by our own parser and by Node's (llhttp). Ours must refuse what
 * either refuses, and both must read the others alike.
 */
import http from "node:http";
import { createRequire } from "node:module";
import { checkedHead } from "../../lib/server/node_request.ts";
import { readFraming, type RequestHead } from "../../lib/server/request_head.ts";
import type { Limits } from "../../lib/server/limits.ts";
import { defaultLimits } from "./limits.ts";
import { random, type Random } from "./random.ts";
import { readPieces, refusalOf, asText, type Reading, type AcceptedRequest } from "./request_reading.ts";

export interface Tally {
  cases: number;
  requests: number;
  /** Cases that both parsers read alike to their end. */
  same: number;
  bothRefuse: number;
  /** Cases that only our parser refuses, by reason. */
  stricter: Map<string, number>;
  /** Cases in which our parser accepts what Node's refuses, or reads it differently. */
  defects: string[];
}

/** Runs `count` cases; the same seed gives the same ones. Ends at the first `mostDefects` defects. */
export function fuzz(count: number, seed: number, mostDefects = 5): Tally {
  const tally: Tally = { cases: 0, requests: 0, same: 0, bothRefuse: 0, stricter: new Map(), defects: [] };
  const dice = random(seed);
  while (tally.cases < count && tally.defects.length < mostDefects) {
    const caseSeed = dice.int(0, 2 ** 31 - 1);
    compare(tally, caseSeed, fuzzPieces(caseSeed));
    tally.cases++;
  }
  return tally;
}

function compare(tally: Tally, seed: number, pieces: readonly Buffer[]): void {
  const ours = readPieces(pieces, defaultLimits);
  const nodes = readByNode(pieces, defaultLimits);
  tally.requests += ours.requests.length;
  const defect =
    disagreement(ours, nodes) ?? (ours.end === "waits" && nodes.end.startsWith("refused") ? stillWaits(pieces) : null);
  if (defect !== null) {
    const text = pieces.map((piece) => JSON.stringify(piece.toString("latin1"))).join(" + ");
    tally.defects.push(`case ${seed}: ${defect}\n  sent:  ${text}\n  ours:  ${shown(ours)}\n  node's: ${shown(nodes)}`);
  } else if (!ours.end.startsWith("refused")) tally.same++;
  else if (nodes.end.startsWith("refused") && nodes.requests.length === ours.requests.length) tally.bothRefuse++;
  else tally.stricter.set(ours.why, (tally.stricter.get(ours.why) ?? 0) + 1);
}

/** Describes how our reading differs from Node's where it may not, or null. */
function disagreement(ours: Reading, nodes: Reading): string | null {
  for (const [i, request] of ours.requests.entries()) {
    const other = nodes.requests[i];
    if (other === undefined) return `ours accepts request ${i}, node's does not`;
    if (asText(request) !== asText(other)) return `request ${i} is read in two ways`;
  }
  if (ours.end.startsWith("refused")) return null;
  if (nodes.end.startsWith("refused"))
    return ours.end === "waits" ? null : `node's refuses what ours accepts (${nodes.why})`;
  if (nodes.requests.length > ours.requests.length) return "node's sees a request where ours sees none";
  if (ours.begun !== nodes.begun) return "the body that has begun is read in two ways";
  const isOpen = (end: Reading["end"]) => end === "idle" || end === "waits";
  return ours.end === nodes.end || (isOpen(ours.end) && isOpen(nodes.end))
    ? null
    : "the connection goes on in two ways";
}

/** Our parser may find an error later than Node's; it must then refuse whatever follows. */
function stillWaits(pieces: readonly Buffer[]): string | null {
  const before = readPieces(pieces, defaultLimits);
  for (const tail of TAILS) {
    const { end, requests } = readPieces([...pieces, tail], defaultLimits);
    if (requests.length > before.requests.length || !end.startsWith("refused"))
      return "node's refuses what ours goes on reading";
  }
  return null;
}

const TAILS = ["\r\n\r\n", "\n\r\n", "0\r\n\r\n", `${"x".repeat(40_000)}\r\n\r\n`].map((text) =>
  Buffer.from(text, "latin1"),
);

function shown({ requests, end, why, begun }: Reading): string {
  return [...requests.map(asText), begun === "" ? "" : `begun ${begun}`, end, why]
    .filter((text) => text !== "")
    .map((text) => JSON.stringify(text))
    .join(", ");
}

// node's own parser.

interface Llhttp {
  initialize(type: number, resource: object, maxHeaderSize: number, lenientFlags: number): void;
  execute(bytes: Buffer): number | Error;
  [callback: number]: unknown;
}

interface HttpCommon {
  readonly HTTPParser: (new () => Llhttp) &
    Readonly<
      Record<
        "REQUEST" | "kLenientNone" | "kOnHeaders" | "kOnHeadersComplete" | "kOnBody" | "kOnMessageComplete",
        number
      >
    >;
}

// The module with the parser of `node:http`; `process.binding` no longer has it from Node 24 on.
const { HTTPParser } = createRequire(import.meta.url)("_http_common") as HttpCommon;
/** One parser for all connections: Node's parsers have to be freed explicitly. */
const parser = new HTTPParser();
/** llhttp's numbers of methods, which Node does not export. */
const METHOD_NAMES = new Map(http.METHODS.map((name) => [methodNumber(name), name]));

function methodNumber(name: string): number {
  let found = -1;
  parser.initialize(HTTPParser.REQUEST, {}, 1024, HTTPParser.kLenientNone);
  parser[HTTPParser.kOnHeadersComplete] = (_major: number, _minor: number, _headers: unknown, method: number) => {
    found = method;
    return 0;
  };
  parser.execute(Buffer.from(`${name} ${name === "CONNECT" ? "h:1" : "/"} HTTP/1.1\r\nHost: h\r\n\r\n`));
  return found;
}

/** Reads a connection by llhttp and by the checks of `lib/server/http1_node.ts`. */
export function readByNode(pieces: Iterable<Buffer>, limits: Limits): Reading {
  const requests: AcceptedRequest[] = [];
  let end = null as Reading["end"] | null;
  let why = "";
  let head = null as RequestHead | null;
  let fields: string[] = [];
  let url = "";
  let body = "";
  let trailers: string[] = [];
  let isInMessage = false;
  /**
   * Whether llhttp has stopped at an upgrade that is not to a WebSocket, which `http1_node.ts` puts back without it.
   */
  let putsBack = false;
  let isPutBack = false;
  const begin = () => {
    parser.initialize(HTTPParser.REQUEST, {}, limits.maxHeaderBytes, HTTPParser.kLenientNone);
    parser[HTTPParser.kOnHeaders] = (some: string[], more: string) => {
      fields.push(...some);
      url += more;
    };
    parser[HTTPParser.kOnHeadersComplete] = onHead;
    parser[HTTPParser.kOnBody] = (bytes: Buffer) => void (body += bytes.toString("latin1"));
    parser[HTTPParser.kOnMessageComplete] = onEnd;
  };
  const onHead = (
    major: number,
    minor: number,
    given: string[] | undefined,
    method: number,
    target: string | undefined,
    _status: unknown,
    _phrase: unknown,
    upgrade: boolean,
  ) => {
    const headers = given ?? fields;
    url = target ?? url;
    if (end !== null) return 0;
    isInMessage = true;
    fields = [];
    if (isPutBack) {
      isPutBack = false;
      return 0;
    }
    const name = METHOD_NAMES.get(method)!;
    const httpVersion = `${major}.${minor}`;
    head = checkedHead({ method: name, target: url, httpVersion, headers }, { limits });
    url = "";
    body = "";
    trailers = [];
    const refusal = refusalOf(head, limits);
    if (refusal === null) {
      putsBack = upgrade && head.framing.upgrade === null;
      return upgrade ? 2 : 0;
    }
    end = `refused ${refusal.code}`;
    why = refusal.detail;
    return 0;
  };
  const onEnd = () => {
    if (end !== null || putsBack) return;
    trailers = fields;
    fields = [];
    url = "";
    requests.push({ ...head!, body, trailers });
    if (head!.framing.upgrade !== null) end = "upgraded ";
    else if (!head!.framing.isPersistent) end = "last";
    isInMessage = false;
    head = null;
  };
  begin();
  for (let piece of pieces) {
    if (end !== null) {
      if (end.startsWith("upgraded")) end = `${end}${piece.toString("latin1")}` as Reading["end"];
      continue;
    }
    for (;;) {
      const used = parser.execute(piece);
      if (typeof used !== "number") {
        if (end === null || end === "upgraded ")
          [end, why] = ["refused bad_request", (used as Error & { reason?: string }).reason ?? used.message];
      } else if (end === "upgraded ") end = `upgraded ${piece.subarray(used).toString("latin1")}`;
      else if (putsBack) {
        putsBack = false;
        isPutBack = true;
        begin();
        piece = Buffer.concat([textWithoutUpgrade(head!), piece.subarray(used)]);
        continue;
      }
      break;
    }
  }
  const begun = head === null || end !== null ? "" : asText({ ...head, body, trailers: [] });
  return { requests, end: end ?? (isInMessage ? "waits" : "idle"), why, begun };
}

function textWithoutUpgrade({ method, target, httpVersion, headers }: RequestHead): Buffer {
  const lines = [`${method} ${target} HTTP/${httpVersion}`];
  for (let i = 0; i < headers.length; i += 2)
    if (!/^(?:upgrade|connection)$/i.test(headers[i]!)) lines.push(`${headers[i]}: ${headers[i + 1]}`);
  // llhttp reads the other Connection options too.
  if (!readFraming(method, headers, httpVersion).isPersistent) lines.push("Connection: close");
  else if (httpVersion === "1.0") lines.push("Connection: keep-alive");
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}

// Random requests.

/** The bytes of one case, in the pieces in which they arrive. */
export function fuzzPieces(seed: number): Buffer[] {
  const dice = random(seed);
  let text = dice.chance(0.03) ? "\r\n" : "";
  for (let i = dice.pick([1, 1, 1, 2, 2, 3]); i > 0; i--) text += request(dice);
  for (let i = dice.pick([0, 0, 0, 1, 1, 1, 2]); i > 0; i--) text = mutated(dice, text);
  return split(dice, Buffer.from(text, "latin1"));
}

const METHODS = [
  "GET",
  "GET",
  "GET",
  "POST",
  "POST",
  "PUT",
  "HEAD",
  "OPTIONS",
  "DELETE",
  "PATCH",
  "M-SEARCH",
  "PURGE",
  "CONNECT",
  "QUERY",
  "PRI",
  "SOURCE",
  "get",
  "FOO",
];
const TARGETS = [
  "/",
  "/",
  "/",
  "/a/b?c=d",
  "/%20",
  "/~a|b",
  "http://h/a",
  "https://h:80/?a",
  "HTTP://u@h",
  "*",
  "h:80",
  "/a#b",
  "//h/a",
  "http:/a",
  "ws://[::1]/",
  "/\xe9",
  "?a",
  "",
];

function request(dice: Random): string {
  const isUsual = dice.chance(0.85);
  const method = isUsual ? dice.pick(["GET", "POST"]) : dice.pick(METHODS);
  const target = isUsual ? "/a" : dice.pick(TARGETS);
  const version = dice.chance(0.9)
    ? "HTTP/1.1"
    : dice.pick(["HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/1.", "http/1.1"]);
  const start = `${method} ${target} ${version}\r\n${dice.chance(0.95) ? "Host: h\r\n" : ""}${fields(dice)}`;
  const size = dice.int(0, 12);
  switch (dice.int(0, 3)) {
    case 0:
      return `${start}\r\n`;
    case 1:
      return (
        `${start}Content-Length: ` +
        `${size}\r\n${fields(dice)}\r\n${dice.pick(BODIES).slice(0, size).padEnd(size, "x")}`
      );
    case 2: {
      const chunks = dice.list(0, 3, () => chunk(dice)).join("");
      return (
        `${start}Transfer-Encoding: ` +
        (`${dice.chance(0.9) ? "chunked" : dice.pick(["Chunked", "gzip, chunked", "chunked,"])}\r\n\r\n${chunks}` +
          `${dice.pick(["0", "0", "00"])}${extension(dice)}\r\n${dice.chance(0.3) ? fields(dice) : ""}\r\n`)
      );
    }
    default:
      return dice.chance(0.7)
        ? `${start}\r\n`
        : `${start}Connection: ${dice.pick(UPGRADES)}\r\nUpgrade: ${dice.pick(["websocket", "h2c", "WebSocket, x"])}` +
            `\r\n\r\n${dice.chance(0.3) ? "\x81\x05hello" : ""}`;
  }
}

const UPGRADES = [
  ...["Upgrade", "Upgrade", "upgrade, close", "keep-alive, Upgrade", "upgrade;a", "Upgrade\xa0"],
  ...["x,upgrade\t,", "upgrade\t", "\tupgrade"],
];
const BODIES = ["hello, world", "GET / HTTP/1.1", "\r\n\r\n0\r\n\r\n", "0\r\n\r\n", "\0\xff\n\r"];

function chunk(dice: Random): string {
  const data = dice.pick(BODIES).slice(0, dice.int(1, 12));
  const size = data.length.toString(16);
  return (
    `${dice.pick(["", "", "0", "000"])}${dice.chance(0.2) ? size.toUpperCase() : size}` +
    `${extension(dice)}\r\n${data}\r\n`
  );
}

const EXTENSIONS = [
  ";a",
  ";a=b",
  ';a="b;c"',
  ";a=b;c=d",
  "; a=b",
  ";",
  ';a="b\\"c"',
  " ",
  ";a =b",
  ';a="',
  ";\xe9",
  ';a=""',
  ";a=",
  ";=b",
  ";a;;b",
  ";a\t",
];

function extension(dice: Random): string {
  return dice.chance(0.8) ? "" : dice.pick(EXTENSIONS);
}

const HARMLESS = [
  "X-A: b",
  "x-a:b",
  "X-Empty:",
  "X-Pad:  \t padded \t ",
  "X-Latin: caf\xe9",
  "Cookie: a=b; c",
  "Accept: */*",
  "Connection: keep-alive",
  "Trailer: X-Sum",
  "Via: 1.0 other",
];
const DOUBTFUL = [
  ...[
    "Connection: close",
    "Connection: X-A, close",
    "Connection: close;a",
    'Connection: "close"',
    "Connection: keep-alive, close",
    "Connection: upgrade",
    "Connection:",
    "connection: cLose ,x",
    "Connection: close\t,",
    "Connection: upgrade;a",
    "Connection: keep-alive;a",
    "Connection: \xa0close",
    "Connection: upgrade\xa0",
  ],
  ...[
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Expect: x",
    "Host: h",
    "Host:",
    "Host: a b",
    "Proxy-Connection: close",
    "Proxy-Connection: keep-alive",
    "Keep-Alive: timeout=5",
  ],
  ...[
    "Content-Length: 5",
    "Content-Length: 05",
    "Content-Length: 5, 5",
    "Content-Length:",
    "Content-Length: 0",
    "Content-Length: 5 ",
    "Content-Length: +5",
    "Content-Length : 5",
    "Content-Length: 99999999999999999999",
    "Content_Length: 5",
  ],
  ...[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding:",
    "Transfer-Encoding: chunked;a",
    "transfer-encoding: \tCHUNKED\t",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding\t: chunked",
  ],
  ...[
    "X Y: z",
    "X-Y : z",
    ": z",
    "X-Nul: \0",
    "X-Cr: a\rb",
    "X-Lf: a\nb",
    " folded",
    "\tfolded",
    "X-Del: \x7f",
    "X(: b",
    "X",
    "",
    "X-A: b\r",
    "X-A\r: b",
    'X"A: b',
    "X-\xe9: b",
  ],
];

function fields(dice: Random): string {
  let text = "";
  for (let i = dice.pick([0, 0, 1, 1, 2, 3]); i > 0; i--)
    text += `${dice.chance(0.93) ? dice.pick(HARMLESS) : dice.pick(DOUBTFUL)}\r\n`;
  // More header lines than llhttp reports at a time.
  return dice.chance(0.01) ? text + "X-Many: x\r\n".repeat(40) : text;
}

const BYTES = [
  "\r",
  "\n",
  "\r\n",
  "\0",
  " ",
  "\t",
  ":",
  ";",
  ",",
  "0",
  "a",
  "G",
  "\x7f",
  "\xff",
  "\r\n\r\n",
  "-",
  "+",
  "\x0b",
  "/",
  '"',
  "=",
];
const BREAKS = ["\n", "\r", "\r\r\n", "\n\r", " \r\n", "\r\n ", "\r\n\t", "", "\r\n\r\n", "\r\n\n"];

function mutated(dice: Random, text: string): string {
  const at = dice.int(0, text.length);
  const length = dice.int(1, 4);
  switch (dice.int(0, 6)) {
    case 0:
      return text.slice(0, at) + text.slice(at + length);
    case 1:
      return text.slice(0, at) + text.slice(at, at + 12 * length) + text.slice(at);
    case 2:
      return text.slice(0, at) + dice.pick(BYTES) + text.slice(at);
    case 3:
      return text.slice(0, at) + String.fromCharCode(dice.int(0, 255)) + text.slice(at + 1);
    case 4:
      return dice.chance(0.5) ? text.slice(0, at) : `${text.slice(0, at)}${dice.pick(DOUBTFUL)}\r\n${text.slice(at)}`;
    default: {
      // At the end of a line, where single bytes matter most.
      const index = text.indexOf("\r\n", at);
      return index < 0
        ? text
        : text.slice(0, index) +
            (dice.chance(0.7) ? dice.pick(BREAKS) : `\r\n${dice.pick(DOUBTFUL)}\r\n`) +
            text.slice(index + 2);
    }
  }
}

function split(dice: Random, bytes: Buffer): Buffer[] {
  const most = dice.pick([1, 5, 40, 400, Infinity, Infinity]);
  if (most === Infinity) return [bytes];
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = Math.min(bytes.length, at + dice.int(1, most));
    pieces.push(bytes.subarray(at, end));
    at = end;
  }
  return pieces;
}

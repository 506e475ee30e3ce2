/** Reads the requests of one connection with `RequestParser`, from bytes in any pieces. */
import { Pieces } from "../../lib/base/event_loop.ts";
import { noCertificate } from "../../lib/http/exchange.ts";
import type { Limits } from "../../lib/server/limits.ts";
import { receiveHead } from "../../lib/server/inbound.ts";
import { RequestParser, type RequestHead } from "../../lib/server/request_head.ts";
import { manualClock } from "./clock.ts";

/** A request that was accepted, with its body and trailers as far as they have been read. */
export interface AcceptedRequest {
  readonly method: string;
  readonly target: string;
  readonly httpVersion: string;
  readonly headers: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

export interface Reading {
  readonly requests: readonly AcceptedRequest[];
  /**
   * How the connection is left: between two requests, in the middle of one, after its last request, behind an upgrade
   * with these bytes, or with a refusal of this code.
   */
  readonly end: "idle" | "waits" | "last" | `upgraded ${string}` | `refused ${string}`;
  /** Why the last request was refused. */
  readonly why: string;
  /** As `asText`: the request of which the body has not ended, as far as it has been read; "" where there is none. */
  readonly begun: string;
}

/** The reason why a head is refused by the checks of both codecs, or null. */
export function refusalOf(
  head: RequestHead,
  limits: Limits,
): { readonly code: string; readonly detail: string } | null {
  return receiveHead(
    head,
    connection,
    null,
    () => [],
    { clock, proxies: null, limits },
    () => {},
  ).refusal;
}

const connection = { remoteAddress: "192.0.2.1", encrypted: false, certificate: noCertificate, tlsVersion: null };
const clock = manualClock();

/** Reads a connection as `client_connection.ts` does: unused bytes are passed again with the next piece. */
export function readPieces(pieces: Iterable<Buffer>, limits: Limits): Reading {
  const requests: AcceptedRequest[] = [];
  let end = null as Reading["end"] | null;
  let why = "";
  let head = null as RequestHead | null;
  let body = "";
  const complete = (trailers: readonly string[]) => {
    if (head === null) return;
    const { method, target, httpVersion, headers } = head;
    requests.push({ method, target, httpVersion, headers, body, trailers });
    if (!head.framing.isPersistent) end ??= "last";
    head = null;
  };
  const begin = (given: RequestHead, whole: Buffer | null) => {
    head = given;
    body = whole === null ? "" : whole.toString("latin1");
    const refusal = refusalOf(given, limits);
    if (refusal !== null) {
      end = `refused ${refusal.code}`;
      why = refusal.detail;
      head = null;
      return;
    }
    if (given.framing.upgrade !== null) end = "upgraded ";
    if (parser.isOver) complete([]);
  };
  const parser: RequestParser = new RequestParser({
    body: (bytes) => void (body += bytes.toString("latin1")),
    ended: () => complete(parser.trailers),
  });
  const unused = new Pieces();
  let rest: Buffer = NOTHING;
  let isFirst = true;
  for (const given of pieces) {
    // The parser may move bytes of a body within what it reads.
    const piece = Buffer.from(given);
    if (end !== null) {
      if (end.startsWith("upgraded")) end = `${end}${piece.toString("latin1")}` as Reading["end"];
      continue;
    }
    rest = rest.length === 0 ? piece : unused.joined(rest, piece);
    while (rest.length > 0 && end === null) {
      if (parser.isOver) isFirst = false;
      const used = parser.read(rest, limits);
      if (used < 0) {
        end = `refused ${parser.fault!.code}`;
        why = parser.fault!.detail;
        break;
      }
      rest = rest.subarray(used);
      const { head: read, whole } = parser;
      if (read !== null) begin(read, whole);
      parser.head = parser.whole = null;
      if (read === null && !parser.isOver) break;
    }
    if (rest.length === 0) unused.forget();
    if ((end as Reading["end"] | null) === "upgraded ") end = `upgraded ${rest.toString("latin1")}`;
  }
  const isIdle = parser.isOver || (isFirst && rest.length === 0 && head === null && requests.length === 0);
  const begun = head === null || end !== null ? "" : asText({ ...head, body, trailers: [] });
  return { requests, end: end ?? (isIdle ? "idle" : "waits"), why, begun };
}

/** `GET /a 1.1 Host|h` and what follows: ` {body}` unless there is none, ` <trailers>` unless there are none. */
export function asText({ method, target, httpVersion, headers, body, trailers }: AcceptedRequest): string {
  return (
    `${method} ${target} ${httpVersion} ` +
    `${headers.join("|")}${body === "" ? "" : ` {${body}}`}${trailers.length === 0 ? "" : ` <${trailers.join("|")}>`}`
  );
}

const NOTHING = Buffer.alloc(0);

/**
 * Serves byte ranges of a stored body (RFC 9110 §14): 206 with one range or several, or 416.
 */
import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { httpDate } from "../../http/date.ts";
import { headerValue, nameSet, withHeader, withoutHeaders, type HeaderList } from "../../http/headers.ts";
import type { Reply } from "../../http/reply.ts";
import type { Entry } from "./store.ts";

type Stored = Pick<Entry, "status" | "headers" | "body">;

/** From the first byte up to, but without, the byte at `end`. */
interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A request with more ranges gets the whole body. */
const MAX_RANGES = 16;
const RANGE = /^(\d*)-(\d*)$/;

/** The ranges of a stored reply that a request gets, none if none is within its body. Null: it gets the whole reply. */
export function rangesFor(
  stored: Stored,
  range: string | null,
  headers: HeaderList,
  wall: number,
): readonly ByteRange[] | null {
  const { status, body } = stored;
  if (range === null || status !== 200 || body === null) return null;
  return appliesTo(stored.headers, headerValue(headers, "if-range"), wall) ? rangesOf(range, body.length) : null;
}

/**
 * The parts of a body of this length that a Range header asks for, as far as there are any: `bytes=0-4, -5`. Null: the
 * header is ignored (§14.2), because it is invalid, or its ranges are many or longer than the body together, which
 * would multiply what one request costs.
 */
function rangesOf(range: string, length: number): readonly ByteRange[] | null {
  const members = range
    .slice("bytes=".length)
    .split(",")
    .map((member) => member.trim())
    .filter((member) => member !== "");
  if (members.length === 0 || members.length > MAX_RANGES || length === 0) return null;
  const found: ByteRange[] = [];
  let bytes = 0;
  for (const member of members) {
    const [, first = "", last = ""] = RANGE.exec(member) ?? [];
    if (first === "" ? last === "" : last !== "" && Number(last) < Number(first)) return null;
    // bytes=-5: the last 5 bytes
    const start = first === "" ? Math.max(0, length - Number(last)) : Number(first);
    const end = first === "" || last === "" ? length : Math.min(length, Number(last) + 1);
    if (start >= end) continue;
    found.push({ start, end });
    bytes += end - start;
  }
  return bytes > length ? null : found;
}

/**
 * Whether a Range applies to a stored reply (§13.1.5): without If-Range, or if that names the strong entity tag of the
 * reply, or its Last-Modified, where that is so old that no second change has the same date (§8.8.2.2).
 */
function appliesTo(stored: HeaderList, ifRange: string | undefined, wall: number): boolean {
  if (ifRange === undefined) return true;
  if (ifRange.endsWith('"')) return ifRange.startsWith('"') && ifRange === headerValue(stored, "etag");
  const written = httpDate(headerValue(stored, "date") ?? "", wall);
  return ifRange === headerValue(stored, "last-modified") && httpDate(ifRange, wall) + STRONG_AFTER_MS <= written;
}

/** Also covers clocks that differ: a reply without Date is stored with the gateway's own. */
const STRONG_AFTER_MS = 60_000;

/** A 206 (§15.3.7): its body is one range, or several as multipart/byteranges (§14.6). */
export function partial(
  stored: HeaderList,
  body: Buffer,
  ranges: readonly ByteRange[],
): Pick<Reply, "status" | "headers" | "body"> {
  const headers = withoutHeaders(stored, OF_THE_WHOLE);
  const [only, ...others] = ranges;
  if (only !== undefined && others.length === 0) {
    const part = body.subarray(only.start, only.end);
    return {
      status: 206,
      headers: [...headers, "Content-Range", contentRange(only, body), "Content-Length", String(part.length)],
      body: part,
    };
  }
  // Random: a boundary must not occur in a part.
  const boundary = randomBytes(16).toString("hex");
  const type = headerValue(stored, "content-type");
  const typeLine = type === undefined ? "" : `Content-Type: ${type}\r\n`;
  const pieces = ranges.flatMap((range) => [
    Buffer.from(`\r\n--${boundary}\r\n${typeLine}Content-Range: ${contentRange(range, body)}\r\n\r\n`, "latin1"),
    body.subarray(range.start, range.end),
  ]);
  pieces.push(Buffer.from(`\r\n--${boundary}--\r\n`));
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const typed = withHeader(headers, "Content-Type", `multipart/byteranges; boundary=${boundary}`);
  // The pieces are views of the stored body, not a copy.
  return {
    status: 206,
    headers: [...typed, "Content-Length", String(length)],
    body: Readable.from(pieces, { objectMode: false }),
  };
}

/** Headers about the bytes of the complete message (RFC 9530 §2, RFC 1864). */
const OF_THE_WHOLE = nameSet(["content-length", "content-range", "content-digest", "content-md5"]);

function contentRange({ start, end }: ByteRange, body: Buffer): string {
  return `bytes ${start}-${end - 1}/${body.length}`;
}

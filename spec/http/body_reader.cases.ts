/** Bodies as bytes, and how the reader that requests and responses share has to read them. */
import { BodyReader } from "../../lib/http/body_reader.ts";

type Framing = number | "chunked" | "until close";

export interface BodyCase {
  readonly title: string;
  readonly framing: Framing;
  readonly bytes: string;
  /** The body, ` <trailers>`, and ` +N` for bytes behind it; ends with `…` where it has not ended. */
  readonly read: string;
  readonly fault: string | null;
}

/**
 * Reads pieces as the parsers do: what was not used comes again with the next one. Each stands behind `before`, which
 * is not read.
 */
export function readBody(
  framing: Framing,
  pieces: Iterable<Buffer>,
  before: Buffer = Buffer.alloc(0),
): { read: string; fault: string | null } {
  const reader = new BodyReader();
  let body = "";
  let behind = 0;
  let rest: Buffer = Buffer.alloc(0);
  reader.begin(framing);
  for (const piece of pieces) {
    rest = Buffer.concat([rest, piece]);
    if (reader.isOver) {
      behind = rest.length;
      continue;
    }
    const used = reader.read(Buffer.concat([before, rest]), before.length, {
      body: (bytes) => void (body += bytes.toString("latin1")),
    });
    if (used < 0) return { read: body, fault: reader.fault };
    rest = rest.subarray(used - before.length);
    if (reader.isOver) behind = rest.length;
  }
  // The connection ends.
  if (reader.isUntilClose) reader.end();
  const trailers = reader.trailers.length === 0 ? "" : ` <${reader.trailers.join("|")}>`;
  return { read: `${body}${trailers}${behind === 0 ? "" : ` +${behind}`}${reader.isOver ? "" : "…"}`, fault: null };
}

const LONG = "the trailers of the message have more than 16384 bytes";
const SIZE_LINE = "the line of a chunk's size is malformed";
const TRAILER = "a trailer is malformed";

const accepted = (title: string, framing: Framing, bytes: string, read: string): BodyCase => ({
  title,
  framing,
  bytes,
  read,
  fault: null,
});
const refused = (title: string, bytes: string, read: string, fault: string): BodyCase => ({
  title,
  framing: "chunked",
  bytes,
  read,
  fault,
});

export const BODY_CASES: readonly BodyCase[] = [
  accepted("a body of known length with something behind it", 4, "goodmore", "good +4"),
  accepted("a body of known length that has not ended", 4, "goo", "goo…"),
  accepted("a body until the connection ends", "until close", "all of it", "all of it"),
  accepted("no chunks", "chunked", "0\r\n\r\n", ""),
  accepted("chunks with something behind them", "chunked", "2\r\nab\r\n1\r\nc\r\n0\r\n\r\nrest", "abc +4"),
  accepted(
    "chunks of few and of many bytes",
    "chunked",
    `3\r\nabc\r\n2\r\nde\r\n14\r\n${"f".repeat(20)}\r\n0\r\n\r\n`,
    `abcde${"f".repeat(20)}`,
  ),
  accepted("a chunk of which the end is missing", "chunked", "2\r\nab", "ab…"),
  accepted("a last chunk of which the end is missing", "chunked", "0\r\n\r", "…"),
  accepted(
    "extensions, and an upper-case size",
    "chunked",
    'A;a;b="\\"\xe9\t"\r\n0123456789\r\n0;c=d\r\n\r\n',
    "0123456789",
  ),
  accepted("trailers", "chunked", "0\r\nA:b\r\na: \t c \r\nB:\r\n\r\n", " <A|b|a|c|B|>"),
  accepted("a trailer Connection that ends nothing", "chunked", "0\r\nConnection: x\r\n\r\n", " <Connection|x>"),
  accepted(
    "trailers of 16 KiB",
    "chunked",
    `0\r\n${`A: ${"b".repeat(1019)}\r\n`.repeat(16)}\r\n`,
    ` <${Array.from({ length: 16 }, () => `A|${"b".repeat(1019)}`).join("|")}>`,
  ),
  refused("no size", "\r\n", "", "the size of a chunk is not a hexadecimal number"),
  refused("a size of fourteen digits", "00000000000001\r\n", "", "the size of a chunk is too large"),
  refused("a size without end", "1".repeat(20), "", "the size of a chunk is too large"),
  refused("a space behind a size", "1 \r\na", "", SIZE_LINE),
  refused("CR alone behind a size", "1\ra", "", SIZE_LINE),
  refused("LF alone behind a size", "1\na", "", SIZE_LINE),
  refused("an empty extension", "1;\r\na", "", SIZE_LINE),
  refused("CR alone in an extension", "1;a\rb\r\n", "", SIZE_LINE),
  refused("an extension that ends with LF alone", "1;a\n", "", SIZE_LINE),
  refused("an extension without end", `1;${"a".repeat(1030)}`, "", SIZE_LINE),
  refused("a line with an extension of more than 1024 bytes", `1;${"a".repeat(1030)}\r\n`, "", SIZE_LINE),
  refused(
    "extensions of more than 8 KiB",
    `1;${"a".repeat(1000)}\r\nx\r\n`.repeat(9),
    "x".repeat(8),
    "the extensions of the chunks are too large",
  ),
  refused("a chunk that is longer than its size", "1\r\nab\r\n", "a", "a chunk is longer than its size"),
  refused("CR alone behind a chunk", "1\r\na\rb", "a", "a chunk is longer than its size"),
  refused("a folded trailer", "0\r\nA: b\r\n c\r\n\r\n", "", TRAILER),
  refused("CR alone behind the last chunk", "0\r\n\rA", "", TRAILER),
  refused("LF alone behind the last chunk", "0\r\n\n", "", TRAILER),
  refused("a trailer that ends with LF alone", "0\r\nA: b\n", "", TRAILER),
  refused("NUL in a trailer", "0\r\nA: \0\r\n", "", TRAILER),
  ...["Content-Length", "TRANSFER-ENCODING", "Connection", "Proxy-Connection"].map((name) =>
    refused(
      `the trailer ${name}`,
      `0\r\n${name}: 4, close\r\n`,
      "",
      "a trailer is about the framing of its message or ends its connection",
    ),
  ),
  refused("trailers of more than 16 KiB", `0\r\n${`A: ${"b".repeat(1019)}\r\n`.repeat(16)}A:\r\n`, "", LONG),
  refused("a trailer of more than 16 KiB that has not ended", `0\r\nA: ${"b".repeat(16_400)}`, "", LONG),
];

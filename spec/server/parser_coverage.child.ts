/** Runs the tables of cases in a process of its own, whose coverage is recorded: see `parser_coverage.spec.ts`. */
import { headTooLarge, isDropped, readFraming } from "../../lib/server/request_head.ts";
import { requestLineOf, withoutDropped } from "../../lib/server/request_head.ts";
import { isHost } from "../../lib/http/headers.ts";
import { isForbiddenTrailer } from "../../lib/http/body_reader.ts";
import { lastChunk } from "../../lib/server/client_reply.ts";
import { BODY_CASES, readBody } from "../http/body_reader.cases.ts";
import { defaultLimits } from "../support/limits.ts";
import { readPieces } from "../support/request_reading.ts";
import { CERTIFICATE_NAMES, HOSTS } from "./framing.cases.ts";
import { REPLY_CASES, textOf, TRAILER_CASES } from "./client_reply.cases.ts";
import { CASES } from "./request_parser.cases.ts";

const singly = (bytes: Buffer) => Array.from(bytes, (byte) => Buffer.of(byte));

for (const { bytes, limits } of CASES) {
  const all = Buffer.from(bytes, "latin1");
  for (const pieces of [[all], singly(all)]) readPieces(pieces, { ...defaultLimits, ...limits });
}
for (const { framing, bytes } of BODY_CASES) {
  const all = Buffer.from(bytes, "latin1");
  for (const pieces of [[all], singly(all)])
    for (const before of ["", "before"]) readBody(framing, pieces, Buffer.from(before));
}
for (const each of REPLY_CASES) {
  try {
    textOf(each);
  } catch {
    // That it cannot be written is what the case is about.
  }
}
for (const [, trailers] of TRAILER_CASES) lastChunk(trailers);
for (const [host] of HOSTS) isHost(host);
for (const [name] of CERTIFICATE_NAMES)
  for (const underscores of ["drop", "allow"] as const) withoutDropped(["A", "b", name, "c"], underscores);
for (const name of ["X_Request_Id", "T_E", "X_A"]) isDropped(name, "allow");
for (const line of ["GET / HTTP/1.1\r\n", "\r\nGET / HTTP/1.1\r\n", "GET /"]) requestLineOf(Buffer.from(line));
headTooLarge(1);
isForbiddenTrailer("Connection", "close");
readFraming("GET", ["Date", "", "User-Agent", "", "Proxy", ""], "2.0");

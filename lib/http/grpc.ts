/**
 * Turns the gateway's own errors into the form that gRPC clients understand: HTTP status 200 and the error in trailers
 * alone.
 */
import type { Call } from "./exchange.ts";
import { headerValue, nameSet, withoutHeaders, type HeaderList } from "./headers.ts";
import { discard, type Reply } from "./reply.ts";

/** The reply itself, unless it is an error of the gateway or of one of its plugins to a gRPC request. */
export function grpcReply(call: Call, requestHeaders: HeaderList, reply: Reply): Reply {
  if (call.notes.code === null || reply.status < 400 || !isGrpc(headerValue(requestHeaders, "content-type")))
    return reply;
  if (headerValue(reply.headers, "content-type") !== "application/problem+json") return reply;
  discard(reply);
  const headers = [
    "content-type",
    "application/grpc",
    "grpc-status",
    String(GRPC_STATUSES.get(reply.status) ?? UNKNOWN),
  ];
  const message = grpcMessage(reply);
  if (message !== "") headers.push("grpc-message", message);
  headers.push(...withoutHeaders(reply.headers, DESCRIBES_BODY));
  // Header block and end of stream in one frame: "Trailers-Only" of the gRPC protocol.
  return { status: 200, headers, body: null };
}

const DESCRIBES_BODY = nameSet(["content-type", "content-length", "content-encoding", "content-language"]);

/**
 * `application/grpc`, `application/grpc+proto`, `application/grpc;…`; not `application/grpc-web`, which is plain HTTP.
 */
export function isGrpc(contentType: string | undefined): boolean {
  return contentType !== undefined && /^application\/grpc(?:[+; \t]|$)/i.test(contentType);
}

/** By the table "HTTP to gRPC Status Code Mapping" of the gRPC documentation. */
const GRPC_STATUSES = new Map([
  [400, 13], // INTERNAL
  [401, 16], // UNAUTHENTICATED
  [403, 7], // PERMISSION_DENIED
  ...[404, 405].map((status) => [status, 12] as const), // UNIMPLEMENTED
  ...[429, 502, 503, 504].map((status) => [status, 14] as const), // UNAVAILABLE
]);
const UNKNOWN = 2;

/** "Title. Detail" of the problem document, percent-encoded where it is not plain ASCII. */
function grpcMessage({ body }: Reply): string {
  if (!Buffer.isBuffer(body)) return "";
  const { title, detail } = JSON.parse(body.toString()) as { title?: string; detail?: string };
  // Without a detail of its own the document has the title twice.
  const text = detail === undefined || [title, `${title}.`].includes(detail) ? (title ?? "") : `${title}: ${detail}`;
  let encoded = "";
  for (const byte of Buffer.from(text)) {
    const plain = byte >= 0x20 && byte <= 0x7e && byte !== PERCENT;
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return encoded;
}

const PERCENT = 0x25;

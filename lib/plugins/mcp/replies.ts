/**
 * Replies of an MCP server as the caller may have them: lists without what it may not use, and its own ids of sessions.
 */
import { pipeline, Readable } from "node:stream";
import { Fault, ignore } from "../../base/errors.ts";
import {
  headerValue,
  headerValues,
  isEventStream,
  nameSet,
  sameName,
  withHeader,
  withoutHeaders,
} from "../../http/headers.ts";
import type { HeaderList } from "../../http/headers.ts";
import { discard, type Reply } from "../../http/reply.ts";
import { continued, readReply, wholeReply } from "../../http/whole_body.ts";
import { EventFilter, MAX_REPLY_BYTES, unreadable } from "./event_filter.ts";
import { filteredText, mayHaveList, type ListFilter } from "./lists.ts";
import { membersOf, stringOf } from "./members.ts";
import { TOP } from "./message.ts";
import { UNASKED, type McpRefusal } from "./refusal.ts";
import { isRevision } from "./revisions.ts";
import type { SessionKeys } from "./session_keys.ts";
import { sessionText, type McpSession } from "./sessions.ts";
import { withJson } from "./strict_json.ts";

const SESSION_HEADER = "mcp-session-id";

/** They describe the bytes of the server's reply. */
const OF_BYTES = nameSet([
  "content-length",
  "etag",
  "last-modified",
  "accept-ranges",
  "content-digest",
  "repr-digest",
  "digest",
  "content-md5",
]);

/**
 * A reply that may have a list, without what the filter hides. Throws, or rejects with, a `Fault` "upstream_invalid"
 * for one that cannot be read.
 */
export function filteredReply(reply: Reply, filter: ListFilter): Reply | Promise<Reply> {
  const { headers, body, status } = reply;
  if (filter.limited.size === 0 || body === null || (Buffer.isBuffer(body) && body.length === 0)) return reply;
  if (isReadable(headers) && isEventStream(headers)) {
    const events = new EventFilter((data) => filteredText(data, filter));
    return { ...reply, headers: withoutHeaders(headers, OF_BYTES), body: through(body, events) };
  }
  if (isReadable(headers) && isJson(headers)) return filteredWhole(reply, filter);
  // Clients take nothing of an error for a list.
  if (status >= 300) return reply;
  throw cannotRead(reply, "a list");
}

/**
 * A reply in a session that should have no list. It may have one all the same: of two requests with one id, which are
 * sent at the same time, servers send both results where the second one is awaited (`@modelcontextprotocol/sdk` 1.32
 * does). So lists are filtered here too; what is longer than any list passes as it is, without a look.
 */
export function unlistedReply(reply: Reply, filter: ListFilter): Reply | Promise<Reply> {
  const { headers, body } = reply;
  if (filter.limited.size === 0 || body === null || !isReadable(headers)) return reply;
  if (isEventStream(headers)) {
    const replace = async (data: Buffer) => (mayHaveList(data) ? filteredText(data, filter) : data);
    const events = new EventFilter(replace, undefined, "pass");
    return { ...reply, headers: withoutHeaders(headers, OF_BYTES), body: through(body, events) };
  }
  if (!isJson(headers) || Number(headerValue(headers, "content-length") ?? 0) > MAX_REPLY_BYTES) return reply;
  return filteredUnlisted(reply, body, filter);
}

async function filteredUnlisted(reply: Reply, body: Buffer | Readable, filter: ListFilter): Promise<Reply> {
  let received = 0;
  const read = Buffer.isBuffer(body)
    ? [body]
    : await wholeReply(body, ({ length }, after) => ((received += length) > MAX_REPLY_BYTES ? { after } : null));
  if ("after" in read) return { ...reply, body: continued(read.after, body as Readable) };
  const bytes = Buffer.concat(read);
  const again = { ...reply, body: Buffer.isBuffer(body) ? bytes : Readable.from(read, { objectMode: false }) };
  return mayHaveList(bytes) ? filteredWhole(again, filter) : again;
}

/** Whether the bytes are those of the text. */
function isReadable(headers: HeaderList): boolean {
  return headerValues(headers, "content-encoding").every((coding) => coding.toLowerCase() === "identity");
}

function isJson(headers: HeaderList): boolean {
  const types = headerValues(headers, "content-type");
  return types.length === 1 && /^application\/json[ \t]*(?:;|$)/i.test(types[0]!);
}

function cannotRead(reply: Reply, what: string): Fault {
  discard(reply);
  return unreadable(`the reply to ${what} is neither JSON nor a stream of events that every reader understands alike`);
}

async function filteredWhole(reply: Reply, filter: ListFilter): Promise<Reply> {
  const bytes = await readReply(reply, MAX_REPLY_BYTES);
  const filtered = bytes.length === 0 ? bytes : await filteredText(bytes, filter);
  if (filtered === bytes) return reply;
  if (filtered === null) throw cannotRead(reply, "a list");
  discard(reply);
  const headers = withoutHeaders(reply.headers, OF_BYTES);
  return { ...reply, headers: [...headers, "Content-Length", String(filtered.length)], body: filtered };
}

/** Either end ends the other. */
function through(body: Buffer | Readable, events: EventFilter): Readable {
  // The reply may be given up before it has a reader.
  events.on("error", ignore);
  if (Buffer.isBuffer(body)) events.end(body);
  else pipeline(body, events, ignore);
  return events;
}

/** With the client's own id of its session, where the server repeats its own; it can give no other one. */
export function repliedSession(reply: Reply, asked: HeaderList, session: McpSession | null): Reply {
  const { headers } = reply;
  const id = headerValue(headers, SESSION_HEADER);
  if (id === undefined) return reply;
  const text = session !== null && id === session.id ? headerValue(asked, SESSION_HEADER) : undefined;
  return { ...reply, headers: withSession(headers, text) };
}

function withSession(headers: HeaderList, text: string | undefined): HeaderList {
  return text === undefined
    ? headers.filter((_text, i) => !sameName(headers[i & ~1]!, SESSION_HEADER))
    : withHeader(headers, "Mcp-Session-Id", text);
}

/**
 * The reply to `initialize`: its session gets the id for the client. The revision of the session is in the result, so
 * that the head waits for it; `offered` says what is wrong with one. Rejects with a `Fault` "upstream_invalid" where
 * it cannot be read.
 */
export async function initializedReply(
  reply: Reply,
  owner: string,
  keys: Pick<SessionKeys, "latest">,
  offered: (revision: string) => McpRefusal | object,
): Promise<Reply | { readonly refusal: McpRefusal }> {
  const id = headerValue(reply.headers, SESSION_HEADER);
  if (id === undefined) return reply;
  const { reply: read, revision } = await negotiated(reply);
  // An error opens no session.
  if (revision === null) return { ...read, headers: withSession(read.headers, undefined) };
  const found = offered(revision);
  const key = await keys.latest();
  const refusal = "code" in found ? found : key === null ? UNASKED : null;
  const text = refusal === null && isRevision(revision) ? sessionText({ id, revision }, owner, key!) : null;
  if (text !== null) return { ...read, headers: withSession(read.headers, text) };
  discard(read);
  if (refusal !== null) return { refusal };
  throw unreadable("the server's session id is too long, or has other than visible ASCII");
}

interface Negotiated {
  /** To be sent. */
  readonly reply: Reply;
  /** Null: the server has refused. */
  readonly revision: string | null;
}

async function negotiated(reply: Reply): Promise<Negotiated> {
  const { headers, body, status } = reply;
  if (status >= 300 || body === null) return { reply, revision: null };
  if (isReadable(headers) && isEventStream(headers)) return negotiatedInEvents(reply, body);
  if (!isReadable(headers) || !isJson(headers)) throw cannotRead(reply, "initialize");
  const revision = await revisionIn(await readReply(reply, MAX_REPLY_BYTES));
  if (revision === undefined) throw cannotRead(reply, "initialize");
  return { reply, revision };
}

/** Holds the events back up to the one with the result. */
async function negotiatedInEvents(reply: Reply, body: Buffer | Readable): Promise<Negotiated> {
  let held = 0;
  let found: ((revision: string | null) => void) | null = null;
  const events = new EventFilter(async (data) => {
    if (found === null) return data;
    const revision = (held += data.length) > MAX_REPLY_BYTES ? undefined : await revisionIn(data);
    if (typeof revision === "string") found(revision);
    return revision === undefined ? null : data;
  }, MAX_REPLY_BYTES);
  const revision = await new Promise<string | null>((resolve, reject) => {
    found = resolve;
    events.once("finish", () => resolve(null));
    events.once("error", (error) =>
      reject(error instanceof Fault ? error : new Fault("upstream_reset", error.message)),
    );
    through(body, events);
  });
  found = null;
  return { reply: { ...reply, headers: withoutHeaders(reply.headers, OF_BYTES), body: events }, revision };
}

/** Of the result of `initialize`; null: the message has none; undefined: it cannot be read. */
function revisionIn(bytes: Buffer): Promise<string | null | undefined> {
  return withJson(bytes, (node) => {
    const top = typeof node === "string" ? null : membersOf(node);
    if (top === null || TOP.lookalikeIn(top) !== null) return undefined;
    if (!top.has("result")) return null;
    return stringOf(membersOf(top.get("result"))?.get("protocolVersion")) ?? undefined;
  });
}

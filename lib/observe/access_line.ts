/**
 * One finished request as a line of the access log: JSON, or Apache's combined format. Which requests get one, and where it goes, is
 * `access_log.ts`.
 *
 * Secrets are kept out by what is written: no query, and of the headers only User-Agent, Referer (without its query) and the trace id. Only
 * paths are searched for what some put there all the same. JSON is put together by hand, for it costs a third: only what holds quotes or control characters is escaped.
 */
import { jsonText } from "../base/terminal_json.ts";
import type { Call } from "../http/exchange.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { redactedPath } from "../http/redact.ts";
import { traceIdOf } from "./traceparent.ts";

export interface AccessEntry {
  readonly call: Call;
  readonly method: string;
  /** The request target as sent. */
  readonly target: string;
  readonly httpVersion: string;
  readonly clientAddress: string;
  readonly headers: HeaderList;
}

/** `now` is monotonic, `wall` milliseconds since 1970. The line ends with its newline. */
export type LineFormat = (entry: AccessEntry, now: number, wall: number) => string;

/** Of User-Agent and Referer; what is longer is cut off, and nobody reads it. */
const MOST_CHARACTERS = 256;

/** Remembers the second, so that its date is spelt once. */
export function jsonLines(): LineFormat {
  const secondOf = spelling((wall) => new Date(wall).toISOString().slice(0, -4));
  return ({ call, method, target, httpVersion, clientAddress, headers }, now, wall) => {
    const { notes } = call;
    const { askedAt, answeredAt } = notes;
    const upstreamMs = (notes.upstreamMs ?? 0) + (askedAt === null ? 0 : now - askedAt);
    const agent = headerValue(headers, "user-agent");
    // A trace id has been checked, and so has the version: nothing in them to escape.
    const traceId = notes.span === null ? traceIdOf(headers) : notes.span.traceId;
    return (
      `{"time":"${secondOf(wall)}${thousandths(wall)}Z","request_id":${quoted(call.id)},"trace_id":${traceId === null ? "null" : `"${traceId}"`}` +
      `,"client_ip":${quoted(clientAddress)},"method":${quoted(method)},"path":${quoted(redactedPath(pathOf(target)))},"protocol":"HTTP/${httpVersion}"` +
      `,"status":${notes.status},"code":${quoted(codeOf(call))},"bytes_received":${notes.received},"bytes_sent":${notes.sent}` +
      `,"service":${quoted(notes.service)},"route":${quoted(notes.route)},"upstream":${quoted(notes.upstream)},"attempts":${notes.attempts}` +
      `,"caller":${quoted(notes.identity)},"duration_ms":${hundredths(now - call.startedAt)}` +
      `,"upstream_ms":${notes.upstreamMs === null && askedAt === null ? "null" : hundredths(upstreamMs)}` +
      `,"plugins_ms":${notes.route === null ? "null" : hundredths((answeredAt ?? now) - call.startedAt - upstreamMs)}` +
      `,"user_agent":${agent === undefined ? "null" : quoted(short(agent))}${notes.fault === null ? "" : `,"fault":${quoted(notes.fault)}`}}\n`
    );
  };
}

/** `%h - %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`, times in UTC. */
export function combinedLines(): LineFormat {
  const secondOf = spelling((wall) => {
    const [, day, month, year, time] = new Date(wall).toUTCString().split(" ");
    return `${day}/${month}/${year}:${time} +0000`;
  });
  return ({ call, method, target, httpVersion, clientAddress, headers }, _now, wall) => {
    const { notes } = call;
    const referer = headerValue(headers, "referer");
    const agent = headerValue(headers, "user-agent");
    // Readers of this format want a number: nginx's for a client that went away without an answer.
    const status = notes.status ?? (call.aborted ? 499 : "-");
    return (
      `${bare(clientAddress)} - ${bare(notes.identity)} [${secondOf(wall)}] "${inQuotes(`${method} ${redactedPath(pathOf(target))}`)} HTTP/${httpVersion}" ` +
      `${status} ${notes.sent === null || notes.sent === 0 ? "-" : notes.sent} ` +
      `"${referer === undefined ? "-" : inQuotes(short(withoutSecrets(referer)))}" "${agent === undefined ? "-" : inQuotes(short(agent))}"\n`
    );
  };
}

/** Without query and fragment, and of an absolute target without what stands before the path: it may hold user and password. */
export function pathOf(target: string): string {
  const scheme = target.startsWith("/") ? null : /^[^/?#]*:\/\/[^/?#]*/.exec(target);
  const path = beforeQuery(scheme === null ? target : target.slice(scheme[0].length));
  return path === "" ? "/" : path; // http://gateway.example?q
}

function beforeQuery(text: string): string {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUESTION_MARK || c === HASH) return text.slice(0, i);
  }
  return text;
}

const QUESTION_MARK = 0x3f;
const HASH = 0x23;

/** A URL without user, password and query, and without what may be secret in its path. */
function withoutSecrets(url: string): string {
  return redactedPath(beforeQuery(url).replace(/^([a-z][a-z0-9+.-]*:)?\/\/[^/]*@/i, "$1//"));
}

function codeOf({ notes, aborted }: Call): string | null {
  return notes.code ?? (aborted ? "client_closed" : null);
}

function short(text: string): string {
  return text.length <= MOST_CHARACTERS ? text : text.slice(0, MOST_CHARACTERS);
}

/** As JSON. */
export function quoted(text: string | null): string {
  if (text === null) return "null";
  return isPlain(text) ? `"${text}"` : jsonText(text);
}

/** Printable ASCII that needs no escape. The expression takes half as long as a loop. */
function isPlain(text: string): boolean {
  return !NOT_PLAIN.test(text);
}

const NOT_PLAIN = /[^ !#-[\]-~]/;

/** As Apache escapes: `\"`, `\\`, and `\xhh` for all that is not printable ASCII. */
function inQuotes(text: string): string {
  return isPlain(text) ? text : text.replace(/["\\]/g, "\\$&").replace(/[^\x20-\x7e]/gu, hex);
}

/** A field that blanks end. */
function bare(text: string | null): string {
  return text === null || text === "" ? "-" : inQuotes(text).replaceAll(" ", "\\x20");
}

/** A character above U+00FF as its bytes in UTF-8. */
function hex(character: string): string {
  return BYTES[character.charCodeAt(0)] ?? [...Buffer.from(character)].map((byte) => BYTES[byte]).join("");
}

/** Spelt beforehand: a path of 16000 such characters would take 7 ms. */
const BYTES = Array.from({ length: 0x100 }, (_none, byte) => `\\x${byte.toString(16).padStart(2, "0")}`);

/** A clock that went back between two reads is no reason for a negative figure. */
function hundredths(ms: number): string {
  const all = Math.max(0, Math.round(ms * 100));
  const rest = all % 100;
  const whole = (all - rest) / 100;
  return rest === 0 ? `${whole}` : rest < 10 ? `${whole}.0${rest}` : `${whole}.${rest}`;
}

function thousandths(wall: number): string {
  const ms = Math.floor(wall) % 1000;
  return ms < 10 ? `00${ms}` : ms < 100 ? `0${ms}` : `${ms}`;
}

/** Spells moments anew only when their second is another than the last one's. */
function spelling(spell: (wall: number) => string): (wall: number) => string {
  let second = -1;
  let spelt = "";
  return (wall) => {
    const its = Math.floor(wall / 1000);
    if (its !== second) {
      second = its;
      spelt = spell(wall);
    }
    return spelt;
  };
}

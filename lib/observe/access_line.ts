/**
 * Writes one finished request as a line of the access log, in JSON.
 *
 * To keep secrets out, a line contains no query, and of the headers only User-Agent and the trace id. Paths
 * are searched for secrets. JSON is concatenated by hand, which takes a third of the time of `JSON.stringify`.
 */
import { jsonText } from "../base/log.ts";
import type { Notes } from "../http/exchange.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import { headerValue } from "../http/headers.ts";
import { redactedPath } from "../http/redact.ts";
import { traceIdOf } from "./traceparent.ts";

/** `now` is monotonic, `wall` milliseconds since 1970. The line ends with its newline. */
export type LineFormat = (entry: RequestFacts, now: number, wall: number) => string;

/** Of a header; the rest is cut off. */
const MAX_CHARACTERS = 256;

export function jsonLines(): LineFormat {
  const secondOf = perSecond((wall) => new Date(wall).toISOString().slice(0, -4));
  return (arrival, now, wall) => {
    const { call, method, scheme, target, httpVersion, headers } = arrival;
    const { notes } = call;
    const { askedAt, answeredAt, span } = notes;
    const upstreamMs = (notes.upstreamMs ?? 0) + (askedAt === null ? 0 : now - askedAt);
    const agent = headerValue(headers, "user-agent");
    const traceId = span === null ? traceIdOf(headers) : span.traceId;
    const host = loggedHost(arrival);
    const path = plainPath(target) ?? quoted(redactedPath(pathOf(target))).slice(1, -1);
    // Sums of strings, numbers made strings first: a template, which checks each part once more, is slower. Ids and
    // versions need no escapes.
    return (
      '{"time":"' +
      secondOf(wall) +
      String(Math.floor(wall) % 1000).padStart(3, "0") +
      'Z","request_id":"' +
      call.id +
      '","trace_id":' +
      (traceId === null ? "null" : '"' + traceId + '"') +
      (span?.spanId ? ',"span_id":"' + span.spanId + '"' : "") +
      ',"client_ip":' +
      quoted(arrival.clientAddress) +
      ',"method":' +
      (method === "" ? "null" : quoted(method)) +
      ',"scheme":"' +
      scheme +
      '","host":' +
      (host === null ? "null" : '"' + host + '"') +
      (path === "" ? ',"path":null,"protocol":"HTTP/' : ',"path":"' + path + '","protocol":"HTTP/') +
      httpVersion +
      (call.tlsVersion === null ? '","tls":null' : '","tls":"' + call.tlsVersion + '"') +
      (call.tlsCipher === null ? "" : ',"tls_cipher":"' + call.tlsCipher + '"') +
      (call.tlsGroup === null ? "" : ',"tls_group":"' + call.tlsGroup + '"') +
      ',"status":' +
      String(notes.status) +
      ',"code":' +
      quoted(notes.code ?? (call.aborted ? "client_closed" : null)) +
      (notes.by === null || notes.status === null ? "" : pluginFields(notes.by, notes.rule)) +
      ',"bytes_received":' +
      String(notes.received) +
      ',"bytes_sent":' +
      String(notes.sent) +
      ',"service":' +
      quoted(notes.service) +
      ',"route":' +
      quoted(notes.route) +
      ',"upstream":' +
      quoted(notes.upstream) +
      (notes.upstreamPath === null || path.endsWith(notes.upstreamPath)
        ? ""
        : ',"upstream_path":' + quoted(redactedPath(notes.upstreamPath))) +
      ',"attempts":' +
      String(notes.attempts) +
      ',"caller":' +
      quoted(notes.identity) +
      (notes.mcp === null ? "" : mcpFields(notes.mcp)) +
      ',"duration_ms":' +
      hundredths(now - call.startedAt) +
      ',"upstream_ms":' +
      (notes.upstreamMs === null && askedAt === null ? "null" : hundredths(upstreamMs)) +
      ',"plugins_ms":' +
      (notes.route === null ? "null" : hundredths((answeredAt ?? now) - call.startedAt - upstreamMs)) +
      ',"user_agent":' +
      (agent === undefined ? "null" : quoted(short(agent))) +
      (notes.fault === null ? "}\n" : ',"fault":' + quoted(notes.fault) + "}\n")
    );
  };
}

function pluginFields({ name, scope: { path } }: NonNullable<Notes["by"]>, rule: string | null): string {
  return ',"by":' + quoted(name) + ',"plugin":' + quoted(path) + (rule === null ? "" : ',"rule":' + quoted(rule));
}

function mcpFields({ method, name }: NonNullable<Notes["mcp"]>): string {
  return ',"mcp_method":' + quoted(short(method)) + (name === null ? "" : ',"mcp_name":' + quoted(short(name)));
}

/**
 * Removes query and fragment, and the scheme and authority of an absolute target, which may contain user and password,
 * as one of CONNECT may. "" of a request that could not be read.
 */
export function pathOf(target: string): string {
  const scheme = target.startsWith("/") ? null : (/^[^/?#]*:\/\/[^/?#]*/.exec(target) ?? /^[^/?#]*@/.exec(target));
  const path = beforeQuery(scheme === null ? target : target.slice(scheme[0].length));
  return path === "" && target !== "" ? "/" : path; // http://gateway.example?q
}

/**
 * The path of a target in which nothing has to be escaped or redacted; null where something might. One search for most
 * targets.
 */
export function plainPath(target: string): string | null {
  if (target.charCodeAt(0) !== SLASH) return null;
  const end = target.search(NOT_PLAIN_PATH);
  if (end < 0) return target;
  return target[end] === "?" || target[end] === "#" ? target.slice(0, end) : null;
}

/**
 * Matches the end of a path, characters to escape, and the start of text that `redactedPath` may redact: a parameter, a
 * JWT, the end of a user name.
 */
const NOT_PLAIN_PATH = /[^ !$-<>A-[\]-~]|eyJ/;

export function beforeQuery(text: string): string {
  const end = text.search(/[?#]/);
  return end < 0 ? text : text.slice(0, end);
}

const SLASH = 0x2f;

/** At most `characters` of a text; the rest is cut off. Default: as much as a line has of a header. */
export function short(text: string, characters = MAX_CHARACTERS): string {
  return text.length <= characters ? text : text.slice(0, characters);
}

/**
 * An absolute target has precedence over the Host header (RFC 9112 §3.2.2). An invalid host is null: it may contain a
 * password.
 */
export function loggedHost({ authority, target }: Pick<RequestFacts, "authority" | "target">): string | null {
  const found = target.charCodeAt(0) === SLASH ? authority : (/^[^/?#]*:\/\/([^/?#]*)/.exec(target)?.[1] ?? authority);
  return HOST.test(found) ? found : null;
}

const HOST = /^[\w.~!$&'()*+,;=:[\]-]{1,260}$/;

export function quoted(text: string | null): string {
  return text === null ? "null" : isPlain(text) ? '"' + text + '"' : jsonText(text);
}

/** Printable ASCII that needs no escape. The expression takes half as long as a loop. */
export function isPlain(text: string): boolean {
  return !NOT_PLAIN.test(text);
}

const NOT_PLAIN = /[^ !#-[\]-~]/;

/**
 * Formats with at most two decimals, and never negative: the clock may step back between two readings. Built from
 * integers, which JavaScript formats four times as fast as fractions.
 */
function hundredths(ms: number): string {
  const all = Math.max(0, Math.round(ms * 100));
  const rest = all % 100;
  return String((all - rest) / 100) + FRACTIONS[rest]!;
}

const FRACTIONS = Array.from({ length: 100 }, (_none, rest) => (rest === 0 ? "" : `.${String(rest).padStart(2, "0")}`));

/** Caches the text of a time for one second. */
export function perSecond(write: (wall: number) => string): (wall: number) => string {
  let last = NaN;
  let written = "";
  return (wall) => {
    const second = Math.floor(wall / 1000);
    if (second !== last) {
      last = second;
      written = write(wall);
    }
    return written;
  };
}

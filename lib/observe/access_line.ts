/**
 * One finished request as a line of the access log: JSON, or Apache's combined format. Which requests get one, and where it goes, is
 * `access_log.ts`.
 *
 * Secrets are kept out by what is written: no query, and of the headers only User-Agent, Referer (without its query) and the trace id. Only
 * paths are searched for what some put there all the same. JSON is put together by hand, for it costs a third: only what holds quotes or control characters is escaped.
 */
import { jsonText } from "../base/terminal_json.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Call } from "../http/exchange.ts";
import { headerValue } from "../http/headers.ts";
import { redactedPath } from "../http/redact.ts";
import { traceIdOf } from "./trace_context.ts";

/** `now` is monotonic, `wall` milliseconds since 1970. The line ends with its newline. */
export type LineFormat = (entry: RequestFacts, now: number, wall: number) => string;

/** Of User-Agent and Referer; what is longer is cut off, and nobody reads it. */
const MOST_CHARACTERS = 256;

/**
 * Remembers how the moment, outcomes and the names of the configuration are spelt. A line is a tree of its pieces until it is encoded, and
 * that takes longer the more of them there are: what stands side by side and is known before is one piece.
 */
export function jsonLines(): LineFormat {
  const second = lastly((wall: number) => `{"time":"${new Date(wall).toISOString().slice(0, -4)}`, (wall) => Math.floor(wall / 1000));
  const beginning = lastly((wall: number) => [second(wall), thousandths(wall), 'Z","request_id":"'].join(""), (wall) => wall);
  const outcome = remembered((version: string) =>
    remembered((tls: string | null) =>
      remembered((status: number | null) => ['","protocol":"HTTP/', version, '","tls":', quoted(tls), ',"status":', String(status), ',"code":'].join("")),
    ),
  );
  const names = remembered((service: string | null) =>
    remembered((route: string | null) => [',"service":', quoted(service), ',"route":', quoted(route), ',"upstream":'].join("")),
  );
  const tries = remembered((upstream: string | null) =>
    remembered((attempts: number) => [quoted(upstream), ',"attempts":', String(attempts), ',"caller":'].join("")),
  );
  return (arrival, now, wall) => {
    const { call, method, scheme, target, httpVersion, headers } = arrival;
    const { notes } = call;
    const { askedAt, answeredAt } = notes;
    const upstreamMs = (notes.upstreamMs ?? 0) + (askedAt === null ? 0 : now - askedAt);
    const agent = headerValue(headers, "user-agent");
    // A trace id has been checked, and so has the version: nothing in them to escape.
    const traceId = notes.span === null ? traceIdOf(headers) : notes.span.traceId;
    const code = codeOf(call);
    // Sums of strings: a template looks at each of its parts once more. Numbers are strings before, for the same reason.
    return (
      beginning(wall) +
      escaped(call.id) +
      (traceId === null ? '","trace_id":null,"client_ip":"' : '","trace_id":"' + traceId + '","client_ip":"') +
      escaped(arrival.clientAddress) +
      (METHODS[scheme].get(method) ?? methodField(escaped(method), scheme)) +
      hostField(arrival) +
      (plainPath(target) ?? escaped(redactedPath(pathOf(target)))) +
      outcome(httpVersion)(call.tlsVersion)(notes.status) +
      (code === null ? 'null,"bytes_received":' : quoted(code) + ',"bytes_received":') +
      String(notes.received) +
      ',"bytes_sent":' +
      String(notes.sent) +
      names(notes.service)(notes.route) +
      tries(notes.upstream)(notes.attempts) +
      quoted(notes.identity) +
      ',"duration_ms":' +
      hundredths(now - call.startedAt) +
      ',"upstream_ms":' +
      (notes.upstreamMs === null && askedAt === null ? "null" : hundredths(upstreamMs)) +
      ',"plugins_ms":' +
      (notes.route === null ? "null" : hundredths((answeredAt ?? now) - call.startedAt - upstreamMs)) +
      (agent === undefined ? ',"user_agent":null' : ',"user_agent":' + quoted(short(agent))) +
      (notes.fault === null ? "}\n" : ',"fault":' + quoted(notes.fault) + "}\n")
    );
  };
}

/** `%h - %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`, times in UTC. */
export function combinedLines(): LineFormat {
  const dateOf = lastly(
    (wall: number) => {
      const [, day, month, year, time] = new Date(wall).toUTCString().split(" ");
      return [" [", day, "/", month, "/", year, ":", time, ' +0000] "'].join("");
    },
    (wall) => Math.floor(wall / 1000),
  );
  return ({ call, method, target, httpVersion, clientAddress, headers }, _now, wall) => {
    const { notes } = call;
    const referer = headerValue(headers, "referer");
    const agent = headerValue(headers, "user-agent");
    // Readers of this format want a number: nginx's for a client that went away without an answer.
    const status = notes.status ?? (call.aborted ? 499 : "-");
    return (
      `${bare(clientAddress)} - ${bare(notes.identity)}${dateOf(wall)}${inQuotes(method)} ` +
      `${plainPath(target) ?? inQuotes(redactedPath(pathOf(target)))} HTTP/${httpVersion}" ` +
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

/**
 * The path of a target in which nothing has to be escaped or redacted; null where something might. Most are such, and one look at them
 * takes less than half as long as the search for each of these.
 */
function plainPath(target: string): string | null {
  if (target.charCodeAt(0) !== SLASH) return null;
  const end = target.search(NOT_PLAIN_PATH);
  if (end < 0) return target;
  const c = target.charCodeAt(end);
  return c === QUESTION_MARK || c === HASH ? target.slice(0, end) : null;
}

/** What ends a path, what is escaped, and what `redactedPath` begins with: a parameter, a JWT. */
const NOT_PLAIN_PATH = /[^ !$-<>@-[\]-~]|eyJ/;

function beforeQuery(text: string): string {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === QUESTION_MARK || c === HASH) return text.slice(0, i);
  }
  return text;
}

const SLASH = 0x2f;
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

function methodField(method: string, scheme: RequestFacts["scheme"]): string {
  return ['","method":"', method, '","scheme":"', scheme, '","host":'].join("");
}

function usualMethods(scheme: RequestFacts["scheme"]): ReadonlyMap<string, string> {
  return new Map(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].map((method) => [method, methodField(method, scheme)]));
}

/** Those that most requests have. */
const METHODS = { http: usualMethods("http"), https: usualMethods("https") };

/** An absolute target goes before the Host header (RFC 9112 §3.2.2). What is no host is null: it may hold a user and a password. */
function hostField({ authority, target }: RequestFacts): string {
  const host = target.charCodeAt(0) === SLASH ? authority : (/^[^/?#]*:\/\/([^/?#]*)/.exec(target)?.[1] ?? authority);
  return HOST.test(host) ? '"' + host + '","path":"' : 'null,"path":"';
}

const HOST = /^[\w.~!$&'()*+,;=:[\]-]{1,260}$/;

/** As JSON. */
export function quoted(text: string | null): string {
  if (text === null) return "null";
  return isPlain(text) ? `"${text}"` : jsonText(text);
}

/** As `quoted`, without the quotes. */
function escaped(text: string): string {
  return isPlain(text) ? text : jsonText(text).slice(1, -1);
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
  return `${(all - rest) / 100}${FRACTIONS[rest]}`;
}

const FRACTIONS = Array.from({ length: 100 }, (_none, rest) => (rest === 0 ? "" : `.${String(rest).padStart(2, "0")}`));

/** Three digits. */
function thousandths(wall: number): string {
  return String(Math.floor(wall) % 1000).padStart(3, "0");
}

/** Spells moments anew only when `unit` gives another number of them than of the last one. */
function lastly(spell: (wall: number) => string, unit: (wall: number) => number): (wall: number) => string {
  let last = NaN;
  let spelt = "";
  return (wall) => {
    const its = unit(wall);
    if (its !== last) {
      last = its;
      spelt = spell(wall);
    }
    return spelt;
  };
}

/** Makes what belongs to each key once. For names of the configuration and small numbers: clients cannot make there be many, or long ones. */
function remembered<Key, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const known = new Map<Key, Value>();
  return (key) => {
    let value = known.get(key);
    if (value === undefined) {
      // Most of them may be of configurations that are in force no more.
      if (known.size === MOST_REMEMBERED) known.clear();
      value = make(key);
      known.set(key, value);
    }
    return value;
  };
}

const MOST_REMEMBERED = 16 * 1024;

/**
 * Chooses and makes the bodies of the gateway's own errors, as `global.errors` and `errors` of a service say.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { suggest } from "../base/suggest.ts";
import type { Config, Service } from "../config/model.ts";
import { piecesOf, type Placeholder } from "../config/own_errors.ts";
import { placeInText } from "../config/places.ts";
import { isGrpc } from "../http/grpc.ts";
import { headerValue, headerValues, type HeaderList } from "../http/headers.ts";
import type { ErrorText, OwnReply } from "../http/own_body.ts";
import { detailBy, documentReply, type ProblemOptions } from "../http/reply.ts";
import { weightOf } from "../http/weight.ts";
import type { Inbound } from "../server/inbound.ts";
import type { ErrorEntry, MediaType, UseOwnErrors, ValidConfig } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";

export { fields } from "../config/own_errors.ts";

/** Of `global`, or of a service. */
type Written = NonNullable<Config["global"]["errors"]>;

interface ShownError extends ErrorText {
  readonly id: string;
  readonly detail: string;
}

/** One item of `errors`, compiled. */
interface Entry extends ErrorEntry {
  readonly status: number | null;
  readonly contentType: string;
  readonly headers: HeaderList;
  /** Texts, in bytes, and placeholders in turn; empty: no body. */
  readonly pieces: readonly (Buffer | string)[];
  readonly escape: (text: string) => string;
}

/** What an entry compares of a request. */
type Asked = Pick<Inbound, "method" | "headers">;

/** Null: there are none. */
export function compileOwnErrors(...lists: readonly (Written | undefined)[]): UseOwnErrors | null {
  const entries = lists.flatMap(errorEntries);
  if (entries.length === 0) return null;
  return {
    ofRequest({ call, method, headers }) {
      const request = { method, headers };
      call.ownBody = (error, id, options) => replyTo(entries, error, { ...options, id }, request);
    },
    ofUnread: (error, id, options) => replyTo(entries, error, { ...options, id }, null),
  };
}

export function errorEntries(list: Written = []): readonly Entry[] {
  return list.map((written) => compiled.get(written) ?? entryOf(written));
}

/** Those of `global` hold for every service that has some of its own, too: their bodies are in memory once. */
const compiled = new WeakMap<Written[number], Entry>();

/** What is malformed or too large was not read as its sender may have meant it. */
const UNREADABLE: readonly string[] = ["bad_request", "headers_too_large"] satisfies ErrorCode[];

function entryOf(written: Written[number]): Entry {
  const { codes, statuses, methods, status, contentType, body, bodyFile, always } = written;
  const text = body ?? bodyFile?.content.toString();
  const pieces = text === undefined ? [] : piecesOf(text);
  const isOpen = codes === undefined && statuses === undefined;
  const named = new Set<string | number>([...(codes ?? []), ...(statuses ?? [])]);
  const entry: Entry = {
    fits: isOpen ? null : ({ code, status }) => named.has(code) || named.has(status),
    methods: methods === undefined ? null : new Set([...methods, ...(methods.includes("GET") ? ["HEAD"] : [])]),
    status: status ?? null,
    contentType,
    type: mediaTypeOf(contentType),
    always,
    headers: text === undefined ? [] : ["Content-Type", contentType],
    pieces: pieces.map((piece, i) => (i % 2 === 0 ? Buffer.from(piece) : piece)),
    escape: escapeFor(mediaTypeOf(contentType).name),
  };
  compiled.set(written, entry);
  return entry;
}

/** `received`: null: nothing of the request is known. */
function replyTo(
  entries: readonly Entry[],
  error: ErrorText,
  options: Pick<ProblemOptions, "detail" | "headers"> & { readonly id: string },
  received: Asked | null,
): OwnReply | null {
  if (received !== null && isGrpc(headerValue(received.headers, "content-type"))) return null;
  const request = UNREADABLE.includes(error.code) ? null : received;
  let accepted: readonly MediaRange[] | null = null;
  /** Of the last entry: entries of one media type mostly stand together. */
  let asked = "";
  let isAccepted = false;
  for (const entry of entries) {
    if (entry.fits !== null && !entry.fits(error)) continue;
    if (entry.methods !== null && (request === null || !entry.methods.has(request.method))) continue;
    if (!entry.always) {
      if (request === null) continue;
      accepted ??= acceptedBy(request.headers);
      if (asked !== entry.contentType) isAccepted = accepts(accepted, entry.type);
      asked = entry.contentType;
      if (!isAccepted) continue;
    }
    const { status } = error;
    const sentAs = entry.status ?? status;
    const { id, detail = detailBy(error) } = options;
    const body = filledIn(entry, { ...error, status: sentAs, id, detail });
    const headers = [
      ...entry.headers,
      ...(body === null ? [] : ["Content-Length", String(body.length)]),
      ...(options.headers ?? []),
      // A cache may store a 404 or a 200, which this reply is not.
      ...(sentAs === status ? [] : ["Cache-Control", "no-store"]),
      ...(accepted === null ? [] : VARY),
    ];
    // What a plugin makes of the status holds where the entry says none.
    return { status, ...(entry.status !== null && { sentAs }), headers, body };
  }
  if (accepted === null) return null;
  return documentReply(error, options.id, { ...options, headers: [...(options.headers ?? []), ...VARY] });
}

/** Another Accept might have led to another body. */
const VARY = ["Vary", "Accept"];

function filledIn({ pieces, escape }: Entry, error: ShownError): Buffer | null {
  const [first] = pieces;
  if (first === undefined) return null;
  if (pieces.length === 1) return first as Buffer;
  const values = new Map<string, Buffer>();
  const valueOf = (name: string) => {
    let value = values.get(name);
    if (value === undefined) {
      value = Buffer.from(escape(VALUES[name as Placeholder](error).slice(0, MAX_VALUE)));
      values.set(name, value);
    }
    return value;
  };
  return Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? valueOf(piece) : piece)));
}

/** Characters of a value; a detail may quote the request. */
const MAX_VALUE = 1000;

const VALUES: Readonly<Record<Placeholder, (error: ShownError) => string>> = {
  "error.code": ({ code }) => code,
  "error.status": ({ status }) => String(status),
  "error.title": ({ title }) => title,
  "error.detail": ({ detail }) => detail,
  "request.id": ({ id }) => id,
};

/** How a value is written in a body of this media type. */
function escapeFor(type: string): (text: string) => string {
  if (/^text\/html$|[/+]xml$/.test(type)) return markup;
  return /[/+]json$/.test(type) ? jsonText : (text) => text;
}

/** XML cannot have control characters, not even as references (XML 1.0 §2.2). */
function markup(text: string): string {
  return text.replace(/[&<>"'\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, (found) => ENTITIES[found] ?? "\ufffd");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function jsonText(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

interface MediaRange extends MediaType {
  readonly weight: number;
}

function mediaTypeOf(text: string): MediaType {
  const [name = "", ...parameters] = text
    .toLowerCase()
    .split(";")
    .map((part) => part.trim());
  return { name, parameters: parameters.filter((each) => each !== "" && !each.startsWith("charset=")) };
}

/** A longer Accept accepts nothing: no client needs one, and it would be read for every error. */
const MAX_ACCEPT = 1024;

/** RFC 9110 §12.5.1. Without the header everything is accepted. */
function acceptedBy(headers: HeaderList): readonly MediaRange[] {
  const values = headerValues(headers, "accept");
  if (values.length === 0) return EVERYTHING;
  const text = values.join();
  if (text.length > MAX_ACCEPT) return [];
  return text.split(",").map((item) => {
    const { name, parameters } = mediaTypeOf(item);
    const at = parameters.findIndex((each) => each.startsWith("q="));
    return { name, weight: weightOf(parameters) ?? 0, parameters: at < 0 ? parameters : parameters.slice(0, at) };
  });
}

const EVERYTHING: readonly MediaRange[] = [{ name: "*/*", parameters: [], weight: 1 }];

/** The most specific range decides, the first of them among equals. */
function accepts(ranges: readonly MediaRange[], { name, parameters }: MediaType): boolean {
  let closest = -1;
  let weight = 0;
  for (const range of ranges) {
    const isMet = range.parameters.every((each) => parameters.includes(each));
    const closeness = isMet ? closenessOf(range, name) : -1;
    if (closeness <= closest) continue;
    closest = closeness;
    weight = range.weight;
  }
  return weight > 0;
}

/** -1: the range does not have the type. */
function closenessOf(range: MediaRange, name: string): number {
  if (range.name === name) return 2 + range.parameters.length;
  if (range.name === "*/*") return 0;
  return range.name.endsWith("/*") && name.startsWith(range.name.slice(0, -1)) ? 1 : -1;
}

/**
 * Throws a `ConfigError` for codes that no error has. Kinds that are not the gateway's own have codes that nobody
 * knows.
 */
export function refuseUnknownCodes(
  { config, kinds, source }: Pick<ValidConfig, "config" | "kinds" | "source">,
  builtIn: readonly string[],
): void {
  if (kinds.some(({ name }) => !builtIn.includes(name))) return;
  const known = [...Object.keys(ERRORS), ...CODES_OF_KINDS];
  const wrong = (list: Written | undefined, at: readonly (string | number)[]) =>
    (list ?? []).flatMap(({ codes = [] }, i) =>
      codes.flatMap((code, j) => (known.includes(code) ? [] : [{ code, at: [...at, "errors", i, "codes", j] }])),
    );
  const all = [
    ...wrong(config.global.errors, ["global"]),
    ...config.services.flatMap(({ errors }: Service, i) => wrong(errors, ["services", i])),
  ];
  if (all.length === 0) return;
  const issues = all.map(({ code, at }) => {
    const meant = suggest(code, known);
    const help = meant === undefined ? `the codes are ${known.join(", ")}` : `did you mean "${meant}"?`;
    return { at, message: `no error has the code "${code}": ${help}`, position: placeInText(source, at) };
  });
  throw new ConfigError(issues, source.file);
}

/** Of errors that only some kinds answer with. */
export const CODES_OF_KINDS = ["fault_injected", "not_cached", "range_not_satisfiable"];

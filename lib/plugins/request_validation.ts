/**
 * The plugin kind `request_validation`: lets a request pass when its body, query and headers have the form that JSON Schemas ask for, and
 * refuses all others with everything that is wrong with them, as a problem document (RFC 9457). The schemas are `json_schema.ts`'s.
 *
 * Reads the query, the headers and, where there is a schema for it, the whole body, which goes on byte for byte. A client that waits for
 * 100 Continue (RFC 9110 §10.1.1) gets it from here, for nobody else reads the body before.
 */
import { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";
import { createTimeSlices } from "../base/time_slices.ts";
import { integer, object, optional, withDefault } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { hasToken, headerValue, headerValues, withoutHeader } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { Run, TooMuchWork, Work, type Done, type Violation } from "./json_run.ts";
import { jsonSchemaField, type CompiledSchema, type Shape } from "./json_schema.ts";
import { readJson } from "./json_text.ts";
import { definePlugin } from "./plugin.ts";

const schema = object(
  {
    body: optional(jsonSchemaField("JSON Schema of the body, which then has to be JSON.")),
    query: optional(jsonSchemaField("JSON Schema of an object with the parameters of the query.")),
    headers: optional(jsonSchemaField("JSON Schema of an object with the headers, names in lower case.")),
    max_bytes: withDefault(integer({ min: 1, max: 67_108_864, describe: "Longest body that is read." }), 1_048_576),
  },
  {
    describe: "Refuses requests that do not have the form that is asked for.",
    refine({ body, query, headers }, report) {
      if (body === undefined && query === undefined && headers === undefined) report('needs at least one of "body", "query" and "headers"');
      if (query?.written === false) report('refuses every request; for none with a query: { "maxProperties": 0 }', "query");
      if (headers?.written === false) report("refuses every request", "headers");
      const { properties = {}, required = [], additionalProperties } = (headers?.written ?? {}) as HeadersSchema;
      for (const name of Object.keys(properties)) {
        if (name !== name.toLowerCase()) report("names of headers are written in lower case here", "headers", "properties", name);
      }
      required.forEach((name, i) => {
        if (name !== name.toLowerCase()) report("names of headers are written in lower case here", "headers", "required", i);
      });
      if (additionalProperties === false) report("clients send headers of their own: leave it out", "headers", "additionalProperties");
    },
  },
);

interface HeadersSchema {
  readonly properties?: object;
  readonly required?: readonly string[];
  readonly additionalProperties?: unknown;
}

interface Named extends Violation {
  readonly in: "body" | "query" | "headers";
}

export const requestValidation = definePlugin({
  name: "request_validation",
  schema,
  create({ body: bodySchema, query, headers, maxBytes }, { clock }) {
    const held = { bytes: 0 };
    const nextSlice = createTimeSlices();

    /** Looks at one part of a request after the other; null when all of them have the right form. */
    const judge = (exchange: Exchange, body: Buffer | null | undefined): Reply | null | Promise<Reply | null> => {
      const looks: [Named["in"], (run: Run) => Done][] = [];
      if (query !== undefined) looks.push(["query", (run) => checkQuery(exchange.query, query, run)]);
      if (headers !== undefined) looks.push(["headers", (run) => headers.check(headersObject(exchange, headers), run)]);
      if (bodySchema !== undefined && body !== undefined) {
        looks.push(["headers", (run) => checkContentHeaders(exchange, body, run)]);
        looks.push(["body", (run) => (found.some((each) => each.in === "headers" && CONTENT.has(each.at)) ? undefined : checkBody(body, bodySchema, run))]);
      }
      const work = new Work(mostSteps(exchange, body, headers !== undefined), () => (exchange.call.aborted ? Promise.reject(new TooMuchWork()) : nextSlice()));
      const found: Named[] = [];
      const verdict = () => (found.length === 0 ? null : refusal(exchange, found));
      const from = (nth: number): Done => {
        for (let i = nth; i < looks.length; i++) {
          const [where, look] = looks[i]!;
          const run = new Run(MOST_VIOLATIONS - found.length, work);
          const note = () => void found.push(...run.violations.map((violation) => ({ in: where, ...violation })));
          const giveUp = (error: unknown) => {
            if (!(error instanceof TooMuchWork)) throw error;
            found.push({ in: where, at: "", message: "takes too long to check" });
          };
          try {
            const done = look(run);
            if (done !== undefined) return done.then(note).then(() => from(i + 1), giveUp);
            note();
          } catch (error) {
            return giveUp(error);
          }
        }
      };
      const done = from(0);
      return done === undefined ? verdict() : done.then(verdict);
    };

    const withBody = async (exchange: Exchange, body: Readable, next: (exchange: Exchange) => Reply | Promise<Reply>): Promise<Reply> => {
      const length = Number(headerValue(exchange.headers, "content-length") ?? 0);
      if (length > maxBytes) return problem(exchange.call, "body_too_large", tooLarge(maxBytes));
      if (held.bytes + length > MOST_HELD) return problem(exchange.call, "overloaded", { detail: BUSY });
      if (hasToken(headerValue(exchange.headers, "expect"), "100-continue")) exchange.call.inform(100, []);
      let mine = 0;
      try {
        const read = await wholeBody(body, clock, (bytes) => {
          mine += bytes;
          held.bytes += bytes;
          return mine > maxBytes ? "too large" : held.bytes > MOST_HELD ? "busy" : "more";
        });
        if (read === "too large") return problem(exchange.call, "body_too_large", tooLarge(maxBytes));
        if (read === "busy") return problem(exchange.call, "overloaded", { detail: BUSY });
        const refused = await judge(exchange, mine === 0 && BODILESS.has(exchange.method) ? undefined : Buffer.concat(read));
        return refused ?? (await next(exchange.with({ body: replayed(read), headers: withoutHeader(exchange.headers, "expect") })));
      } finally {
        held.bytes -= mine;
      }
    };

    return (next) => (exchange) => {
      const { body } = exchange;
      if (bodySchema !== undefined && body !== null) return withBody(exchange, body, next);
      const awaitsBody = bodySchema !== undefined && exchange.upgrade === null && !BODILESS.has(exchange.method);
      const refused = judge(exchange, awaitsBody ? null : undefined);
      return refused instanceof Promise ? refused.then((later) => later ?? next(exchange)) : (refused ?? next(exchange));
    };
  },
});

const MOST_VIOLATIONS = 50;
/** Subschemas, values compared and characters of patterns that are looked at: many per byte, no more for choices within choices, and never more than the most. */
const LEAST_WORK = 100_000;
const WORK_PER_BYTE = 20;
const MOST_WORK = 10_000_000;

function mostSteps({ query, headers }: Exchange, body: Buffer | null | undefined, withHeaders: boolean): number {
  let bytes = (body?.length ?? 0) + query.length;
  if (withHeaders) for (const text of headers) bytes += text.length;
  return Math.min(LEAST_WORK + bytes * WORK_PER_BYTE, MOST_WORK);
}

/** Bodies that one instance holds at a time, in bytes. */
const MOST_HELD = 268_435_456;
const IDLE_MS = 60_000;
/** Chunks of a body that are kept as they came, before they are joined. */
const MOST_LOOSE = 256;

/** Methods whose requests have no body as a rule (RFC 9110 §9.3): one that is there is looked at all the same. */
const BODILESS = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);
const CONTENT = new Set(["/content-type", "/content-encoding"]);
const BUSY = "Too many request bodies are being checked at the moment. Try again shortly.";

function tooLarge(maxBytes: number): { readonly detail: string } {
  return { detail: `The request body may have ${maxBytes} bytes.` };
}

function refusal(exchange: Exchange, violations: readonly Named[]): Reply {
  const count = violations.length;
  const detail = `The request has ${count >= MOST_VIOLATIONS ? `at least ${count}` : count} violation${count === 1 ? "" : "s"} of the form that is asked for.`;
  return problem(exchange.call, "request_invalid", { detail, members: { violations } });
}

/** The chunks of a body, or why it was not read to its end. What is left unread is the server's to dispose of. */
function wholeBody<Stop extends string>(body: Readable, clock: Clock, take: (bytes: number) => Stop | "more"): Promise<Buffer[] | Stop> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let joined = 0;
    const onData = (chunk: Buffer) => {
      timer.restart();
      const verdict = take(chunk.length);
      if (verdict === "more") {
        // A chunk of one byte takes a hundred times its room.
        if (chunks.push(chunk) - joined >= MOST_LOOSE) chunks.push(Buffer.concat(chunks.splice(joined++)));
        return;
      }
      settle();
      body.pause();
      resolve(verdict);
    };
    const onEnd = () => {
      settle();
      resolve(chunks);
    };
    const onError = (error?: Error | null) => {
      settle();
      reject(error instanceof Fault ? error : new Fault("bad_request", "the request body broke off", error ?? undefined));
    };
    const onClose = () => onError(body.errored);
    const settle = () => {
      timer.cancel();
      body.off("data", onData).off("end", onEnd).off("error", onError).off("close", onClose);
    };
    const timer = clock.after(IDLE_MS, () => {
      settle();
      reject(new Fault("request_timeout", `the client sent nothing for ${IDLE_MS} ms`));
    });
    // What has ended before would never be heard of again.
    if (body.destroyed || body.readableEnded) return onClose();
    body.on("data", onData).on("end", onEnd).on("error", onError).on("close", onClose);
  });
}

/** The same bytes once more. */
function replayed(chunks: readonly Buffer[]): Readable {
  let next = 0;
  return new Readable({
    read() {
      this.push(next < chunks.length ? chunks[next++]! : null);
    },
  });
}

function checkContentHeaders({ headers }: Exchange, body: Buffer | null, run: Run): void {
  if (body === null || body.length === 0) return;
  const types = headerValues(headers, "content-type");
  if (types.length !== 1 || !isJson(types[0]!)) run.add("/content-type", "expected application/json, or a type that ends with +json, in UTF-8");
  if (headerValues(headers, "content-encoding").some((coding) => coding.toLowerCase() !== "identity")) run.add("/content-encoding", "may not be there: the body has to come as it is");
}

function isJson(contentType: string): boolean {
  const [type = "", ...parameters] = contentType.split(";").map((part) => part.trim().toLowerCase());
  if (type !== "application/json" && !(type.startsWith("application/") && type.endsWith("+json"))) return false;
  return parameters.every((parameter) => !parameter.startsWith("charset") || parameter === "charset=utf-8" || parameter === 'charset="utf-8"');
}

function checkBody(body: Buffer | null, schema: CompiledSchema, run: Run): Done {
  if (body === null || body.length === 0) return run.add("", "is required");
  const reading = readJson(body);
  const goOn = (): Done => {
    const { done, value: read } = reading.next();
    if (done !== true) return run.work.pause().then(goOn);
    if ("problem" in read) run.add(read.at, read.problem);
    else return schema.check(read.value, run);
  };
  return goOn();
}

/** Names and values as HTML forms are encoded (URL Standard §5.1). */
function checkQuery(query: string, schema: CompiledSchema, run: Run): Done {
  const values = new Map<string, string[]>();
  for (const pair of query.slice(1).split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const name = decoded(equals < 0 ? pair : pair.slice(0, equals));
    const value = decoded(equals < 0 ? "" : pair.slice(equals + 1));
    if (name === null || value === null) return run.add("", "is not percent-encoded in UTF-8");
    const before = values.get(name);
    if (before === undefined) values.set(name, [value]);
    else before.push(value);
  }
  return schema.check(typedObject(values, schema), run);
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text.includes("+") ? text.replaceAll("+", " ") : text);
  } catch {
    return null;
  }
}

function headersObject({ headers, authority }: Exchange, schema: CompiledSchema): object {
  const values = new Map<string, string[]>();
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase();
    // Headers come a character a byte.
    const value = Buffer.from(headers[i + 1]!, "latin1").toString("utf8");
    const before = values.get(name);
    if (before === undefined) values.set(name, [value]);
    else before.push(value);
  }
  // Over HTTP/2 `:authority` says it (RFC 9113 §8.3.1).
  if (authority !== "" && !values.has("host")) values.set("host", [authority]);
  return typedObject(values, schema);
}

function typedObject(values: ReadonlyMap<string, readonly string[]>, schema: CompiledSchema): object {
  return Object.fromEntries([...values].map(([name, texts]) => [name, typed(texts, schema.shapeOf(name))]));
}

/** What texts stand for where the schema says what it expects: a number, true or false, a list. All else stays text. */
function typed(texts: readonly string[], { types, itemTypes }: Shape): unknown {
  if (types?.includes("array")) return texts.map((text) => typedText(text, itemTypes));
  return texts.length === 1 ? typedText(texts[0]!, types) : texts;
}

function typedText(text: string, types: readonly string[] | null): unknown {
  if (types === null || types.includes("string")) return text;
  if ((types.includes("integer") || types.includes("number")) && NUMBER.test(text)) return Number(text);
  if (types.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  return text;
}

/** As JSON writes them. */
const NUMBER = /^-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?$/;

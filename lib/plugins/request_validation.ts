/**
 * The plugin kind `request_validation`: refuses requests whose body, query or headers do not fit a JSON Schema, and
 * lists everything that is wrong in a problem document (RFC 9457).
 *
 * With a schema for the body, the whole body is read and then forwarded byte for byte. A client that waits for 100
 * Continue (RFC 9110
 * §10.1.1) gets it here, since the body is read here first.
 */
import { Readable } from "node:stream";
import { SharedCount } from "../base/shared_counts.ts";
import { createTimeSlices } from "../base/time_slices.ts";
import { droppedProblem } from "../config/dropped_names.ts";
import { describeNode, nodeAt, offsetAt, type Json, type Path } from "../config/json.ts";
import { plainJson } from "../config/plain_json.ts";
import {
  boolean,
  INVALID,
  integer,
  object,
  optional,
  report,
  reportAt,
  withDefault,
  type Schema,
} from "../config/schema.ts";
import { BODILESS } from "../http/body.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValues, withoutHeader } from "../http/headers.ts";
import { isJsonType } from "../http/media_type.ts";
import { formDecoded, parametersOf } from "../http/query.ts";
import { problem, type Reply } from "../http/reply.ts";
import {
  andThen,
  compileJsonSchema,
  eachOf,
  readJson,
  resumed,
  Run,
  TooMuchWork,
  Work,
} from "../json_schema/json_schema.ts";
import type { CompiledSchema, Done, TextTypes } from "../json_schema/json_schema.ts";
import { heldBodies } from "./held_bodies.ts";
import type { Plugin } from "./plugin.ts";

const schema = object(
  {
    body: optional(jsonSchema("JSON Schema of the body, which then has to be JSON.")),
    query: optional(jsonSchema("JSON Schema of an object with the parameters of the query.")),
    headers: optional(jsonSchema("JSON Schema of an object with the headers, names in lower case.")),
    body_required: withDefault(boolean({ describe: "Whether requests without a body are refused." }), true),
    max_bytes: withDefault(
      integer({ min: 1, max: 67_108_864, describe: "Maximum length of the body, in bytes." }),
      1_048_576,
    ),
  },
  {
    describe: "Refuses requests that do not match a JSON Schema.",
    refine({ body, bodyRequired, query, headers }, report, context) {
      if (body === undefined && !bodyRequired) report('is for "body"', "body_required");
      if (body === undefined && query === undefined && headers === undefined)
        report('needs at least one of "body", "query" and "headers"');
      if (query?.written === false)
        report('refuses every request; for none with a query: { "maxProperties": 0 }', "query");
      if (headers?.written === false) report("refuses every request", "headers");
      const { properties = {}, required = [], additionalProperties } = (headers?.written ?? {}) as HeadersSchema;
      const check = (name: string, ...under: Path) => {
        const isLower = name === name.toLowerCase();
        const wrong = isLower ? droppedProblem(name, context) : "names of headers are written in lower case here";
        if (wrong !== undefined) report(wrong, "headers", ...under);
      };
      for (const name of Object.keys(properties)) check(name, "properties", name);
      required.forEach((name, i) => check(name, "required", i));
      if (additionalProperties === false)
        report("clients send headers of their own: leave it out", "headers", "additionalProperties");
    },
  },
);

interface HeadersSchema {
  readonly properties?: object;
  readonly required?: readonly string[];
  readonly additionalProperties?: unknown;
}

export interface WrittenSchema extends CompiledSchema {
  /** The schema as written. */
  readonly written: Json;
}

/** A field of the configuration that holds a JSON Schema. References to secrets are not resolved in it. */
function jsonSchema(describe: string): Schema<WrittenSchema, boolean | { readonly [keyword: string]: unknown }> {
  return {
    expects: "a JSON Schema",
    describe,
    kinds: ["object", "boolean"],
    check(node, at, context) {
      const { kind } = node;
      if (kind !== "object" && kind !== "boolean")
        return report(context, at, node, `expected a JSON Schema, found ${describeNode(node)}`);
      const written = plainJson(node);
      const compiled = compileJsonSchema(written);
      if ("check" in compiled) return { ...compiled, written };
      for (const { at: path, message, isAtKey = false } of compiled) {
        const parent = nodeAt(node, path.slice(0, -1));
        const offset =
          isAtKey && parent?.kind === "object"
            ? parent.members.get(String(path.at(-1)))!.keyOffset
            : offsetAt(node, path);
        reportAt(context, [...at, ...path], offset, message);
      }
      return INVALID;
    },
    show: plainJson,
    jsonSchema: () => ({ description: describe, type: ["object", "boolean"] }),
  };
}

/** `body` is null if it is missing, undefined if it is optional. */
type PartCheck = (exchange: Exchange, body: Buffer | null | undefined, run: Run) => Done;

export const requestValidation: Plugin<typeof schema> = {
  name: "request_validation",
  schema,
  ownHeaders: ({ headers }) => Object.keys(((headers?.written ?? {}) as HeadersSchema).properties ?? {}),
  code: { SharedCount },
  create({ body: bodySchema, bodyRequired, query, headers, maxBytes }, { clock, count }) {
    const parts = partChecks(query, headers, bodySchema);
    const mayBeMissing = ({ method }: Exchange) => !bodyRequired || BODILESS.has(method);
    const nextSlice = createTimeSlices();
    const bodies = heldBodies({ clock, count, maxBytes, use: "checked" });

    /** Null when the request fits. */
    const refusal = (exchange: Exchange, body: Buffer | null | undefined): Reply | null | Promise<Reply | null> => {
      const pause = () => (exchange.call.aborted ? Promise.reject(new TooMuchWork()) : nextSlice());
      const run = new Run(MAX_VIOLATIONS, new Work(mostSteps(exchange, body, headers !== undefined), pause));
      const verdict = () => (run.violations.length === 0 ? null : violationsReply(exchange, run));
      const giveUp = (error: unknown) => {
        if (!(error instanceof TooMuchWork)) throw error;
        run.add("", "takes too long to check");
      };
      try {
        const done = eachOf(parts.length, run, (i) => {
          run.part = parts[i]![0];
          return parts[i]![1](exchange, body, run);
        });
        if (done !== undefined) return done.catch(giveUp).then(verdict);
      } catch (error) {
        giveUp(error);
      }
      return verdict();
    };

    const withBody = (
      exchange: Exchange,
      body: Readable,
      next: (exchange: Exchange) => Reply | Promise<Reply>,
    ): Promise<Reply> =>
      bodies.whole(exchange, body, async ({ pieces, length, withRoom }) => {
        const isMissing = length === 0 && mayBeMissing(exchange);
        const refused = await withRoom(() => refusal(exchange, isMissing ? undefined : Buffer.concat(pieces)));
        if (refused !== null) return refused;
        const again = Readable.from(pieces, { objectMode: false });
        return next(exchange.with({ body: again, headers: withoutHeader(exchange.headers, "expect") }));
      });

    return (next) => (exchange) => {
      const { body } = exchange;
      if (bodySchema !== undefined && body !== null) return withBody(exchange, body, next);
      const needsBody = bodySchema !== undefined && exchange.upgrade === null && !mayBeMissing(exchange);
      const refused = refusal(exchange, needsBody ? null : undefined);
      return refused instanceof Promise
        ? refused.then((later) => later ?? next(exchange))
        : (refused ?? next(exchange));
    };
  },
};

const MAX_VIOLATIONS = 50;
/** Steps for a request: enough for a plain schema, but not for choices within choices. */
const LEAST_WORK = 100_000;
const WORK_PER_BYTE = 20;
const MAX_WORK = 10_000_000;

function mostSteps({ query, headers }: Exchange, body: Buffer | null | undefined, withHeaders: boolean): number {
  let bytes = (body?.length ?? 0) + query.length;
  if (withHeaders) for (const text of headers) bytes += text.length;
  return Math.min(LEAST_WORK + bytes * WORK_PER_BYTE, MAX_WORK);
}

function partChecks(
  query: CompiledSchema | undefined,
  headers: CompiledSchema | undefined,
  bodySchema: CompiledSchema | undefined,
) {
  const parts: (readonly [part: "query" | "headers" | "body", check: PartCheck])[] = [];
  if (query !== undefined) parts.push(["query", (exchange, _body, run) => checkQuery(exchange.query, query, run)]);
  if (headers !== undefined)
    parts.push(["headers", (exchange, _body, run) => headers.check(headersObject(exchange, headers), run)]);
  if (bodySchema !== undefined)
    parts.push(["body", (exchange, body, run) => checkBody(exchange, body, bodySchema, run)]);
  return parts;
}

function violationsReply({ call }: Exchange, { violations }: Run): Reply {
  const count = violations.length;
  const detail =
    `The request has ${count >= MAX_VIOLATIONS ? `at least ${count}` : count} ` +
    `violation${count === 1 ? "" : "s"} of its schemas.`;
  return problem(call, "request_invalid", { detail, members: { violations } });
}

function checkBody({ headers }: Exchange, body: Buffer | null | undefined, schema: CompiledSchema, run: Run): Done {
  if (body === undefined) return undefined;
  if (body === null || body.length === 0) return run.add("", "is required");
  const types = headerValues(headers, "content-type");
  const isCalledJson = types.length === 1 && isJsonType(types[0]!);
  const isEncoded = headerValues(headers, "content-encoding").some((coding) => coding.toLowerCase() !== "identity");
  if (!isCalledJson || isEncoded) {
    run.part = "headers";
    if (!isCalledJson) run.add("/content-type", "expected application/json, or a type that ends with +json, in UTF-8");
    return isEncoded ? run.add("/content-encoding", "is not allowed: send the body unencoded") : undefined;
  }
  return andThen(resumed(readJson(body), run.work), (read) =>
    "problem" in read ? run.add(read.at, read.problem) : schema.check(read.value, run),
  );
}

/** Names and values are encoded as in HTML forms (URL Standard §5.1). */
function checkQuery(query: string, schema: CompiledSchema, run: Run): Done {
  const values = new Map<string, string[]>();
  for (const [written, text] of parametersOf(query)) {
    const name = formDecoded(written);
    const value = formDecoded(text);
    if (name === null || value === null) return run.add("", "is not percent-encoded in UTF-8");
    add(values, name, value);
  }
  return schema.check(typedObject(values, schema), run);
}

function add(values: Map<string, string[]>, name: string, value: string): void {
  const before = values.get(name);
  if (before === undefined) values.set(name, [value]);
  else before.push(value);
}

function headersObject({ headers, authority }: Exchange, schema: CompiledSchema): object {
  const values = new Map<string, string[]>();
  for (let i = 0; i < headers.length; i += 2) {
    // A header list has one character per byte.
    add(values, headers[i]!.toLowerCase(), Buffer.from(headers[i + 1]!, "latin1").toString("utf8"));
  }
  // HTTP/2 sends `:authority` instead of Host (RFC 9113 §8.3.1).
  if (authority !== "" && !values.has("host")) values.set("host", [authority]);
  return typedObject(values, schema);
}

function typedObject(values: ReadonlyMap<string, readonly string[]>, schema: CompiledSchema): object {
  return Object.fromEntries([...values].map(([name, texts]) => [name, typed(texts, schema.typesOf(name))]));
}

/** Reads texts as the number, boolean or list that the schema expects; other texts stay strings. */
function typed(texts: readonly string[], { types, itemTypes }: TextTypes): unknown {
  if (types?.includes("array")) return texts.map((text) => typedText(text, itemTypes));
  return texts.length === 1 ? typedText(texts[0]!, types) : texts;
}

function typedText(text: string, types: readonly string[] | null): unknown {
  if (types === null || types.includes("string")) return text;
  if ((types.includes("integer") || types.includes("number")) && NUMBER.test(text)) return Number(text);
  if (types.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  return text;
}

/** The notation of JSON. */
const NUMBER = /^-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?$/;

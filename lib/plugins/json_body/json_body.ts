/**
 * The plugin kind `json_body`: changes values in JSON bodies of requests and replies, and in the events of event
 * streams. All other bytes stay: numbers keep their digits, members their order.
 *
 * A body is read as a whole, an event stream event by event. What is compressed, what has duplicate members, and what
 * is no JSON is "other": it is refused or passes.
 */
import { Readable } from "node:stream";
import { Fault } from "../../base/errors.ts";
import { SharedCount } from "../../base/shared_counts.ts";
import { atOnce, createTimeSlices, inSlices, type NextTimeSlice } from "../../base/time_slices.ts";
import { integer, object, oneOf, optional, withDefault } from "../../config/whole_schema.ts";
import { BODILESS } from "../../http/body.ts";
import { DIGESTS, withWeakTag } from "../../http/changed_content.ts";
import { editedEvents } from "../../http/event_stream.ts";
import type { Exchange } from "../../http/exchange.ts";
import type { Handler } from "../../http/handler.ts";
import {
  hasHeader,
  headerValue,
  headerValues,
  isEventStream,
  nameSet,
  withHeader,
  withoutHeader,
  withoutHeaders,
  type HeaderList,
} from "../../http/headers.ts";
import { isJsonType } from "../../http/media_type.ts";
import { discard, problem, type Reply } from "../../http/reply.ts";
import { continued, wholeReply } from "../../http/whole_body.ts";
import { NOT_JSON, readJson } from "../../json_schema/read_json.ts";
import { sizeOfValues } from "../../json_schema/value_memory.ts";
import type { EditedNames } from "./edited_names.ts";
import { heldBodies, MAX_HELD, memoryFor, type HeldBodies } from "../held_bodies.ts";
import { compiledEdits, editsSchema, type BodyEdits } from "./body_edits.ts";
import { BeyondEnd, editedJson, type Edit } from "./json_edits.ts";
import type { Plugin, Tools } from "../plugin.ts";

const schema = object(
  {
    request: optional(editsSchema("Edits of JSON bodies of requests.")),
    response: optional(editsSchema("Edits of JSON bodies of replies, and of the data of each event of event streams.")),
    on_other: withDefault(
      oneOf(["refuse", "pass"], {
        describe: "What happens to bodies that are no JSON, are compressed, or are ambiguous.",
      }),
      "refuse",
    ),
    max_body_bytes: withDefault(
      integer({ min: 1, max: 67_108_864, describe: "Maximum length of a body, or of an event, in bytes." }),
      1_048_576,
    ),
  },
  {
    describe: "Edits JSON bodies.",
    refine({ request, response }, report) {
      if (request === undefined && response === undefined) report('needs "request" or "response"');
    },
  },
);

export const jsonBody: Plugin<typeof schema> = {
  name: "json_body",
  schema,
  code: { SharedCount },
  create({ request, response, onOther, maxBodyBytes }, { clock, count, log, scope }) {
    const ofRequests = compiledEdits(request);
    const ofReplies = compiledEdits(response);
    const bodies = heldBodies({ clock, count, maxBytes: maxBodyBytes, use: "edited", room: ROOM });
    const bounds: Bounds = { onOther, maxBodyBytes, bodies, nextSlice: createTimeSlices() };
    return (inner) => {
      const next = ofReplies === null ? inner : editingReplies(inner, ofReplies, bounds, { log, scope });
      return ofRequests === null ? next : editingRequests(next, ofRequests, bounds);
    };
  },
};

/** An array that is looked into takes up to 3.7 times the memory that its parsed value counts. */
const ROOM = 4;

interface Bounds {
  readonly onOther: "refuse" | "pass";
  readonly maxBodyBytes: number;
  readonly bodies: HeldBodies;
  readonly nextSlice: NextTimeSlice;
}

function editingRequests(next: Handler, edits: BodyEdits, { onOther, bodies, nextSlice }: Bounds): Handler {
  const refusal = ({ call }: Exchange, what: string) =>
    problem(call, "request_invalid", { detail: `The request body ${what}.` });
  return (exchange) => {
    const { body, headers, method } = exchange;
    if (exchange.upgrade !== null || (body === null && BODILESS.has(method))) return next(exchange);
    const whyOther = body === null ? "is missing" : whyNoJson(headers);
    if (body === null || whyOther !== null) return onOther === "pass" ? next(exchange) : refusal(exchange, whyOther!);
    return bodies.whole(exchange, body, async ({ pieces, withRoom }) => {
      const bytes = Buffer.concat(pieces);
      try {
        const edited = await withRoom(() =>
          editedBytes(bytes, nextSlice, { edits: edits.of(exchange), beyond: "throw", names: edits.names }),
        );
        if (typeof edited !== "string") return next(withContent(exchange, edited, !edited.equals(bytes)));
        return onOther === "pass" ? next(withContent(exchange, bytes, false)) : refusal(exchange, edited);
      } catch (error) {
        if (!(error instanceof BeyondEnd)) throw error;
        return refusal(exchange, `has a shorter array than ${error.pointer} asks for`);
      }
    });
  };
}

/** Why a body with these headers cannot be edited, as the end of a sentence; null: it can. */
function whyNoJson(headers: HeaderList, isReply = false): string | null {
  const types = headerValues(headers, "content-type");
  const isJson = types.length === 1 && (isJsonType(types[0]!) || (isReply && isEventStream(headers)));
  if (!isJson) return "is not of a JSON media type in UTF-8";
  if (headerValues(headers, "content-encoding").some((coding) => coding.toLowerCase() !== "identity"))
    return "has a Content-Encoding";
  return hasHeader(headers, "content-range") ? "is a part" : null;
}

interface HowToEdit {
  readonly edits: readonly Edit[];
  readonly beyond: "throw" | "skip";
  /** Of edits that nobody may get around by a member which only some readers take for an edited one. */
  readonly names?: EditedNames;
}

/** The edited bytes; a text, as the end of a sentence, says why there are none. */
async function editedBytes(bytes: Buffer, nextSlice: NextTimeSlice, how: HowToEdit): Promise<Buffer | string> {
  const whyNot = readingProblem(await inSlices(readJson(bytes), nextSlice), how.names);
  return whyNot ?? Buffer.from(editedJson(bytes.toString(), how.edits, how.beyond));
}

/** Not with the value, which would be kept in memory while its text is edited. */
function readingProblem(
  read: { readonly at: string; readonly problem: string } | { readonly value: unknown },
  names?: EditedNames,
) {
  if (!("problem" in read)) {
    const found = names?.lookalikeIn(read.value) ?? null;
    return found && `is ambiguous: ${found} differs from an edited name in case alone`;
  }
  return read.at === "" ? read.problem : `is ambiguous: ${read.at} ${read.problem}`;
}

/** The request with a body that has been read. */
function withContent(exchange: Exchange, bytes: Buffer, isChanged: boolean): Exchange {
  const headers = withoutHeader(exchange.headers, "expect");
  const body = streamOf(bytes);
  if (!isChanged) return exchange.with({ body, headers });
  const changed = withoutHeaders(headers, DIGEST_NAMES);
  const isSized = hasHeader(changed, "content-length");
  return exchange.with({
    body,
    headers: isSized ? withHeader(changed, "Content-Length", String(bytes.length)) : changed,
    trailers: () => withoutHeaders(exchange.trailers(), DIGEST_NAMES),
  });
}

const DIGEST_NAMES = nameSet(DIGESTS);

function editingReplies(next: Handler, edits: BodyEdits, bounds: Bounds, tools: Pick<Tools, "log" | "scope">): Handler {
  const editor = new ReplyEditor(edits, bounds, tools);
  return (exchange) => {
    if (exchange.upgrade !== null) return next(exchange);
    // A part of the content, or compressed content, cannot be edited.
    const reply = next(exchange.with({ headers: withoutHeaders(exchange.headers, OF_OTHER_BYTES) }));
    return reply instanceof Promise
      ? reply.then((later) => editor.edited(exchange, later))
      : editor.edited(exchange, reply);
  };
}

const OF_OTHER_BYTES = nameSet(["accept-encoding", "range", "if-range"]);
/** Headers of a reply that hold for the bytes of the upstream alone. */
const OF_BYTES = nameSet(["content-length", "accept-ranges", ...DIGESTS]);

class ReplyEditor {
  readonly #edits: BodyEdits;
  readonly #bounds: Bounds;
  readonly #tools: Pick<Tools, "log" | "scope">;

  constructor(edits: BodyEdits, bounds: Bounds, tools: Pick<Tools, "log" | "scope">) {
    this.#edits = edits;
    this.#bounds = bounds;
    this.#tools = tools;
  }

  /** The gateway's own errors stay as they are. */
  edited(exchange: Exchange, reply: Reply): Reply | Promise<Reply> {
    const { status, headers, body } = reply;
    if (exchange.call.notes.code !== null || reply.tunnel !== undefined) return reply;
    const whyOther = whyNoJson(headers, true);
    // A 304 has no type.
    if (status === 304) return { ...reply, headers: changedHeaders(headers) };
    const isOfHead = exchange.method === "HEAD" && !Buffer.isBuffer(body);
    // They describe what GET would bring.
    if (isOfHead && whyOther === null) return { ...reply, headers: changedHeaders(headers) };
    if (isOfHead || body === null) return reply;
    if (whyOther !== null) return this.#other(exchange, reply, whyOther);
    if (isEventStream(headers)) return this.#events(exchange, reply, Buffer.isBuffer(body) ? streamOf(body) : body);
    return this.#whole(exchange, reply, body);
  }

  #other(exchange: Exchange, reply: Reply, what: string): Reply {
    return this.#bounds.onOther === "pass" ? reply : this.#refused(exchange, reply, what);
  }

  #refused({ call }: Exchange, reply: Reply, what: string): Reply {
    discard(reply);
    return problem(call, "upstream_invalid", { why: `json_body: the body of the reply ${what}` });
  }

  #events(exchange: Exchange, reply: Reply, body: Readable): Reply {
    const edits = this.#edits.of(exchange);
    const events = editedEvents(body, {
      mostBytes: this.#bounds.maxBodyBytes,
      edit: (data) => {
        const read = atOnce(readJson(data));
        if (!("problem" in read)) {
          const text = data.toString();
          const edited = editedJson(text, edits, "skip");
          return edited === text ? null : edited;
        }
        // "[DONE]", with which streams of language models end, is no JSON for anybody.
        if (read.problem === NOT_JSON || this.#bounds.onOther === "pass") return null;
        throw new Fault("upstream_invalid", `json_body: the data of an event ${readingProblem(read)}`);
      },
      tooLong: () => {
        if (this.#edits.removes) throw new Fault("upstream_invalid", `json_body: an event ${this.#tooLong}`);
        this.#logLong("an event");
      },
    });
    return withBody(reply, events, changedHeaders(reply.headers));
  }

  async #whole(exchange: Exchange, reply: Reply, body: Buffer | Readable): Promise<Reply> {
    const { headers } = reply;
    const { maxBodyBytes, nextSlice } = this.#bounds;
    if (Number(headerValue(headers, "content-length") ?? 0) > maxBodyBytes) return this.#long(exchange, reply, body);
    const read = Buffer.isBuffer(body) ? [body] : await this.#read(exchange, body);
    if ("after" in read) return this.#long(exchange, reply, continued(read.after, body as Readable));
    const bytes = Buffer.concat(read);
    // A stream stays one, so that trailers can follow it.
    const again = (content: Buffer) => (Buffer.isBuffer(body) ? content : streamOf(content));
    if (bytes.length === 0) return { ...reply, body: again(bytes) };
    const memory = memoryFor(bytes.length);
    const room = sizeOfValues(bytes, bytes.length) * ROOM;
    if (bytes.length > maxBodyBytes || room > memory.most) return this.#long(exchange, reply, again(bytes));
    const edited = await memory.take(room, () =>
      editedBytes(bytes, nextSlice, { edits: this.#edits.of(exchange), beyond: "skip" }),
    );
    if (typeof edited === "string") return this.#other(exchange, { ...reply, body: again(bytes) }, edited);
    if (edited.equals(bytes)) return { ...reply, body: again(bytes), headers: withoutHeader(headers, "accept-ranges") };
    const changed = changedHeaders(headers);
    if (hasHeader(headers, "content-length")) changed.push("Content-Length", String(edited.length));
    return withBody(reply, again(edited), changed);
  }

  /** `after`: the pieces that have been read of a body that is too long, or longer than there is memory for. */
  async #read({ call }: Exchange, body: Readable): Promise<Buffer[] | { readonly after: readonly Buffer[] }> {
    const { maxBodyBytes, bodies } = this.#bounds;
    let received = 0;
    let isOver = false;
    call.onEnd(() => {
      isOver = true;
      bodies.held.give(received);
    });
    return wholeReply(body, ({ length }, after) => {
      if (isOver || received + length > maxBodyBytes || !bodies.held.take(MAX_HELD, length)) return { after };
      received += length;
      return null;
    });
  }

  /** Nothing that is to be removed passes. */
  #long(exchange: Exchange, reply: Reply, body: Reply["body"]): Reply {
    if (this.#edits.removes) return this.#refused(exchange, { ...reply, body }, this.#tooLong);
    this.#logLong("a reply");
    return { ...reply, body };
  }

  get #tooLong(): string {
    return `has more than ${this.#bounds.maxBodyBytes} bytes, or more than there is memory for`;
  }

  #logLong(what: "a reply" | "an event"): void {
    this.#tools.log.warn(`json_body: ${what} is too long to be edited, and passes unchanged`, {
      plugin: this.#tools.scope.path,
      max_body_bytes: this.#bounds.maxBodyBytes,
    });
  }
}

/** Without the length of the edited content, which may not be known. */
function changedHeaders(headers: HeaderList): string[] {
  return withoutHeaders(withWeakTag(headers), OF_BYTES);
}

function withBody(reply: Reply, body: Reply["body"], headers: HeaderList): Reply {
  const { trailers } = reply;
  const changed = { ...reply, body, headers };
  return trailers === undefined ? changed : { ...changed, trailers: () => withoutHeaders(trailers(), DIGEST_NAMES) };
}

function streamOf(bytes: Buffer): Readable {
  return Readable.from(bytes.length === 0 ? [] : [bytes], { objectMode: false });
}

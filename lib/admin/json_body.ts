/**
 * Reads the body of a request that has to be JSON, or reports why it cannot be read.
 */
import { Fault } from "../base/errors.ts";
import type { TaskQueue } from "../base/task_queue.ts";
import { headerValue } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { readInboundBody } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import { retryAfter } from "./replies.ts";

/**
 * The bytes, not parsed. `what` is for the message: "the request to explain". Rejects with a `Fault`, also for a type
 * other than application/json.
 */
export async function readJsonBody(inbound: Inbound, maxBytes: number, what: string): Promise<Buffer> {
  if (!JSON_TYPE.test(headerValue(inbound.headers, "content-type") ?? ""))
    throw new Fault("bad_request", `Send ${what} as application/json.`);
  try {
    return await readInboundBody(inbound, maxBytes);
  } catch (error) {
    throw error instanceof Fault
      ? new Fault("body_too_large", `The body may have at most ${maxBytes} bytes.`)
      : new Fault("bad_request", "The body ended before its announced end.");
  }
}

/** Of the text of a configuration. */
export const MAX_POSTED_BYTES = 16 * 1024 * 1024;

/**
 * Time and memory go by values, not by bytes: 16 MiB of "[]," are five million of them, and a large configuration has
 * one for some twenty bytes. Commas and opening brackets are counted before anything is parsed: together with one more
 * they are at least as many as the values (`[[]]` has no comma).
 */
const MAX_POSTED_MARKS = 1_500_000;
const COMMA = 0x2c;
const BRACKET = 0x5b;
const BRACE = 0x7b;

/** Rejects with a `Fault`. */
export async function readConfiguration(inbound: Inbound): Promise<Buffer> {
  const text = await readJsonBody(inbound, MAX_POSTED_BYTES, "the configuration");
  let commas = 0;
  let openings = 0;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i];
    if (byte === COMMA) commas++;
    else if (byte === BRACKET || byte === BRACE) openings++;
  }
  if (Math.max(commas, openings) <= MAX_POSTED_MARKS) return text;
  const most = `at most ${MAX_POSTED_MARKS} commas, and as many opening brackets and braces`;
  const why = `The text of a configuration may have ${most}; this one has ${commas} and ${openings}.`;
  throw new Fault("body_too_large", why);
}

/**
 * Reads the text of a configuration when there is a place for it, and keeps the place until it is answered: those that
 * arrive slowly fill the memory, too.
 */
export async function answerPosted(
  inbound: Inbound,
  places: TaskQueue,
  answer: (text: Buffer) => Promise<Reply>,
): Promise<Reply> {
  const { call } = inbound;
  if (!places.room)
    return problem(call, "overloaded", {
      detail: "Too many configurations are being received, or waiting.",
      headers: retryAfter(POSTED_RETRY_MS),
    });
  return places.take(async () => answer(await readConfiguration(inbound)));
}

const POSTED_RETRY_MS = 5000;

const JSON_TYPE = /^application\/json[ \t]*(?:;|$)/i;

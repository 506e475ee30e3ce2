/**
 * Reads the body of a request to the admin interface as JSON, up to a bound, and a question to explain from it, or says what is wrong.
 * What is answered to either is `endpoints.ts`.
 */
import type { IncomingMessage } from "node:http";
import type { Clock } from "../base/clock.ts";
import type { ErrorCode } from "../base/errors.ts";
import type { Question } from "../gateway/explain.ts";

/** Of every body, whether it is read or thrown away. */
export const MOST_BODY = 64 * 1024;
/** From the head of the request to the end of its body. */
const BODY_MS = 10_000;

export interface Unreadable {
  readonly code: ErrorCode & ("bad_request" | "request_invalid" | "body_too_large" | "request_timeout");
  readonly detail: string;
}

/** To be called in the turn in which the request came: somebody else reads its bytes as well, and does not wait. */
export async function readQuestion(request: IncomingMessage, clock: Clock): Promise<Question | Unreadable> {
  const type = request.headers["content-type"];
  if (type === undefined || !JSON_TYPE.test(type)) return malformed("Send the question as application/json.");
  const body = await readBody(request, clock);
  if (!Buffer.isBuffer(body)) return body;
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (error) {
    return malformed(error instanceof SyntaxError ? `The body is not JSON: ${error.message}.` : "The body is not UTF-8.");
  }
  return questionOf(value);
}

const JSON_TYPE = /^application\/json[ \t]*(?:;|$)/i;

function readBody(request: IncomingMessage, clock: Clock): Promise<Buffer | Unreadable> {
  if (Number(request.headers["content-length"] ?? 0) > MOST_BODY) return Promise.resolve(TOO_LARGE);
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const timer = clock.after(BODY_MS, () => settle({ code: "request_timeout", detail: "The question did not arrive in time." }));
    const settle = (outcome: Buffer | Unreadable) => {
      timer.cancel();
      request.off("data", take).off("end", end).off("aborted", broken).off("close", broken);
      resolve(outcome);
    };
    const take = (chunk: Buffer) => {
      length += chunk.length;
      if (length > MOST_BODY) settle(TOO_LARGE);
      else chunks.push(chunk);
    };
    const end = () => settle(Buffer.concat(chunks));
    const broken = () => settle(malformed("The body ended before its announced end."));
    request.on("data", take).on("end", end).on("aborted", broken).on("close", broken).on("error", ignore);
  });
}

function ignore(): void {}

/** Every field that is wrong, in one sentence each. */
function questionOf(value: unknown): Question | Unreadable {
  if (!isObject(value)) return invalid(['The question is an object: {"method":"GET","url":"/shop/items","headers":{}}.']);
  const { method, url, headers = {}, ...others } = value;
  const wrong: string[] = [];
  if (typeof method !== "string" || method === "") wrong.push('"method" is missing, or not a text like "GET".');
  if (typeof url !== "string" || url === "") wrong.push('"url" is missing, or not a text like "/shop/items?x=1".');
  if (!isObject(headers) || !Object.values(headers).every((each) => typeof each === "string")) {
    wrong.push('"headers" is not an object of texts like {"Host":"shop.example.com"}.');
  }
  for (const name of Object.keys(others).slice(0, MOST_NAMED)) {
    wrong.push(`${JSON.stringify(name)} is no field of a question: there are "method", "url" and "headers".`);
  }
  if (wrong.length > 0) return invalid(wrong);
  return { method: method as string, url: url as string, headers: headers as Record<string, string> };
}

const MOST_NAMED = 3;

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const TOO_LARGE: Unreadable = { code: "body_too_large", detail: `A question may have ${MOST_BODY} bytes.` };

function malformed(detail: string): Unreadable {
  return { code: "bad_request", detail };
}

function invalid(details: readonly string[]): Unreadable {
  return { code: "request_invalid", detail: details.join(" ") };
}

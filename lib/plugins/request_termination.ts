/**
 * The plugin kind `request_termination`: answers every request with the same reply, without an upstream.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { integer, object, optional, record, string, withDefault } from "../config/whole_schema.ts";
import { isHopByHop } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { reportTwice } from "./header_edits.ts";
import type { Plugin } from "./plugin.ts";

/** Blanks around a value are malformed in HTTP/2 (RFC 9113 §8.2.1). */
const VALUE = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/;

const schema = object(
  {
    status: withDefault(integer({ min: 200, max: 599, describe: "Status of the answer." }), 503),
    body: optional(string({ describe: "Body of the answer; default: none." })),
    content_type: withDefault(
      string({ pattern: VALUE, min: 1, hint: "a media type", describe: "Content-Type of the body." }),
      "text/plain; charset=utf-8",
    ),
    headers: withDefault(
      record(string({ pattern: VALUE, hint: "a header value: printable ASCII without blanks around it" }), {
        describe: "Further headers of the answer.",
      }),
      {},
    ),
  },
  {
    describe: "Answers requests itself, without an upstream.",
    refine({ status, body, headers }, report) {
      // RFC 9110 §15.3.5, §15.3.6, §15.4.5.
      if ([204, 205, 304].includes(status) && body !== undefined)
        report(`an answer with status ${status} has no body`, "body");
      for (const name of Object.keys(headers)) {
        const lower = name.toLowerCase();
        if (!TOKEN.test(name)) report("is not the name of a header", "headers", name);
        else if (lower === "content-type") report('is set by "content_type"', "headers", name);
        else if (isHopByHop(lower) || OWN.includes(lower)) report("is set by the gateway", "headers", name);
      }
      reportTwice(headers, "headers", report);
    },
  },
);

const OWN = ["content-length", "trailer", "date", "x-request-id"];

export const requestTermination: Plugin<typeof schema> = {
  name: "request_termination",
  schema,
  guards: true,
  create({ status, body, contentType, headers }) {
    const list = Object.entries(headers).flat();
    if (body !== undefined) list.push("Content-Type", contentType);
    // Replies are never changed in place, so one serves all requests.
    const reply: Reply = {
      status,
      headers: list,
      body: status === 204 || status === 304 ? null : Buffer.from(body ?? ""),
    };
    return () => () => reply;
  },
};

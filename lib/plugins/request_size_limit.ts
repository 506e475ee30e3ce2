/**
 * The plugin kind `request_size_limit`: refuses request bodies that are too large, with 413 `body_too_large` (RFC 9110
 * §15.5.14).
 *
 * A body whose Content-Length is too large is refused before any of it is read, and before `Expect: 100-continue` is
 * answered. A body of unknown length streams on until it passes the limit; then the request to the upstream is
 * cancelled.
 */
import { integer, object } from "../config/schema.ts";
import { limitedBody } from "../http/limited_body.ts";
import { headerValue } from "../http/headers.ts";
import { problem } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const schema = object(
  {
    max_payload_size: integer({ min: 1, describe: "Maximum size of a request body in bytes, without chunk framing." }),
  },
  { describe: "Limits the size of request bodies." },
);

export const requestSizeLimit: Plugin<typeof schema> = {
  name: "request_size_limit",
  schema,
  create({ maxPayloadSize }) {
    const refused = { detail: `The request body may have at most ${maxPayloadSize} bytes here.` };
    return (next) => (exchange) => {
      const { body, headers } = exchange;
      if (body === null) return next(exchange);
      const length = headerValue(headers, "content-length");
      if (length === undefined) return next(exchange.with({ body: limitedBody(body, maxPayloadSize) }));
      return Number(length) > maxPayloadSize ? problem(exchange.call, "body_too_large", refused) : next(exchange);
    };
  },
};

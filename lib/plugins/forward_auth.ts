/**
 * The plugin kind `forward_auth`: sends each request's head to another server, and admits the request if the answer is
 * 2xx.
 *
 * The server gets a GET without a body: X-Forwarded-Method, -Proto, -Host, -Uri and -For describe the client's request.
 * Any other answer becomes the reply: a redirect to a login (RFC 9110 §15.4), a challenge (§11.6.1) or anything else.
 */
import { CLIENT_TLS } from "../config/tls_fields.ts";
import { array, object, oneOf, optional, withDefault } from "../config/schema.ts";
import { HttpClient, type ClientAnswer, type ClientFailure } from "../client/client.ts";
import type { Exchange } from "../http/exchange.ts";
import {
  endToEnd,
  headerValues,
  nameSet,
  withHeader,
  withoutHeaders,
  type HeaderList,
  type NameMap,
} from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { checkTls, clientTls, headerName, headerReplacer, httpUrl, originHeaders, timeoutField } from "./endpoint.ts";
import type { Plugin } from "./plugin.ts";
import { sparseCount } from "./sparse_count.ts";

const DEFAULT_HEADERS = ["Authorization", "Cookie"];

const schema = object(
  {
    url: httpUrl("Whom to ask."),
    request_headers: withDefault(
      array(headerName("A request header.", "sent"), { describe: "Request headers that are sent to the server." }),
      DEFAULT_HEADERS,
    ),
    response_headers: withDefault(
      array(headerName("A header the upstream gets."), {
        describe:
          "Response headers of the server that are passed to the upstream; client headers of these names are removed.",
      }),
      [],
    ),
    timeout_ms: timeoutField("the whole answer", 1_000),
    tls: optional(CLIENT_TLS),
    on_error: withDefault(
      oneOf(["deny", "allow"], { describe: "What happens to a request if the server cannot be asked." }),
      "deny",
    ),
  },
  {
    describe: "Asks another server whether a request may pass.",
    refine: ({ url, tls }, report) => checkTls(url, tls, report),
  },
);

export const forwardAuth: Plugin<typeof schema> = {
  name: "forward_auth",
  schema,
  guards: true,
  ownHeaders: ({ requestHeaders, responseHeaders }) => [...requestHeaders, ...responseHeaders],
  dials: { why: "forward_auth", urls: ({ url }) => [url] },
  code: { HttpClient },
  create(config, tools) {
    const { timeoutMs } = config;
    const url = new URL(config.url);
    const tls = clientTls(config.tls);
    const client = tools.keep("client", { tls }, () => tools.client({ tls }));
    const sent = nameSet(config.requestHeaders);
    const copied = nameSet(config.responseHeaders);
    const replaced = headerReplacer(config.responseHeaders);
    const logPassed = sparseCount(tools.clock, (requests, error: string) => {
      const fields = { plugin: tools.scope.path, host: url.host, requests, error };
      tools.log.warn("forward_auth admits requests because its server cannot be asked", fields);
    });
    return (next) => async (given) => {
      const { call } = given;
      const exchange = withOneCookie(given);
      const shown = only(exchange.headers, sent);
      const twice = repeated(shown);
      if (twice !== undefined)
        return problem(call, "bad_request", {
          detail: `There is more than one header ${twice}.`,
          why: "forward_auth: repeated header",
        });
      call.personal ||= shown.length > 0;
      let answer: ClientAnswer;
      try {
        const { method, path, query } = exchange;
        const headers = [
          ...shown,
          "X-Forwarded-Method",
          method,
          "X-Forwarded-Uri",
          path + query,
          ...originHeaders(exchange),
        ];
        answer = await client.ask({ url, headers, timeoutMs, maxBytes: MAX_BYTES, signal: call.signal });
      } catch (error) {
        const { message, status = null, isOfServer } = error as ClientFailure;
        // An incomplete or too large refusal is still a refusal. A request whose client disconnected is not forwarded.
        if (config.onError === "deny" || !isOfServer || (status !== null && status >= 300) || call.aborted) {
          const detail = "Whether the request is allowed could not be checked. Try again shortly.";
          return problem(call, "auth_unavailable", {
            detail,
            why: `forward_auth: ${message}`,
            headers: ["Retry-After", "1"],
          });
        }
        logPassed(message);
        return next(exchange.with(replaced(exchange, [])));
      }
      if (answer.status >= 300) return replyOf(answer);
      const added = only(answer.headers, copied);
      call.personal ||= added.length > 0;
      return next(exchange.with(replaced(exchange, added)));
    };
  },
};

const MAX_BYTES = 1024 * 1024;

/** Only the headers of these names. */
function only(list: HeaderList, names: NameMap<string>): string[] {
  const found: string[] = [];
  for (let i = 0; i < list.length; i += 2) if (names.has(list[i]!)) found.push(list[i]!, list[i + 1]!);
  return found;
}

/** With several lines the server could judge one and the upstream read another. */
function repeated(list: HeaderList): string | undefined {
  return list.find((name, i) => i % 2 === 0 && headerValues(list, name.toLowerCase()).length > 1);
}

/**
 * Several lines of Cookie are read as one by some servers, and only the first or last by others (RFC 6265 §5.4 allows
 * one).
 */
function withOneCookie(exchange: Exchange): Exchange {
  const lines = headerValues(exchange.headers, "cookie");
  return lines.length < 2
    ? exchange
    : exchange.with({ headers: withHeader(exchange.headers, "Cookie", lines.join("; ")) });
}

const FRAMING = nameSet(["content-length", "trailer"]);

/** Without Content-Length: the server that sends the reply adds the length of its body. */
function replyOf({ status, headers, body }: ClientAnswer): Reply {
  return { status, headers: withoutHeaders(endToEnd(headers), FRAMING), body: status === 304 ? null : body };
}

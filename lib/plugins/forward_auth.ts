/**
 * The plugin kind `forward_auth`: asks another server about each request, and lets it pass when that says 2xx. Connecting to it is
 * `http/client.ts`.
 *
 * It gets a GET without a body: what the client asked for stands in X-Forwarded-Method, -Proto, -Host, -Uri and -For. Its answer, other
 * than a 2xx, is the reply: a redirect to a login (RFC 9110 §15.4), a challenge (§11.6.1) or whatever it sees fit.
 */
import { CLIENT_TLS } from "../config/model.ts";
import { array, integer, object, oneOf, optional, withDefault } from "../config/schema.ts";
import { HttpClient, type ClientAnswer, type ClientFailure } from "../http/client.ts";
import type { Exchange } from "../http/exchange.ts";
import { endToEnd, headerValue, headerValues, withoutHeader, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { checkTls, clientTls, headerName, hostOf, httpUrl, vouchingFor } from "./outside.ts";
import { definePlugin, type Tools } from "./plugin.ts";

const schema = object(
  {
    url: httpUrl("Whom to ask."),
    request_headers: withDefault(array(headerName("A header it gets."), { describe: "Headers of the request that it gets." }), [
      "Authorization",
      "Cookie",
    ]),
    response_headers: withDefault(
      array(headerName("A header the upstream gets."), {
        describe: "Headers of its answer that the upstream gets; the client's own of these names are dropped.",
      }),
      [],
    ),
    timeout_ms: withDefault(integer({ min: 1, max: 600_000, describe: "Longest wait for its whole answer." }), 1_000),
    tls: optional(CLIENT_TLS),
    on_error: withDefault(oneOf(["deny", "allow"], { describe: "What becomes of requests about which it cannot be asked." }), "deny"),
  },
  {
    describe: "Asks another server whether a request may pass.",
    refine: ({ url, tls }, complain) => checkTls(url, tls, complain),
  },
);

export const forwardAuth = definePlugin({
  name: "forward_auth",
  schema,
  guards: true,
  create(config, tools) {
    const { timeoutMs } = config;
    const url = new URL(config.url);
    const tls = clientTls(config.tls);
    const client = tools.keep("client", { tls }, () => new HttpClient({ clock: tools.clock, tls }));
    const asked = lowerCase(config.requestHeaders);
    const copied = lowerCase(config.responseHeaders);
    const vouched = vouchingFor(copied);
    const onError = config.onError === "deny" ? denying : allowing(tools, hostOf(config.url));
    return (next) => async (exchange) => {
      const { call } = exchange;
      call.personal ||= only(exchange.headers, asked).length > 0;
      let answer: ClientAnswer;
      try {
        answer = await client.ask({ url, headers: question(exchange, asked), timeoutMs, maxBytes: MAX_BYTES, signal: call.signal });
      } catch (error) {
        const { message, status = null } = error as ClientFailure;
        // Whoever says no in an answer that breaks off, or is too large, has been asked.
        const refusal = (status !== null && status >= 300 ? denying : onError)(exchange, message);
        return refusal ?? next(exchange.with(vouched(exchange, [])));
      }
      if (answer.status >= 300) return replyOf(answer);
      const told = only(answer.headers, copied);
      call.personal ||= told.length > 0;
      return next(exchange.with(vouched(exchange, told)));
    };
  },
});

const MAX_BYTES = 1024 * 1024;

function lowerCase(names: readonly string[]): readonly string[] {
  return [...new Set(names.map((name) => name.toLowerCase()))];
}

/** The headers of what it is asked. A trusted proxy's words on where the request comes from are passed on, as upstreams get them. */
function question(exchange: Exchange, asked: readonly string[]): HeaderList {
  const { call, headers, method, scheme, path, query } = exchange;
  let chain = call.remoteAddress;
  let host = exchange.authority;
  if (call.trustedRemote) {
    chain = [...headerValues(headers, "x-forwarded-for"), chain].join(", ");
    host = headerValue(headers, "x-forwarded-host") ?? host;
  }
  return [
    ...only(headers, asked),
    ...["X-Forwarded-Method", method, "X-Forwarded-Proto", scheme, "X-Forwarded-Host", host],
    ...["X-Forwarded-Uri", path + query, "X-Forwarded-For", chain, "X-Request-Id", call.id],
  ];
}

/** The headers of these names, as they stand. */
function only(list: HeaderList, lowerNames: readonly string[]): string[] {
  const found: string[] = [];
  for (let i = 0; i < list.length; i += 2) if (lowerNames.includes(list[i]!.toLowerCase())) found.push(list[i]!, list[i + 1]!);
  return found;
}

/** Its length is that of the body at hand, which the server says. */
function replyOf({ status, headers, body }: ClientAnswer): Reply {
  return { status, headers: withoutHeader(withoutHeader(endToEnd(headers), "content-length"), "trailer"), body: status === 304 ? null : body };
}

/** The reply, or null when the request may pass. */
type OnError = (exchange: Exchange, why: string) => Reply | null;

const denying: OnError = ({ call }, why) => problem(call, "auth_unavailable", { why: `forward_auth: ${why}`, headers: ["Retry-After", "1"] });

/** Logs at most one line a second, with how many have passed unasked since the last. */
function allowing({ clock, log, scope }: Tools, host: string): OnError {
  let passed = 0;
  let quietUntil = -Infinity;
  return ({ call }, why) => {
    // Nobody is left to whom it could matter, and the upstream need not hear of it.
    if (call.aborted) return problem(call, "auth_unavailable");
    passed++;
    const now = clock.now();
    if (now >= quietUntil) {
      log.warn("forward_auth lets requests pass about which it cannot ask", { plugin: scope.key, host, requests: passed, error: why });
      quietUntil = now + 1_000;
      passed = 0;
    }
    return null;
  };
}

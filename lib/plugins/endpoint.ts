/**
 * Shared by plugins that call another HTTP server: schemas of its URL and TLS settings, and replacement of headers that
 * upstreams trust.
 */
import { gunzipSync } from "node:zlib";
import { messageOf } from "../base/errors.ts";
import { TOKEN } from "../base/http_grammar.ts";
import { droppedProblem } from "../config/dropped_names.ts";
import type { CLIENT_TLS } from "../config/tls_fields.ts";
import { maskLiterals } from "../config/references.ts";
import { INVALID, integer, report, string, withDefault, type Infer, type Schema } from "../config/schema.ts";
import type { ClientAnswer, ClientTls } from "../client/client.ts";
import type { Exchange } from "../http/exchange.ts";
import { dashed, headerValue, headerValues, isHopByHop, nameSet, type HeaderList } from "../http/headers.ts";

/**
 * The text of an http:// or https:// URL, which may contain references. From `secretFrom` on it is masked when shown:
 * services expect keys in the query, some in the path.
 */
export function httpUrl(describe: string, secretFrom: "path" | "query" = "query"): Schema<string, string> {
  const open = secretFrom === "path" ? /^(?:https?:\/\/[^/?#]*\/?)?/i : /^[^?#]*\??/;
  const mask = (written: string) => {
    const before = open.exec(written)![0];
    return before + maskLiterals(written.slice(before.length));
  };
  const isHttp = (given: string) => URL.canParse(given) && /^https?:$/.test(new URL(given).protocol);
  const text = string({
    hint: "an http:// or https:// URL",
    describe,
    references: "address",
    secret: mask,
    check: (given) => (isHttp(given) ? undefined : ""),
  });
  return {
    ...text,
    check(node, at, context) {
      const given = text.check(node, at, context);
      if (given === INVALID) return INVALID;
      const { username, password } = new URL(given);
      // Reported without the text, which contains a password.
      return username === "" && password === ""
        ? given
        : report(context, at, node, "is a URL with a user name or password: leave them out");
    },
  };
}

/**
 * The body of an answer as text, at most `maxBytes` of it; decoded, where the server has used gzip although it was not
 * asked to. Throws for a body that is not what it says.
 */
export function answerText({ headers, body }: ClientAnswer, maxBytes: number): string {
  const coding = headerValue(headers, "content-encoding")?.toLowerCase() ?? "identity";
  if (coding === "identity" || body.length === 0) return body.toString();
  if (coding !== "gzip" && coding !== "x-gzip") throw new Error("its answer has a coding that was not asked for");
  try {
    return gunzipSync(body, { maxOutputLength: maxBytes }).toString();
  } catch (error) {
    throw new Error(`its answer in gzip cannot be read: ${messageOf(error)}`);
  }
}

/** The field `timeout_ms`. `ofWhat`: "the answer to a batch". */
export function timeoutField(ofWhat: string, usual: number) {
  const describe = `Time limit for ${ofWhat}, in milliseconds.`;
  return withDefault(integer({ min: 1, max: 600_000, describe }), usual);
}

/** Host and port: the part of a URL that may be logged. */
export function serverOf(url: string): string {
  return new URL(url).host;
}

type TlsConfig = Infer<typeof CLIENT_TLS>;

/** Reports `tls` beside a URL that does not use it. */
export function checkTls(
  url: string,
  tls: TlsConfig | undefined,
  report: (message: string, field: string) => void,
): void {
  if (tls === undefined || url.startsWith("https:")) return;
  report(`applies to https:// URLs; this one starts with ${new URL(url).protocol}//`, "tls");
}

export function clientTls(config: TlsConfig | undefined): ClientTls | undefined {
  return (
    config && {
      ca: config.ca?.content,
      cert: config.cert?.content,
      key: config.key?.content,
      servername: config.servername,
    }
  );
}

/**
 * Whose request it is, for a server that trusts the gateway. X-Forwarded-For and -Host of a trusted proxy are passed
 * on, as upstreams get them.
 */
export function originHeaders({ call, headers, scheme, authority }: Exchange): HeaderList {
  let chain = call.remoteAddress;
  let host = authority;
  if (call.trustedRemote) {
    chain = [...headerValues(headers, "x-forwarded-for"), chain].join(", ");
    host = headerValue(headers, "x-forwarded-host") ?? host;
  }
  return ["X-Forwarded-Proto", scheme, "X-Forwarded-Host", host, "X-Forwarded-For", chain, "X-Request-Id", call.id];
}

/** The name of a header that a plugin may set or copy. "sent": by clients. */
export function headerName(describe: string, use: "set" | "sent" = "set"): Schema<string, string> {
  return string({
    references: "none",
    pattern: TOKEN,
    max: 200,
    hint: "the name of a header",
    describe,
    check(text, context) {
      if (isHopByHop(text) || OWN.test(text)) return "the gateway sets this header itself";
      return use === "sent" ? droppedProblem(text, context) : undefined;
    },
  });
}

const OWN =
  /^(host|content-length|expect|trailer|via|forwarded|x-forwarded-[a-z]+|x-request-id|sec-websocket-[a-z]+)$/i;

/**
 * Returns a function that removes the client's own headers of these names and adds others, so that upstreams can trust
 * the names. They are also removed when written with "_", which many upstreams read as "-".
 */
export function headerReplacer(
  names: readonly string[],
): (given: Pick<Exchange, "headers">, added: HeaderList) => Pick<Exchange, "headers"> {
  if (names.length === 0) return ({ headers }) => ({ headers });
  const own = nameSet(names.map(dashed));
  return ({ headers }, added) => {
    const list: string[] = [];
    for (let i = 0; i < headers.length; i += 2) {
      if (!own.has(headers[i]!.replaceAll("_", "-"))) list.push(headers[i]!, headers[i + 1]!);
    }
    list.push(...added);
    return { headers: list };
  };
}

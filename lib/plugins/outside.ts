/**
 * What the kinds that ask others, or hand on what others say, have in common: the URLs they are given, and headers that upstreams
 * shall be able to believe.
 */
import type { CLIENT_TLS } from "../config/model.ts";
import { maskLiterals } from "../config/references.ts";
import { INVALID, report, string, type Infer, type Schema } from "../config/schema.ts";
import type { ClientTls } from "../http/client.ts";
import type { Exchange } from "../http/exchange.ts";
import { isHopByHop, type HeaderList } from "../http/headers.ts";

/**
 * A string, so that it may hold references; `new URL` takes what it lets through. `secretFrom` says where that may begin which only the
 * other end should see, as keys do that services expect in the path or the query.
 */
export function httpUrl(describe: string, secretFrom: "path" | "query" = "query"): Schema<string, string> {
  const open = secretFrom === "path" ? BEFORE_PATH : BEFORE_QUERY;
  const mask = (written: string) => {
    const before = open.exec(written)![0];
    return before + maskLiterals(written.slice(before.length));
  };
  const text = string({ hint: "an http:// or https:// URL", describe, secret: mask, check: (given) => (isHttp(given) ? undefined : "") });
  return {
    ...text,
    check(node, at, context) {
      const given = text.check(node, at, context);
      if (given === INVALID) return INVALID;
      const { username, password } = new URL(given);
      // Said without the text, which holds a password.
      return username === "" && password === "" ? given : report(context, at, node, "is a URL with a user name or password: leave them out");
    },
  };
}

const BEFORE_PATH = /^(?:https?:\/\/[^/?#]*\/?)?/i;
const BEFORE_QUERY = /^[^?#]*\??/;

function isHttp(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

/** Host and port: what may be said of a URL in logs. */
export function hostOf(url: string): string {
  return new URL(url).host;
}

type TlsConfig = Infer<typeof CLIENT_TLS>;

/** Reports `tls` beside a URL that needs none. */
export function checkTls(url: string, tls: TlsConfig | undefined, complain: (message: string, field: string) => void): void {
  if (tls !== undefined && !url.startsWith("https:")) complain(`is for https:// URLs; this one begins with ${new URL(url).protocol}//`, "tls");
}

export function clientTls(config: TlsConfig | undefined): ClientTls | undefined {
  return config && { ca: config.ca?.content, cert: config.cert?.content, key: config.key?.content, servername: config.servername };
}

/** The name of a header that a plugin may set or copy. */
export function headerName(describe: string): Schema<string, string> {
  return string({
    pattern: /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/,
    max: 200,
    hint: "the name of a header",
    describe,
    check: (text) => (isHopByHop(text) || OWN.test(text) ? "the gateway itself decides what this header says" : undefined),
  });
}

const OWN = /^(host|content-length|expect|trailer|via|forwarded|x-forwarded-[a-z]+|x-request-id|sec-websocket-[a-z]+)$/i;

/**
 * Makes of what a client says what the upstream gets, with `added` at the end: the names in question count only where the gateway has
 * set them. What a client says under them goes, also when written with "_", which many upstreams read as "-", and in trailers, which
 * some take for headers.
 */
export function vouchingFor(names: readonly string[]): (exchange: Exchange, added: HeaderList) => Pick<Exchange, "headers" | "trailers"> {
  if (names.length === 0) return ({ headers, trailers }) => ({ headers, trailers });
  const own = new Set(names.map(dashed));
  const lengths = new Set([...own].map((name) => name.length));
  const isOwn = (name: string) => lengths.has(name.length) && own.has(dashed(name));
  const without = (list: HeaderList) => {
    const kept: string[] = [];
    for (let i = 0; i < list.length; i += 2) {
      const name = list[i]!;
      if (!isOwn(name)) kept.push(name, list[i + 1]!);
    }
    return kept;
  };
  return ({ headers, trailers, body }, added) => {
    const list = without(headers);
    list.push(...added);
    return { headers: list, trailers: body === null ? trailers : () => without(trailers()) };
  };
}

function dashed(name: string): string {
  return name.toLowerCase().replaceAll("_", "-");
}

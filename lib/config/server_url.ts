/**
 * URLs of servers with a user and a password: `scheme://user:password@host:port`, which no message repeats.
 */
import { hostProblem } from "./fields.ts";
import { maskLiterals } from "./references.ts";
import * as s from "./whole_schema.ts";

/** The parts of such a URL. */
export interface ServerUrl {
  /** Whether it has the second scheme, that of TLS. */
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
  /** Null: there is none. */
  readonly user: string | null;
  readonly password: string | null;
}

export interface ServerUrlOptions<T extends ServerUrl> {
  readonly schemes: readonly [plain: string, secure: string];
  /** Of each scheme. */
  readonly ports: readonly [number, number];
  readonly describe: string;
  /** What stands for a password in messages: "redis://:password@host for the default user". */
  readonly passwordOnly?: string;
  /** Reads the path behind the host; a text: why it is refused. */
  readonly complete: (url: ServerUrl, path: string) => T | string;
}

export function serverUrl<T extends ServerUrl>(options: ServerUrlOptions<T>): s.Schema<T, string> {
  const [plain, secure] = options.schemes;
  const start = new RegExp(`^(?:${plain}|${secure})://`, "i");
  const text = s.string({
    hint: `a ${plain}:// or ${secure}:// URL`,
    describe: options.describe,
    secret: (written) => masked(written, start.exec(written)?.[0] ?? ""),
    references: "address",
  });
  return {
    ...text,
    check(node, at, context) {
      const written = text.check(node, at, context);
      if (written === s.INVALID) return s.INVALID;
      const url = start.test(written)
        ? parsed(written, options)
        : `expected a URL that starts with ${plain}:// or ${secure}://`;
      // A random text in place of a value, see `Placeholders`.
      if (typeof url === "string" && context.sources.placeholders?.isAt(at)) return s.INVALID;
      return typeof url === "string" ? s.report(context, at, node, url) : url;
    },
  };
}

/** The parts of a URL, or why it is refused. */
function parsed<T extends ServerUrl>(
  text: string,
  { schemes: [plain, secure], ports, passwordOnly, complete }: ServerUrlOptions<T>,
): T | string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null)
    return (
      "is not a URL: write special characters of the password percent-encoded (%40 for @, " +
      "%2F for /), and a port 1–65535"
    );
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  if (host === "" || hostProblem(host) !== undefined)
    return "has no valid host: write a host name or an IP address behind ://";
  if (url.search !== "" || url.hash !== "")
    return "has a query or a fragment: write special characters of the password percent-encoded (%3F for ?, %23 for #)";
  if (url.port === "0") return "has port 0: write a port 1–65535";
  const [user, password] = [decoded(url.username), decoded(url.password)];
  if (user === undefined || password === undefined)
    return "has a % that starts no percent-encoded character: write %25 for %";
  if (user !== "" && password === "")
    return `has a user and no password: write ${plain}://user:password@host${passwordOnly ?? ""}`;
  const isSecure = url.protocol === `${secure}:`;
  const parts: ServerUrl = {
    secure: isSecure,
    host: host.toLowerCase(),
    // Node leaves out the port that http and https have by default.
    port: url.port === "" ? ports[isSecure ? 1 : 0] : Number(url.port),
    user: user === "" ? null : user,
    password: password === "" ? null : password,
  };
  return complete(parts, url.pathname);
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** The URL as written, references included, with user and password masked: `redis://********@host:6379/0`. */
function masked(written: string, scheme: string): string {
  const rest = written.slice(scheme.length);
  const end = rest.lastIndexOf("@");
  if (end === -1) return scheme === "" ? maskLiterals(rest) : written;
  return scheme + maskLiterals(rest.slice(0, end)) + rest.slice(end);
}

/**
 * Asks the admin interface of a running gateway: logs in, sends the requests of a command, logs out. Every failure
 * becomes one sentence.
 */
import { systemClock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import { destinationOf } from "../base/url_destination.ts";
import { HttpClient, type ClientFailure } from "../client/client.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { Failure } from "./failure.ts";

export interface AdminTarget {
  /** Scheme, host and port. */
  readonly url: string;
  readonly user: string;
  readonly password: string;
  /** PEM; null: Node's own list of authorities. */
  readonly ca: Buffer | null;
  /** For one answer, in milliseconds. Default 30 000: a large configuration takes long to check. */
  readonly timeoutMs?: number;
  /** Limit for one answer. Default 16 MiB. */
  readonly maxBytes?: number;
}

export interface AdminAnswer {
  readonly status: number;
  readonly headers: HeaderList;
  /** Empty when the body was not a JSON object. */
  readonly json: Readonly<Record<string, unknown>>;
}

/** `json` is the body, if there is one. */
export type Ask = (method: string, path: string, json?: string | Buffer) => Promise<AdminAnswer>;

/** Throws a `Failure` with exit code 1 when the gateway cannot be asked, or refuses the user. */
export async function asAdmin<T>(target: AdminTarget, act: (ask: Ask) => Promise<T>): Promise<T> {
  const { url, user, password, ca, timeoutMs = 30_000, maxBytes = 16 * 1024 * 1024 } = target;
  const client = new HttpClient({
    clock: systemClock,
    egress: new Egress([destinationOf(new URL(url), "admin")]),
    why: "admin",
    tls: ca === null ? undefined : { ca },
  });
  const ask = async (
    method: string,
    path: string,
    headers: HeaderList,
    json?: string | Buffer,
    ms = timeoutMs,
  ): Promise<AdminAnswer> => {
    const body = json === undefined ? {} : { body: typeof json === "string" ? Buffer.from(json) : json };
    try {
      const answer = await client.ask({ url: new URL(url + path), method, headers, timeoutMs: ms, maxBytes, ...body });
      return { status: answer.status, headers: answer.headers, json: objectIn(answer.body) };
    } catch (error) {
      throw new Failure(`cannot ask ${url}: ${reason(error as ClientFailure, ms)}`, 1);
    }
  };
  try {
    const login = await ask("POST", "/login", [
      "Authorization",
      `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
    ]);
    const cookie = headerValue(login.headers, "set-cookie")?.split(";", 1)[0];
    if (login.status === 401) throw new Failure(`${url} refused the user name or the password`, 1);
    if (login.status !== 200 || cookie === undefined) throw unexpected(login, "POST /login", url);
    try {
      return await act((method, path, json) =>
        ask(method, path, ["Cookie", cookie, ...(json === undefined ? [] : JSON_TYPE)], json),
      );
    } finally {
      // The command already has its answer: a failed logout does not change it.
      await ask("DELETE", "/logout", ["Cookie", cookie], undefined, LOGOUT_MS).catch(() => {});
    }
  } finally {
    client.close();
  }
}

const LOGOUT_MS = 2_000;
const JSON_TYPE: HeaderList = ["Content-Type", "application/json"];

/** The failure for an answer that is not expected here. */
export function unexpected({ status, headers, json }: AdminAnswer, asked: string, url: string): Failure {
  const seconds = headerValue(headers, "retry-after") ?? "";
  const wait = /^\d{1,9}$/.test(seconds) ? `; try again in ${seconds} s` : "";
  const location = JSON.stringify(headerValue(headers, "location") ?? "nowhere");
  const oneGateway =
    "if several gateways answer there, name one of them with --admin-url, " +
    "or give all of them the same ADMIN_JWT_SECRET";
  const sentences: { readonly [status: number]: string } = {
    // A redirect is not followed: the password must not be sent to another place.
    300: `redirects to ${location}, which is not followed: name the admin interface itself with --admin-url`,
    401: `does not know the session that it has just started; ${oneGateway}`,
    421: "does not accept this host name: add it to ADMIN_HOSTS of the gateway, or use an IP address",
    429: `has seen too many failed logins from here${wait}`,
    503: `is too busy${wait}`,
  };
  const known = sentences[status >= 300 && status < 400 ? 300 : status];
  if (known !== undefined) return new Failure(`${url} ${known}`, 1);
  if (json.code === "internal") return new Failure(`${url} failed at ${asked}: see the log of the gateway`, 1);
  return new Failure(
    `${url} answered ${asked} with ${status}: it is not the admin interface of a gateway that knows this command`,
    1,
  );
}

function objectIn(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body.toString());
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function reason({ kind, code, message }: ClientFailure, timeoutMs: number): string {
  // "saturated": this process was late itself, which makes no difference here.
  if (kind === "timeout" || kind === "saturated") return `it did not answer within ${timeoutMs / 1000} s`;
  if (kind === "too_large") return message.replace("the answer", "its answer");
  if (code?.startsWith("HPE_"))
    return "the server there does not speak HTTP; with ADMIN_TLS=true the gateway speaks HTTPS";
  return REASONS[code ?? ""] ?? (message || (code ?? kind));
}

const UNVERIFIED =
  "its certificate is not signed by an authority that is trusted here: " +
  "give its CA certificate with --ca (ADMIN_CA_PATH)";

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED:
    "nothing listens there; is the gateway running, with ADMIN_USER and a password set, " +
    "and is the address right (--admin-url)?",
  ECONNRESET: "the connection was closed without an answer; with ADMIN_TLS=true the gateway speaks HTTPS",
  ENOTFOUND: "the name has no address",
  EPROTO: "the server there does not speak TLS",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other host names; use one of them in --admin-url",
  CERT_HAS_EXPIRED: "its certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNVERIFIED,
  SELF_SIGNED_CERT_IN_CHAIN: UNVERIFIED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNVERIFIED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNVERIFIED,
};

/**
 * Asks the admin interface of a running gateway: logs in, lets a command ask, logs out. Every way in which that can fail becomes one
 * sentence. What is asked, and what is made of the answer, is the command's.
 */
import { systemClock } from "../base/clock.ts";
import { HttpClient, type ClientFailure } from "../http/client.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { StartError } from "./failure.ts";

export interface AdminTarget {
  /** Scheme, host and port. */
  readonly url: string;
  readonly user: string;
  readonly password: string;
  /** PEM; null: Node's own list of authorities. */
  readonly ca: Buffer | null;
  /** For one answer, in milliseconds. Default 30 000: checking a large configuration takes its time. */
  readonly timeoutMs?: number;
  /** Most bytes of one answer. Default 16 MiB. */
  readonly mostBytes?: number;
}

export interface AdminAnswer {
  readonly status: number;
  readonly headers: HeaderList;
  /** Empty when the body was none. */
  readonly json: Readonly<Record<string, unknown>>;
}

export type Ask = (method: string, path: string) => Promise<AdminAnswer>;

/** Throws a `StartError` with exit code 1 when the gateway cannot be asked, or does not let this user in. */
export async function asAdmin<T>(target: AdminTarget, act: (ask: Ask) => Promise<T>): Promise<T> {
  const client = new HttpClient({ clock: systemClock, tls: target.ca === null ? undefined : { ca: target.ca } });
  const { timeoutMs = 30_000 } = target;
  try {
    const basic = Buffer.from(`${target.user}:${target.password}`).toString("base64");
    const login = await exchange(client, target, "POST", "/login", ["Authorization", `Basic ${basic}`], timeoutMs);
    const cookie = headerValue(login.headers, "set-cookie")?.split(";", 1)[0];
    if (login.status === 401) throw new StartError(`${target.url} refused the user name or the password`, 1);
    if (login.status !== 200 || cookie === undefined) throw unexpected(login, "POST /login", target.url);
    try {
      return await act((method, path) => exchange(client, target, method, path, ["Cookie", cookie], timeoutMs));
    } finally {
      // What was asked is done by now: that the session could not be ended changes nothing about it.
      await exchange(client, target, "DELETE", "/logout", ["Cookie", cookie], LOGOUT_MS).catch(() => {});
    }
  } finally {
    client.close();
  }
}

/** What to say of an answer that no admin interface of a gateway gives here. */
export function unexpected({ status, headers, json }: AdminAnswer, asked: string, url: string): StartError {
  const seconds = headerValue(headers, "retry-after") ?? "";
  const wait = /^\d{1,9}$/.test(seconds) ? `; try again in ${seconds} s` : "";
  if (status === 429) return new StartError(`${url} has seen too many failed logins from here${wait}`, 1);
  if (status === 503) return new StartError(`${url} is too busy${wait}`, 1);
  if (status === 421) return new StartError(`${url} is asked under a name that it does not know: add it to ADMIN_HOSTS of the gateway, or use an IP address`, 1);
  if (status >= 300 && status < 400) {
    // The password goes nowhere but where it was meant to.
    const where = JSON.stringify(headerValue(headers, "location") ?? "nowhere");
    return new StartError(`${url} redirects to ${where}, which is not followed: name the admin interface itself with --admin-url`, 1);
  }
  if (status === 401) {
    const remedy = "name one of them with --admin-url, or give all the same ADMIN_JWT_SECRET";
    return new StartError(`${url} does not know the session it has just begun; where several gateways answer there, ${remedy}`, 1);
  }
  if (json.code === "internal") return new StartError(`${url} failed at ${asked}: the gateway's log says why`, 1);
  return new StartError(`${url} answered ${asked} with ${status}: it is not the admin interface of a gateway that knows this command`, 1);
}

const LOGOUT_MS = 2_000;

async function exchange(client: HttpClient, target: AdminTarget, method: string, path: string, headers: HeaderList, timeoutMs: number): Promise<AdminAnswer> {
  const { url, mostBytes = 16 * 1024 * 1024 } = target;
  try {
    const answer = await client.ask({ url: new URL(url + path), method, headers, timeoutMs, maxBytes: mostBytes });
    return { status: answer.status, headers: answer.headers, json: objectIn(answer.body) };
  } catch (error) {
    throw new StartError(`cannot ask ${url}: ${reason(error as ClientFailure, timeoutMs)}`, 1);
  }
}

/** What is no JSON object holds nothing that anybody could use; the status says the rest. */
function objectIn(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body.toString());
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function reason({ kind, code, message }: ClientFailure, timeoutMs: number): string {
  if (kind === "timeout") return `it has not answered within ${timeoutMs / 1000} s`;
  if (kind === "too_large") return message.replace("the answer", "its answer");
  if (code?.startsWith("HPE_")) return "what answers there speaks no HTTP; with ADMIN_TLS=true the gateway speaks HTTPS";
  return REASONS[code ?? ""] ?? (message || (code ?? kind));
}

const UNVERIFIED = "its certificate is not signed by an authority that is trusted here: name its CA certificate with --ca (ADMIN_CA_PATH)";

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there; is the gateway running, with ADMIN_USER and a password set, and is the address right (--admin-url)?",
  ECONNRESET: "the connection was closed without an answer; with ADMIN_TLS=true the gateway speaks HTTPS",
  ENOTFOUND: "the name has no address",
  EPROTO: "what answers there speaks no TLS",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for other names; write one of them in --admin-url",
  CERT_HAS_EXPIRED: "its certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: UNVERIFIED,
  SELF_SIGNED_CERT_IN_CHAIN: UNVERIFIED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNVERIFIED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNVERIFIED,
};

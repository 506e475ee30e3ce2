/**
 * Requests to the admin interface: GET, POST and DELETE below /api on the page's own origin.
 */

export type * from "./admin_types.ts";

/** An error reply of the admin interface or the manager. */
export class ApiError extends Error {
  /** HTTP status; 0 if there was no reply. */
  readonly status: number;
  /** "unauthenticated", "rate_limited", … ; "" if the reply has no code. */
  readonly code: string;
  /** Retry-After in seconds. */
  readonly retryAfterS: number | null;
  /** The problem document. */
  readonly problem: Readonly<Record<string, unknown>>;

  constructor(status: number, problem: Readonly<Record<string, unknown>>, retryAfterS: number | null) {
    super(typeof problem.detail === "string" ? problem.detail : typeof problem.title === "string" ? problem.title : `HTTP ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = typeof problem.code === "string" ? problem.code : "";
    this.retryAfterS = retryAfterS;
    this.problem = problem;
  }
}

/** A machine that went to sleep sends no reset. */
const REPLY_MS = 12_000;
/** A large configuration takes longer. */
const POST_MS = 40_000;

/** Rejects with an `ApiError`. `path` is a path of the admin interface: "/gateway/status". */
export async function ask<T>(method: "GET" | "POST" | "DELETE", path: string, options: { readonly body?: unknown; readonly authorization?: string } = {}): Promise<T> {
  const headers = new Headers({ Accept: "application/json" });
  if (options.body !== undefined) headers.set("Content-Type", "application/json");
  if (options.authorization !== undefined) headers.set("Authorization", options.authorization);
  const body = options.body === undefined ? null : JSON.stringify(options.body);
  let response: Response;
  let text: string;
  try {
    const signal = AbortSignal.timeout(method === "POST" ? POST_MS : REPLY_MS);
    response = await fetch(`/api${path}`, { method, headers, body, signal, credentials: "same-origin", cache: "no-store" });
    text = await response.text();
  } catch (error) {
    const isLate = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(0, { detail: isLate ? "The gateway's admin interface takes too long to answer." : "The management server does not answer. Is it still running?" }, null);
  }
  const value = parsed(text);
  if (response.ok) return value as T;
  const wait = Number(response.headers.get("Retry-After") ?? Number.NaN);
  throw new ApiError(response.status, typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {}, Number.isFinite(wait) ? wait : null);
}

function parsed(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

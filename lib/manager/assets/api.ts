/**
 * Requests to the admin interface: GET, POST, PUT and DELETE below api/ beside the page.
 */

export type * from "./admin_types.ts";
export type * from "./figure_types.ts";

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
    super(
      typeof problem.detail === "string"
        ? problem.detail
        : typeof problem.title === "string"
          ? problem.title
          : `HTTP ${status}`,
    );
    this.name = "ApiError";
    this.status = status;
    this.code = typeof problem.code === "string" ? problem.code : "";
    this.retryAfterS = retryAfterS;
    this.problem = problem;
  }
}

/** Of an error of any kind: a sentence. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** 401: the frame then leads to the login. */
export function isSessionEnd(error: unknown): error is ApiError & { readonly status: 401 } {
  return error instanceof ApiError && error.status === 401;
}

/** A machine that went to sleep sends no reset. */
const REPLY_MS = 12_000;
/** A large configuration takes longer. */
const POST_MS = 40_000;

/** Of the management UI that answered first, so of this page; null: not known yet. */
export let ownVersion: string | null = null;

interface Asked {
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Sent as it is: the text of a configuration. */
  readonly text?: string;
  readonly authorization?: string;
  /** The digest of the file that a change is based on. */
  readonly ifMatch?: string;
}

type Method = "GET" | "POST" | "PUT" | "DELETE";

/** Rejects with an `ApiError`. `path` is a path of the admin interface: "/gateway/status". */
export async function ask<T>(method: Method, path: string, asked: Asked = {}): Promise<T> {
  const { bytes } = await send(method, path, asked);
  return parsed(decoded(bytes)) as T;
}

/**
 * The file of the configuration, byte for byte, its digest, and why it cannot be changed from here (null: it can); with
 * another `path` a former one. Rejects with an `ApiError`.
 */
export async function askSource(
  path = "/gateway/source",
): Promise<{ readonly text: string; readonly digest: string; readonly readOnly: string | null }> {
  const { bytes, response } = await send("GET", path, {});
  const readOnly = response.headers.get("Source-Read-Only");
  const digest = /^"(.+)"$/.exec(response.headers.get("ETag") ?? "")?.[1] ?? "";
  try {
    return {
      text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes),
      digest,
      readOnly: readOnly === null ? null : decodeURIComponent(readOnly),
    };
  } catch {
    throw new ApiError(0, { detail: "The file is not UTF-8, so it cannot be edited here. Save it as UTF-8." }, null);
  }
}

async function send(
  method: Method,
  path: string,
  { body, text, authorization, ifMatch }: Asked,
): Promise<{ readonly response: Response; readonly bytes: ArrayBuffer }> {
  const headers = new Headers({ Accept: "application/json" });
  const content = text ?? (body === undefined ? null : JSON.stringify(body));
  if (content !== null) headers.set("Content-Type", "application/json");
  if (authorization !== undefined) headers.set("Authorization", authorization);
  if (ifMatch !== undefined) headers.set("If-Match", `"${ifMatch}"`);
  let response: Response;
  let bytes: ArrayBuffer;
  try {
    const signal = AbortSignal.timeout(method === "POST" || method === "PUT" ? POST_MS : REPLY_MS);
    // Relative: the page may be below the path of a proxy (MANAGER_BASE_PATH).
    response = await fetch(`api${path}`, {
      method,
      headers,
      body: content,
      signal,
      credentials: "same-origin",
      cache: "no-store",
    });
    bytes = await response.arrayBuffer();
  } catch (error) {
    const isLate = error instanceof DOMException && error.name === "TimeoutError";
    throw new ApiError(
      0,
      {
        detail: isLate
          ? "The gateway's admin interface takes too long to answer."
          : "The management server does not answer. Is it still running?",
      },
      null,
    );
  }
  ownVersion ??= response.headers.get("Management-UI-Version");
  if (response.ok) return { response, bytes };
  const value = parsed(decoded(bytes));
  const wait = Number(response.headers.get("Retry-After") ?? Number.NaN);
  throw new ApiError(
    response.status,
    typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {},
    Number.isFinite(wait) ? wait : null,
  );
}

function decoded(bytes: ArrayBuffer): string {
  return new TextDecoder().decode(bytes);
}

function parsed(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

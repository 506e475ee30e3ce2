/**
 * Why etcd has not done what it was asked, in words, and what follows from it.
 */
import type { ClientFailure } from "../client/client.ts";
import { isObject } from "../json_schema/values.ts";

/**
 * "unreachable": the member cannot answer, or what answers is not etcd; another one may. "refused": etcd has decided,
 * and each member would decide so. "cancelled": nobody waits for the answer any more. The message has no secrets.
 */
export class EtcdFailure extends Error {
  readonly kind: "unreachable" | "refused" | "cancelled";
  /** What etcd says: "etcdserver: permission denied". Empty: it has said nothing. */
  readonly reason: string;

  constructor(kind: EtcdFailure["kind"], message: string, reason = "") {
    super(message);
    this.name = "EtcdFailure";
    this.kind = kind;
    this.reason = reason;
  }

  static ofClient(member: string, { kind, message }: ClientFailure): EtcdFailure {
    if (kind === "cancelled") return new EtcdFailure("cancelled", message);
    return new EtcdFailure(kind === "too_large" ? "refused" : "unreachable", `etcd at ${member}: ${message}`);
  }

  /** There are users, but etcd does not ask for them. */
  get isAuthenticationOff(): boolean {
    return this.reason.includes("authentication is not enabled");
  }

  /** The text is beyond `--max-request-bytes` of etcd, or beyond what its gRPC server takes because of it. */
  get isTooLarge(): boolean {
    return /request is too large|larger than max|trying to send message larger/.test(this.reason);
  }

  get isLeaseLost(): boolean {
    return this.reason.includes("requested lease not found");
  }
}

/** Of an answer that is an error, or not etcd's. `content`: undefined: it is not JSON. */
export function etcdFailure(member: string, status: number, content: unknown): EtcdFailure {
  const at = `etcd at ${member}`;
  const error = isObject(content) && isObject(content.error) ? content.error : content;
  const { message, error: text, code, grpc_code: streamCode } = isObject(error) ? error : {};
  const said = typeof message === "string" ? message : text;
  const grpcCode = code ?? streamCode;
  if (typeof said !== "string" || typeof grpcCode !== "number") {
    const remedy = status === 404 ? ": its JSON gateway is off (--enable-grpc-gateway), or this is not etcd" : "";
    return new EtcdFailure("unreachable", `${at} has answered with status ${status}${remedy || ", not as etcd does"}`);
  }
  const reason = withoutControls(said);
  const remedy = REMEDIES.find(([pattern]) => pattern.test(reason))?.[1];
  const kind = DECIDED.has(grpcCode) ? "refused" : "unreachable";
  return new EtcdFailure(kind, `${at}: ${reason}${remedy === undefined ? "" : `; ${remedy}`}`, reason);
}

/** Whether a new token may help: RPC errors of etcd, api/v3rpc/rpctypes/error.go. */
export function isTokenRefused(error: unknown): boolean {
  return error instanceof EtcdFailure && TOKEN_REFUSED.test(error.reason);
}

const TOKEN_REFUSED = /invalid auth token|auth token is not provided|user name is empty|revision of auth store is old/;

/**
 * gRPC codes (https://grpc.io/docs/guides/status-codes/) with which etcd decides: INVALID_ARGUMENT, NOT_FOUND,
 * PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNAUTHENTICATED. Others are of one member.
 */
const DECIDED: ReadonlySet<number> = new Set([3, 5, 7, 8, 9, 11, 16]);

const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/authentication failed/, "check ETCD_USER and ETCD_PASSWORD_FILE"],
  [/user name is empty|auth token is not provided/, "set ETCD_USER and ETCD_PASSWORD_FILE"],
  [/permission denied/, "the user needs the rights that docs/fleets.md names"],
  [/space exceeded/, "etcd takes no writes: make room (compact, defragment), then disarm its NOSPACE alarm"],
];

function withoutControls(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "?").slice(0, MAX_REASON);
}

const MAX_REASON = 200;

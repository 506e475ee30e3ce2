/**
 * Why a certificate could not be obtained: in words for logs and the management UI, without anything secret.
 */

interface FailureFacts {
  /** As in `AcmeFailure`. */
  readonly type?: string | null;
  readonly isPassing?: boolean;
  readonly retryAfterMs?: number | null;
  readonly hosts?: ReadonlyMap<string, string>;
}

export class AcmeFailure extends Error {
  /** The type of the directory's problem document without its prefix (RFC 8555 §6.7): "rateLimited"; null: none. */
  readonly type: string | null;
  /** Whether the same request may succeed later: the server was out of reach, or overloaded. */
  readonly isPassing: boolean;
  /** What the directory asks to wait; null: nothing. */
  readonly retryAfterMs: number | null;
  /** The hosts that the failure is about, each with its reason; none: it is about the whole order. */
  readonly hosts: ReadonlyMap<string, string>;

  constructor(message: string, facts: FailureFacts = {}) {
    super(message);
    this.name = "AcmeFailure";
    this.type = facts.type ?? null;
    this.isPassing = facts.isPassing ?? false;
    this.retryAfterMs = facts.retryAfterMs ?? null;
    this.hosts = facts.hosts ?? NO_HOSTS;
  }
}

/** Of hosts, each with its reason. */
export function hostsFailure(failed: ReadonlyMap<string, string>): AcmeFailure {
  const reasons = [...failed].map(([host, reason]) => `${host}: ${reason}`).join("; ");
  return new AcmeFailure(shownText(reasons), { hosts: failed });
}

const NO_HOSTS: ReadonlyMap<string, string> = new Map();

/** Text of a directory for a line: without control characters, and not longer than a problem needs. */
export function shownText(text: string): string {
  const line = text.replace(/[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+/g, " ").trim();
  return line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}…` : line;
}

const MAX_SHOWN = 400;

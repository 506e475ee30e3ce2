/**
 * Logs and counts requests that are refused and never become one: their heads could not be read, or did not arrive.
 */
import { ignore } from "../base/errors.ts";
import { Call } from "../http/exchange.ts";
import { plainAddress, type Unread } from "../server/inbound.ts";
import type { RequestsTools } from "./serve.ts";

/** Of a thread and a second: whoever sends nothing but noise must not fill the disk. */
const MAX_LINES = 100;
/** Lines that are left out would be reported each second. */
const WARN_AGAIN_MS = 60_000;
const NO_LINE = { method: "", target: "" };

export class UnreadRequests {
  readonly #tools: RequestsTools;
  /** Lines of the second that began then. */
  #lines = 0;
  #since = -Infinity;
  #warnedAt = -Infinity;

  constructor(tools: RequestsTools) {
    this.#tools = tools;
  }

  readonly add = ({ id, code, detail, connection, line, httpVersion, sent, status, isGone }: Unread): void => {
    const { clock, accessLog, metrics, configuration } = this.#tools;
    const now = clock.now();
    const clientAddress = plainAddress(connection.remoteAddress);
    const { tlsVersion, tlsCipher = null, tlsGroup = null } = connection;
    const whose = { id, remoteAddress: clientAddress, trustedRemote: false, tlsVersion, tlsCipher, tlsGroup };
    const call = new Call({ ...whose, startedAt: now, inform: ignore });
    const { notes } = call;
    notes.digest = configuration.snapshot.digest;
    notes.sent = sent;
    // As for a request whose client disconnects during its body.
    if (isGone) call.abort();
    else {
      call.fail(code, detail);
      notes.status = status;
    }
    const scheme = connection.encrypted ? "https" : "http";
    const facts = {
      call,
      httpVersion,
      ...(line ?? NO_LINE),
      authority: "",
      scheme,
      headers: [],
      clientAddress,
    } as const;
    metrics?.decisions?.add(facts, now);
    metrics?.unrouted.ended(facts.method, notes, 0);
    if (accessLog.isOn && this.#hasLine(now, clientAddress)) accessLog.write(facts, now);
  };

  #hasLine(now: number, client: string): boolean {
    if (now - this.#since >= 1000) [this.#since, this.#lines] = [now, 0];
    if (this.#lines++ < MAX_LINES) return true;
    if (now - this.#warnedAt >= WARN_AGAIN_MS) {
      this.#warnedAt = now;
      this.#tools.log.warn(`more than ${MAX_LINES} requests a second cannot be read: the others get no line`, {
        client_ip: client,
      });
    }
    return false;
  }
}

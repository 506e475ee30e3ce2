/**
 * Refuses client certificates that the lists of `global.tls.client_crl` have, or that these lists do not vouch for.
 */
import type { TLSSocket } from "node:tls";
import { revokedIn, shownChain } from "../base/revocation.ts";
import type { TlsFiles } from "./certificates.ts";
import { shownCertificate } from "./client_certificate.ts";
import type { ServerTlsRules, TlsOptions } from "./listener.ts";

interface Refusal {
  /** By OpenSSL's names. */
  readonly code: string;
  /** Of the certificate that is refused, in one line; "": it has none. */
  readonly subject: string;
  /** What could not be read in it. */
  readonly error?: string;
}

/** A client that is refused may come back at once, and each line of the log would say the same. */
export const WARN_AGAIN_MS = 60_000;
/** How many refusals are remembered for that: the oldest is forgotten, and logged again. */
const MAX_WARNED = 1000;

export class RevokedClients {
  readonly #options: Pick<TlsOptions, "clock" | "log" | "handshakes">;
  /** By code and subject: when it was logged, the oldest first. */
  readonly #warned = new Map<string, number>();

  constructor(options: Pick<TlsOptions, "clock" | "log" | "handshakes">) {
    this.#options = options;
  }

  /**
   * Whether the connection must end, by the lists of `rules`. Where certificates are not required it stays, and its
   * certificate counts as not verified. For a handshake that has finished.
   */
  refuses(socket: TLSSocket, { ca, requireClientCert }: TlsFiles, rules: ServerTlsRules): boolean {
    const refusal = socket.authorized ? this.#refusalOf(socket, ca, rules) : null;
    if (refusal === null) return false;
    const { code } = refusal;
    this.#warn(refusal, socket.remoteAddress);
    Object.assign(socket, { authorized: false, authorizationError: code });
    if (requireClientCert) this.#options.handshakes?.refused("client", code.toLowerCase());
    return requireClientCert;
  }

  /** Null: it is accepted, or there is none. */
  #refusalOf(
    socket: TLSSocket,
    ca: TlsFiles["ca"],
    { clientCrl, crlExpired: expired = "refuse" }: ServerTlsRules,
  ): Refusal | null {
    const shown = clientCrl === undefined ? undefined : shownCertificate(socket);
    if (shown === undefined) return null;
    const lists = clientCrl!.content;
    try {
      return revokedIn(shownChain(shown), ca ?? undefined, { lists, expired }, this.#options.clock.wall());
    } catch (error) {
      // OpenSSL also accepts certificates that are not in DER, and what cannot be looked up is not vouched for.
      const subject = ((shown.subject as string | undefined) ?? "").replaceAll("\n", ",");
      return { code: "CERT_REJECTED", subject, error: (error as Error).message };
    }
  }

  #warn({ code, ...fields }: Refusal, client_ip: string | undefined): void {
    const now = this.#options.clock.now();
    for (const [each, at] of this.#warned) {
      if (now - at < WARN_AGAIN_MS && this.#warned.size < MAX_WARNED) break;
      this.#warned.delete(each);
    }
    const key = `${code} ${fields.subject}`;
    if (this.#warned.has(key)) return;
    this.#warned.set(key, now);
    this.#options.log.warn(`a client certificate is refused: ${code}`, { ...fields, client_ip });
  }
}

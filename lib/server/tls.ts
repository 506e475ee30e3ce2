/**
 * TLS servers whose certificates can be replaced while they listen, and depend on the host name that the client asks for (SNI).
 *
 * All servers encrypt their session tickets with one key, so a session resumes at any of them, also under a renewed certificate. The key is
 * replaced every hour and overwritten, so that a stolen key does not decrypt older traffic (RFC 5077 §5.5); a ticket under an older key
 * leads to a full handshake. A ticket contains the verdict on the client's certificate, so it is not valid under another CA, or where a
 * certificate is required now and was not before.
 */
import { constants, createHash, randomBytes } from "node:crypto";
import tls, { type SecureContext, type SecureContextOptions } from "node:tls";
import type { Clock, Timer } from "../base/clock.ts";
import type { HostCertificates, Pair } from "./certificates.ts";

export interface TlsFiles extends Pair {
  /** CA certificates for client certificates; null: clients are not asked for one. */
  readonly ca: Buffer | null;
  /** Whether a handshake without a valid client certificate fails. */
  readonly requireClientCert: boolean;
  /** Where `cert` was read from, for the gateway's status. */
  readonly path?: string;
}

const HANDSHAKE_MS = 10_000;
/** How long one key encrypts session tickets. Node lets a session be resumed for five minutes. */
export const TICKET_KEY_MS = 3_600_000;
export const TICKET_KEY_BYTES = 48;

interface Entry {
  readonly server: tls.Server;
  files: TlsFiles;
  /** Created when a client first asks for the name: that takes milliseconds. */
  contexts: WeakMap<Pair, SecureContext>;
}

export class TlsServers {
  readonly #certificates: () => HostCertificates;
  readonly #clock: Clock;
  readonly #handshakeMs: number;
  readonly #ticketKey = randomBytes(TICKET_KEY_BYTES);
  /** Whether the ticket key comes from `useTicketKey`. */
  #isKeyGiven = false;
  readonly #entries: Entry[] = [];
  #listening = 0;
  #rotation: Timer | null = null;

  /** `certificates` returns those in force; asked once a handshake. `handshakeMs` defaults to 10 000. */
  constructor(certificates: () => HostCertificates, clock: Clock, handshakeMs = HANDSHAKE_MS) {
    this.#certificates = certificates;
    this.#clock = clock;
    this.#handshakeMs = handshakeMs;
  }

  /** A server that does not listen yet. Throws node's error for files that cannot be used. */
  create(files: TlsFiles): tls.Server {
    const server = tls.createServer({
      ...this.#contextOptions(files, files),
      ALPNProtocols: ["h2", "http/1.1"],
      handshakeTimeout: this.#handshakeMs,
      noDelay: true,
      ...(files.ca === null ? {} : { requestCert: true, rejectUnauthorized: files.requireClientCert }),
      SNICallback: (servername, done) => {
        try {
          done(null, this.#contextFor(entry, servername));
        } catch (error) {
          done(error as Error);
        }
      },
    });
    const entry: Entry = { server, files, contexts: new WeakMap() };
    this.#entries.push(entry);
    server.on("listening", () => this.#rotateWhileListening(server));
    return server;
  }

  /**
   * Replaces certificate, key and CA of every server; connections stay open. Throws, and changes nothing, when the files cannot be used, or
   * would change whether clients are asked for a certificate.
   */
  renew(files: TlsFiles): void {
    tls.createSecureContext(this.#contextOptions(files, files));
    for (const { files: old } of this.#entries) {
      if ((old.ca === null) !== (files.ca === null) || old.requireClientCert !== files.requireClientCert) {
        throw new Error("whether clients are asked for a certificate cannot change while the gateway listens");
      }
    }
    for (const entry of this.#entries) {
      entry.server.setSecureContext(this.#contextOptions(files, files));
      entry.files = files;
      entry.contexts = new WeakMap();
    }
  }

  /** To be called before a server listens: tickets are encrypted with this key, and not with keys that are made here. */
  useTicketKey(key: Buffer): void {
    this.#isKeyGiven = true;
    this.#replaceKey(key);
  }

  #replaceKey(key: Buffer): void {
    key.copy(this.#ticketKey);
    for (const each of this.#entries) each.server.setTicketKeys(this.#ticketKey);
  }

  #rotateWhileListening(server: tls.Server): void {
    if (this.#isKeyGiven) return;
    this.#listening++;
    this.#rotation ??= this.#clock.after(TICKET_KEY_MS, () => {
      this.#replaceKey(randomBytes(TICKET_KEY_BYTES));
      this.#rotation!.restart();
    });
    // `once`: node emits it again where a server is closed twice.
    server.once("close", () => {
      if (--this.#listening > 0) return;
      this.#rotation?.cancel();
      this.#rotation = null;
    });
  }

  #contextOptions({ cert, key }: Pair, { ca, requireClientCert }: TlsFiles): SecureContextOptions & { readonly ticketKeys: Buffer } {
    return {
      cert,
      key,
      ...(ca === null ? {} : { ca }),
      minVersion: "TLSv1.2",
      // Renegotiation costs the server far more than the client, and nothing needs it; TLS 1.3 has none.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ticketKeys: this.#ticketKey,
      sessionIdContext: createHash("sha256").update(ca ?? "").update(String(requireClientCert)).digest("hex").slice(0, 32),
    };
  }

  #contextFor(entry: Entry, servername: string): SecureContext | undefined {
    const pair = this.#certificates().find(servername);
    if (pair === undefined) return undefined;
    let context = entry.contexts.get(pair);
    if (context === undefined) {
      context = tls.createSecureContext(this.#contextOptions(pair, entry.files));
      entry.contexts.set(pair, context);
    }
    return context;
  }
}

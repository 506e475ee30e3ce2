/**
 * Servers for TLS whose certificates can be exchanged while they listen, and depend on the host name that the client asks for.
 * Which names there are is `certificates.ts`, what is spoken inside `listener.ts`.
 *
 * Sessions may be resumed by tickets at any server of this object, whatever certificates have come since: one key encrypts all
 * tickets. It is replaced every hour and overwritten, so that a stolen key does not open older traffic (RFC 5077 §5.5); a ticket under
 * an older key leads to a full handshake. Sessions are not resumed where other rules decide about clients: a ticket holds the verdict on
 * a client's certificate, so it is worth nothing once the CA, or whether a certificate is required, is another.
 */
import { constants, createHash, randomBytes, randomFillSync } from "node:crypto";
import tls, { type SecureContext, type SecureContextOptions } from "node:tls";
import type { Clock, Timer } from "../base/clock.ts";
import type { HostCertificates, Pair } from "./certificates.ts";

export interface TlsFiles extends Pair {
  /** Certificates that sign clients' ones; null: clients are not asked for one. */
  readonly ca: Buffer | null;
  /** Whether a handshake without a valid client certificate fails. */
  readonly requireClientCert: boolean;
  /** Where `cert` was read from, for those who ask for the gateway's status. */
  readonly path?: string;
}

export interface TlsServers {
  /** A server that does not listen yet. Throws what node says of the files. */
  create(files: TlsFiles): tls.Server;
  /**
   * Exchanges certificate, key and CA of every server; connections stay. Throws when they cannot be used, or when they would change
   * whether clients are asked for a certificate: the old ones stay then.
   */
  renew(files: TlsFiles): void;
}

const HANDSHAKE_MS = 10_000;
/** How long one key encrypts session tickets. Node lets a session be resumed for five minutes. */
const TICKET_KEY_MS = 3_600_000;

interface Front {
  readonly server: tls.Server;
  files: TlsFiles;
  /** Made when a client first asks for the name: a context takes milliseconds. */
  contexts: WeakMap<Pair, SecureContext>;
}

/** `certificates` gives those in force at this moment; asked once a handshake. */
export function createTlsServers(certificates: () => HostCertificates, clock: Clock, handshakeMs = HANDSHAKE_MS): TlsServers {
  const ticketKeys = randomBytes(48);
  const fronts: Front[] = [];
  let listening = 0;
  let rotation: Timer | null = null;

  function rotate(): void {
    randomFillSync(ticketKeys);
    for (const { server } of fronts) server.setTicketKeys(ticketKeys);
    rotation!.restart();
  }

  /** Replaces the key while a server listens. */
  function rotateFor(server: tls.Server): void {
    server.on("listening", () => {
      listening++;
      rotation ??= clock.after(TICKET_KEY_MS, rotate);
      // Once: node says it again where a server is closed twice.
      server.once("close", () => {
        if (--listening > 0) return;
        rotation?.cancel();
        rotation = null;
      });
    });
  }

  function contextOptions({ cert, key }: Pair, { ca, requireClientCert }: TlsFiles): SecureContextOptions & { readonly ticketKeys: Buffer } {
    return {
      cert,
      key,
      ...(ca === null ? {} : { ca }),
      minVersion: "TLSv1.2",
      // It costs the server far more than the client, and nothing needs it; TLS 1.3 has none.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ticketKeys,
      sessionIdContext: createHash("sha256").update(ca ?? "").update(String(requireClientCert)).digest("hex").slice(0, 32),
    };
  }

  function contextFor(front: Front, servername: string): SecureContext | undefined {
    const pair = certificates().find(servername);
    if (pair === undefined) return undefined;
    let context = front.contexts.get(pair);
    if (context === undefined) {
      context = tls.createSecureContext(contextOptions(pair, front.files));
      front.contexts.set(pair, context);
    }
    return context;
  }

  return {
    create(files) {
      const server = tls.createServer({
        ...contextOptions(files, files),
        ALPNProtocols: ["h2", "http/1.1"],
        handshakeTimeout: handshakeMs,
        noDelay: true,
        ...(files.ca === null ? {} : { requestCert: true, rejectUnauthorized: files.requireClientCert }),
        SNICallback(servername, done) {
          try {
            done(null, contextFor(front, servername));
          } catch (error) {
            done(error as Error);
          }
        },
      });
      const front: Front = { server, files, contexts: new WeakMap() };
      fronts.push(front);
      rotateFor(server);
      return server;
    },
    renew(files) {
      tls.createSecureContext(contextOptions(files, files));
      for (const { files: old } of fronts) {
        if ((old.ca === null) !== (files.ca === null) || old.requireClientCert !== files.requireClientCert) {
          throw new Error("whether clients are asked for a certificate cannot change while the gateway listens");
        }
      }
      for (const front of fronts) {
        front.server.setSecureContext(contextOptions(files, files));
        front.files = files;
        front.contexts = new WeakMap();
      }
    },
  };
}

/**
 * TLS servers whose certificates can be replaced while they listen, and depend on the host name that the client asks
 * for (SNI).
 *
 * All encrypt their session tickets with one key, so a session resumes at any of them. It is replaced and overwritten
 * every hour: a stolen key does not decrypt older traffic (RFC 5077 §5.5). A ticket has the verdict on the client's
 * certificate, so it is void under another CA, or where a certificate was not required before; and where other
 * versions, ciphers or groups are allowed.
 */
import { constants, createHash, randomBytes } from "node:crypto";
import type { Server, Socket } from "node:net";
import tls, { type SecureContext, type SecureContextOptions } from "node:tls";
import { isDeepStrictEqual } from "node:util";
import type { Timer } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import { guardedEmitter } from "../base/event_loop.ts";
import { contextRules, type TlsRules } from "../base/tls_rules.ts";
import type { NoPair, Pair, TlsFiles } from "./certificates.ts";
import type { SecureServers, TlsConnections, TlsOptions } from "./listener.ts";

export { connectionOf } from "./client_certificate.ts";

/** A fatal alert in a record of its own (RFC 8446 §5.1, §6), as before a handshake has keys: unrecognized_name. */
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 3, 0, 2, 2, 112]);
const HANDSHAKE_MS = 10_000;
/** How long one key encrypts session tickets. Node lets a session be resumed for five minutes. */
export const TICKET_KEY_MS = 3_600_000;
export const TICKET_KEY_BYTES = 48;

const NO_RULES: TlsRules = {};

interface Entry {
  readonly server: tls.Server;
  files: TlsFiles;
  /** Created when a client first asks for the name: that takes milliseconds. */
  contexts: WeakMap<Pair, SecureContext>;
}

export class TlsServers implements SecureServers {
  readonly #options: TlsOptions;
  /** TCP connections whose handshake has not finished, by their addresses. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #ticketKey = randomBytes(TICKET_KEY_BYTES);
  /** Whether the ticket key comes from `useTicketKey`. */
  #isKeyGiven = false;
  readonly #entries: Entry[] = [];
  /** Those that the contexts of all servers were made with. */
  #rules: TlsRules;
  #listening = 0;
  #rotation: Timer | null = null;

  constructor(options: TlsOptions) {
    this.#options = options;
    this.#rules = options.rules?.() ?? NO_RULES;
  }

  /** A server that does not listen yet. Throws node's error for files that cannot be used. */
  create(files: TlsFiles, connections: TlsConnections): tls.Server {
    const contextFor = (socket: Socket, servername: string) => this.#contextFor(entry, socket, servername);
    const server = tls.createServer({
      ...this.#contextOptions(files, files),
      // Undefined: the handshake fails with the alert no_application_protocol (RFC 7301 §3.2). It is asked only where
      // the client names protocols.
      ALPNCallback: ({ protocols }) =>
        protocols.includes("h2") && this.#options.protocols?.().http2 !== false
          ? "h2"
          : protocols.find((each) => each === "http/1.1"),
      handshakeTimeout: this.#options.handshakeMs ?? HANDSHAKE_MS,
      noDelay: true,
      ...(files.ca === null ? {} : { requestCert: true, rejectUnauthorized: files.requireClientCert }),
      SNICallback(this: Socket, servername, done) {
        try {
          done(null, contextFor(this, servername));
        } catch (error) {
          done(error as Error);
        }
      },
    });
    const entry: Entry = { server, files, contexts: new WeakMap() };
    this.#entries.push(entry);
    server.on("listening", () => this.#rotateWhileListening(server));
    this.#serve(server, connections);
    return server;
  }

  #serve(server: tls.Server, { accept, serve }: TlsConnections): void {
    guard(server, (socket, begin) => {
      const addresses = addressesOf(socket);
      accept(socket, () => {
        this.#applyRules();
        this.#handshakes.set(addresses, socket);
        socket.once("close", () => {
          // A later connection may have the same addresses.
          if (this.#handshakes.get(addresses) === socket) this.#handshakes.delete(addresses);
        });
        begin();
      });
    });
    server.on("secureConnection", (socket) => {
      const addresses = addressesOf(socket);
      const tcp = this.#handshakes.get(addresses);
      this.#handshakes.delete(addresses);
      // It has been closed meanwhile: whose connection it was is not known any more.
      if (tcp === undefined) return void socket.destroy();
      // A proxy may have told whose it is.
      const { remoteAddress: value } = tcp;
      if (value !== socket.remoteAddress) Object.defineProperty(socket, "remoteAddress", { value });
      // Only from here on: a client that closes its side during the handshake has disconnected, and its connection must
      // end.
      socket.allowHalfOpen = true;
      guardedEmitter(socket).on("error", ignore);
      serve(socket);
    });
    server.on("tlsClientError", (error, socket) => {
      this.#options.log.debug("TLS handshake failed", { error: error.message });
      // Node leaves a connection open whose handshake timed out.
      socket.destroy();
    });
  }

  /** Ends the connections whose handshake has not finished. */
  endIdle(): void {
    for (const socket of this.#handshakes.values()) socket.destroy();
  }

  /**
   * Replaces certificate, key and CA of every server; connections stay open. Throws, and changes nothing, when the
   * files cannot be used, or would change whether clients are asked for a certificate.
   */
  renew(files: TlsFiles): void {
    tls.createSecureContext(this.#contextOptions(files, files));
    for (const { files: old } of this.#entries) {
      if ((old.ca === null) !== (files.ca === null) || old.requireClientCert !== files.requireClientCert) {
        throw new Error("whether clients are asked for a certificate cannot change while the gateway listens");
      }
    }
    for (const entry of this.#entries) this.#use(files, entry);
  }

  #use(files: TlsFiles, entry: Entry): void {
    entry.server.setSecureContext(this.#contextOptions(files, files));
    entry.files = files;
    entry.contexts = new WeakMap();
  }

  /** A reload may have brought others: they count from the next handshake on. */
  #applyRules(): void {
    const rules = this.#options.rules?.() ?? NO_RULES;
    if (rules === this.#rules) return;
    const isSame = isDeepStrictEqual(rules, this.#rules);
    this.#rules = rules;
    if (isSame) return;
    for (const entry of this.#entries) this.#use(entry.files, entry);
  }

  /**
   * To be called before a server listens, where another thread makes the key, and replaces it: tickets are encrypted
   * with this key, and not with keys that are made here.
   */
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
    this.#rotation ??= this.#options.clock.after(TICKET_KEY_MS, () => {
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

  #contextOptions(
    { cert, key }: Pair | NoPair,
    { ca, requireClientCert }: TlsFiles,
  ): SecureContextOptions & { readonly ticketKeys: Buffer } {
    const rules = contextRules(this.#rules, "server");
    return {
      ...(cert === null ? {} : { cert, key }),
      ...(ca === null ? {} : { ca }),
      ...rules,
      // Renegotiation costs the server far more than the client, and nothing needs it; TLS 1.3 has none.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ticketKeys: this.#ticketKey,
      sessionIdContext: createHash("sha256")
        .update(ca ?? "")
        .update(String(requireClientCert))
        .update(JSON.stringify(rules))
        .digest("hex")
        .slice(0, 32),
    };
  }

  /** Undefined: that of the server. Throws where no certificate is for the host. */
  #contextFor(entry: Entry, socket: Socket, servername: string): SecureContext | undefined {
    const pair = this.#options.certificates?.().find(servername);
    if (pair === undefined) {
      if (entry.files.cert !== null) return undefined;
      // RFC 6066 §3. OpenSSL would choose handshake_failure, which says nothing to whoever reads the client's log.
      this.#handshakes.get(addressesOf(socket))?.write(UNRECOGNIZED_NAME);
      throw new Error(`no certificate is for ${JSON.stringify(servername)}`);
    }
    let context = entry.contexts.get(pair);
    if (context === undefined) {
      context = tls.createSecureContext(this.#contextOptions(pair, entry.files));
      entry.contexts.set(pair, context);
    }
    return context;
  }
}

/**
 * Puts `arrived` before a server's own listeners, which get a connection once it calls `begin`: a surplus one costs no
 * parser and no handshake. Throws if the server has none.
 */
export function guard(server: Server, arrived: (socket: Socket, begin: () => void) => void): void {
  const own = server.listeners("connection") as ((this: Server, socket: Socket) => void)[];
  // Added later, they would serve every connection that is refused here.
  if (own.length === 0)
    throw new Error(
      "this version of Node.js is not supported: its servers have no connection listener that " +
        "limits could be put before",
    );
  server.removeAllListeners("connection");
  server.on("connection", (socket: Socket) =>
    arrived(socket, () => {
      for (const listener of own) listener.call(server, socket);
    }),
  );
}

/** The same for a TLS socket and for its TCP connection, which node does not give with it. */
function addressesOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

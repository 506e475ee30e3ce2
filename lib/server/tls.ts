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
import { contextRules, groupOf } from "../base/tls_rules.ts";
import type { IssuedPairs, NoPair, Pair, TlsFiles } from "./certificates.ts";
import { clientHelloReader } from "./client_hello.ts";
import { readFirstBytes } from "./first_bytes.ts";
import { NO_CERTIFICATE, noteGroup, refusalReason } from "./handshakes.ts";
import { plainAddress } from "./inbound.ts";
import type { SecureServers, ServerTlsRules, TlsConnections, TlsOptions } from "./listener.ts";
import { RevokedClients } from "./revoked_clients.ts";

export { connectionOf } from "./client_certificate.ts";

/** A fatal alert in a record of its own (RFC 8446 §5.1, §6), as before a handshake has keys: unrecognized_name. */
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 3, 0, 2, 2, 112]);
/** The same: internal_error. The name is right, and the certificate for it is not there yet. */
const INTERNAL_ERROR = Buffer.from([21, 3, 3, 0, 2, 2, 80]);
const NO_PAIR: NoPair = { cert: null, key: null };
const HANDSHAKE_MS = 10_000;
/** RFC 8737 §4. */
const ACME_PROTOCOL = "acme-tls/1";
/** How long one key encrypts session tickets. Node lets a session be resumed for five minutes. */
export const TICKET_KEY_MS = 3_600_000;
export const TICKET_KEY_BYTES = 48;

const NO_RULES: ServerTlsRules = {};

interface Entry {
  readonly server: tls.Server;
  /** A server for the same clients that has this pair for those who name no host. */
  readonly serverWith: (pair: Pair | NoPair) => tls.Server;
  files: TlsFiles;
  /** Created when a client first asks for the name: that takes milliseconds. */
  contexts: WeakMap<Pair | NoPair, SecureContext>;
  /** See `HostCertificates.atAddress`. Node gives no say about clients that name no host but by another server. */
  servers: WeakMap<Pair | NoPair, tls.Server>;
}

export class TlsServers implements SecureServers {
  readonly #options: TlsOptions;
  readonly #revoked: RevokedClients;
  /** TCP connections whose handshake has not finished, by their addresses. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #ticketKey = randomBytes(TICKET_KEY_BYTES);
  /** Whether the ticket key comes from `useTicketKey`. */
  #isKeyGiven = false;
  readonly #entries: Entry[] = [];
  /** By the certificate of an open challenge: to make one takes milliseconds, and anybody may ask. */
  readonly #challengeServers = new WeakMap<Pair, tls.Server>();
  /** Those that the contexts of all servers were made with. */
  #rules: ServerTlsRules;
  #listening = 0;
  #rotation: Timer | null = null;

  constructor(options: TlsOptions) {
    this.#options = options;
    this.#revoked = new RevokedClients(options);
    this.#rules = options.rules?.() ?? NO_RULES;
  }

  /** A server that does not listen yet. Throws node's error for files that cannot be used. */
  create(files: TlsFiles, { accept, serve }: TlsConnections): tls.Server {
    const serveChecked = (socket: tls.TLSSocket) => {
      if (this.#revoked.refuses(socket, entry.files, this.#rules)) return void socket.destroy();
      const group = groupOf(socket, this.#rules, "server");
      noteGroup(socket, group);
      this.#options.handshakes?.finished("client", socket.getProtocol(), group);
      serve(socket);
    };
    const contextFor = (socket: Socket, servername: string) => this.#contextFor(entry, socket, servername);
    const server = this.#serverWith(files, files, contextFor, serveChecked);
    // Its own context is for clients that name no host alone.
    const anyContextFor = (socket: Socket, servername: string) =>
      contextFor(socket, servername) ?? this.#contextWith(entry, entry.files);
    const serverWith = (pair: Pair | NoPair) => this.#serverWith(pair, entry.files, anyContextFor, serveChecked);
    const entry: Entry = { server, serverWith, files, contexts: new WeakMap(), servers: new WeakMap() };
    this.#entries.push(entry);
    server.on("listening", () => this.#rotateWhileListening(server));
    guard(server, (socket, begin) => {
      const addresses = addressesOf(socket);
      accept(socket, () => {
        this.#applyRules();
        this.#handshakes.set(addresses, socket);
        socket.once("close", () => {
          // A later connection may have the same addresses.
          if (this.#handshakes.get(addresses) === socket) this.#handshakes.delete(addresses);
        });
        this.#begin(entry, socket, begin);
      });
    });
    return server;
  }

  #serverWith(
    pair: Pair | NoPair,
    files: TlsFiles,
    contextFor: (socket: Socket, servername: string) => SecureContext | undefined,
    serve: TlsConnections["serve"],
  ): tls.Server {
    const options: tls.TlsOptions = {
      ...this.#contextOptions(pair, files),
      // Undefined: the handshake fails with the alert no_application_protocol (RFC 7301 §3.2). It is asked only where
      // the client names protocols.
      ALPNCallback: ({ protocols }) =>
        protocols.includes("h2") && this.#options.protocols?.().http2 !== false
          ? "h2"
          : protocols.find((each) => each === "http/1.1"),
      handshakeTimeout: this.#handshakeMs,
      noDelay: true,
      ...(files.ca === null ? {} : { requestCert: true, rejectUnauthorized: files.requireClientCert }),
      SNICallback(this: Socket, servername, done) {
        try {
          done(null, contextFor(this, servername));
        } catch (error) {
          done(error as Error);
        }
      },
    };
    // Also those for one address, which no listener guards.
    const server = guardedEmitter(tls.createServer(options));
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
    server.on("tlsClientError", this.#handshakeFailed);
    return server;
  }

  readonly #handshakeFailed = (error: Error, socket: Socket): void => {
    this.#options.handshakes?.refused("client", refusalReason(error, socket as tls.TLSSocket));
    this.#options.log.debug("TLS handshake failed", { error: error.message });
    // Node leaves a connection open whose handshake timed out.
    socket.destroy();
  };

  get #handshakeMs(): number {
    return this.#options.handshakeMs ?? HANDSHAKE_MS;
  }

  /** `begin`: has the entry's own server begin the handshake. */
  #begin(entry: Entry, socket: Socket, begin: () => void): void {
    const certificates = this.#options.certificates?.();
    const issued = certificates?.issued;
    if (issued === undefined) return begin();
    const usual = () => {
      const pair = certificates?.atAddress?.(plainAddress(socket.localAddress));
      if (pair === undefined) return begin();
      this.#serverFor(entry, pair ?? NO_PAIR).emit("connection", socket);
    };
    if (issued.isChallengedOverTls) this.#beginChallenged(socket, issued, usual);
    else usual();
  }

  #serverFor(entry: Entry, pair: Pair | NoPair): tls.Server {
    const server = entry.servers.get(pair) ?? entry.serverWith(pair);
    entry.servers.set(pair, server);
    return server;
  }

  /** While a challenge is open, what a client asks for decides which certificate it gets (RFC 8737 §3). */
  #beginChallenged(socket: Socket, issued: IssuedPairs, usual: () => void): void {
    const reading = {
      clock: this.#options.clock,
      // `endIdle` ends it already.
      drain: { add: ignore, remove: ignore },
      receiving: () => ({ limits: { headersTimeoutMs: this.#handshakeMs } }),
    };
    const readHello = clientHelloReader();
    readFirstBytes(socket, reading, {
      read(bytes) {
        const hello = readHello(bytes);
        return hello === "part" ? null : hello;
      },
      decided: (hello, bytes) => {
        socket.unshift(bytes);
        const isValidator = hello !== "other" && hello.protocols?.join() === ACME_PROTOCOL;
        const pair = isValidator ? issued.challengePair(hello.servername ?? "") : undefined;
        if (pair === undefined) usual();
        else this.#answerChallenge(socket, pair);
      },
      late: () => void socket.destroy(),
    });
  }

  #answerChallenge(socket: Socket, pair: Pair): void {
    let server = this.#challengeServers.get(pair);
    if (server === undefined) this.#challengeServers.set(pair, (server = this.#challengeServer(pair)));
    server.emit("connection", socket);
  }

  /** The handshake is all: no bytes follow it. Whoever checks has no certificate, whatever clients need. */
  #challengeServer({ cert, key }: Pair): tls.Server {
    const options: tls.TlsOptions = {
      cert,
      key,
      minVersion: "TLSv1.2",
      handshakeTimeout: this.#handshakeMs,
      ALPNCallback: () => ACME_PROTOCOL,
    };
    const server = guardedEmitter(tls.createServer(options));
    server.on("secureConnection", (checked) => {
      const tcp = this.#handshakes.get(addressesOf(checked));
      guardedEmitter(checked).on("error", ignore);
      checked.end(() => tcp?.destroy());
    });
    server.on("tlsClientError", this.#handshakeFailed);
    return server;
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
    entry.servers = new WeakMap();
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
    for (const each of this.#entries) {
      each.server.setTicketKeys(this.#ticketKey);
      // They are made with the key.
      each.servers = new WeakMap();
    }
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
    // A ticket would have OpenSSL's verdict, without that of the lists, and not the CAs between.
    const noTickets = ca === null || this.#rules.clientCrl === undefined ? 0 : constants.SSL_OP_NO_TICKET;
    return {
      ...(cert === null ? {} : { cert, key }),
      ...(ca === null ? {} : { ca }),
      ...rules,
      // Renegotiation costs the server far more than the client, and nothing needs it; TLS 1.3 has none.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION | noTickets,
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
    if (pair === undefined && entry.files.cert !== null) return undefined;
    if (pair === undefined || pair === null) {
      // RFC 6066 §3. OpenSSL would choose handshake_failure, which says nothing to whoever reads the client's log.
      const alert = pair === null ? INTERNAL_ERROR : UNRECOGNIZED_NAME;
      this.#handshakes.get(addressesOf(socket))?.write(alert);
      const what = pair === null ? "the certificate that is ordered is not there yet for " : NO_CERTIFICATE;
      throw new Error(what + JSON.stringify(servername));
    }
    return this.#contextWith(entry, pair);
  }

  #contextWith(entry: Entry, pair: Pair | NoPair): SecureContext {
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

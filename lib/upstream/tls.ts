/**
 * TLS to upstreams: by the settings of a service, with sessions that the next connection resumes.
 */
import { createHash } from "node:crypto";
import { isIP, type Socket } from "node:net";
import tls, { type PeerCertificate, type SecureContext, type TLSSocket } from "node:tls";
import type { Secure } from "../base/egress.ts";
import { systemClock, type Clock } from "../base/clock.ts";
import { overTls } from "../base/egress_tls.ts";
import { shownChain, revokedIn } from "../base/revocation.ts";
import { contextRules, groupOf } from "../base/tls_rules.ts";
import type { Address, ConnectTarget, TlsToUpstreams, UpstreamTlsSettings, UpstreamTlsTools } from "./contracts.ts";
import { connect } from "./connect.ts";

export class UpstreamTls implements TlsToUpstreams {
  readonly identity: string;
  readonly #settings: UpstreamTlsSettings;
  /** Of all hosts: to read a bundle of certificates takes ten milliseconds, and a megabyte. Made when first needed. */
  #context: SecureContext | null = null;
  readonly #clock: Clock;
  readonly #handshakes: NonNullable<UpstreamTlsTools["handshakes"]> | null;

  constructor(settings: UpstreamTlsSettings = {}, { clock = systemClock, handshakes = null }: UpstreamTlsTools = {}) {
    this.#clock = clock;
    this.#handshakes = handshakes;
    const { ca, cert, key, servername, verify = true, crl, crlExpired } = settings;
    const rules = JSON.stringify(contextRules(settings, "client"));
    const hash = createHash("sha256");
    for (const part of [
      ca?.content,
      cert?.content,
      key?.content,
      servername,
      String(verify),
      rules,
      crl?.content,
      crlExpired,
    ]) {
      // With the lengths, bytes that move from one part to the next make another identity.
      hash.update(part === undefined ? "-;" : `${part.length};`).update(part ?? "");
    }
    this.identity = hash.digest("hex");
    this.#settings = settings;
  }

  options(host: string): Secure {
    const { servername = host, verify = true } = this.#settings;
    const name = servername.endsWith(".") ? servername.slice(0, -1) : servername;
    return overTls({
      secureContext: (this.#context ??= this.#newContext()),
      // SNI cannot carry an address (RFC 6066 §3), but a certificate can.
      servername: isIP(name) === 0 ? name : "",
      // Not asked where a session is resumed.
      checkServerIdentity: (_host: string, certificate: PeerCertificate) =>
        tls.checkServerIdentity(name, certificate) ?? this.#whyRevoked(certificate),
      // Set in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
      rejectUnauthorized: verify,
    });
  }

  #newContext(): SecureContext {
    const { ca, cert, key } = this.#settings;
    return tls.createSecureContext({
      ca: ca?.content,
      cert: cert?.content,
      key: key?.content,
      ...contextRules(this.#settings, "client"),
    });
  }

  connector(to: ConnectTarget, protocols?: readonly string[]): (first: Address | undefined, more?: object) => Socket {
    const options = { ...this.options(to.host), ...(protocols === undefined ? {} : { ALPNProtocols: [...protocols] }) };
    // The last TLS session of each address, to be resumed by the next connection. Without a name it is the connector's
    // own.
    const sessions = new WeakMap<object, Buffer>();
    return (first, more) => {
      const owner = first ?? sessions;
      const session = sessions.get(owner);
      const socket = connect(to, options, first, session === undefined ? more : { ...more, session });
      // A session that is resumed was verified when it began: meanwhile a list may have expired.
      if (this.#settings.crl === undefined) socket.on("session", (ticket: Buffer) => void sessions.set(owner, ticket));
      if (this.#handshakes !== null) socket.once("secureConnect", () => this.#count(socket as TLSSocket));
      socket.once("close", (hadError: boolean) => {
        if (hadError) sessions.delete(owner);
      });
      return socket;
    };
  }

  #count(socket: TLSSocket): void {
    this.#handshakes?.finished("upstream", socket.getProtocol(), groupOf(socket, this.#settings, "client"));
  }

  /** `shown`: with all of its chain. */
  #whyRevoked(shown: PeerCertificate): Error | undefined {
    const { ca, crl, crlExpired: expired = "refuse" } = this.#settings;
    if (crl === undefined) return undefined;
    const revoked = revokedIn(shownChain(shown), ca?.content, { lists: crl.content, expired }, this.#clock.wall());
    if (revoked === null) return undefined;
    this.#handshakes?.refused("upstream", revoked.code.toLowerCase());
    const error = new Error(`the certificate of ${revoked.subject} is refused: ${revoked.code}`);
    return Object.assign(error, { code: revoked.code });
  }
}

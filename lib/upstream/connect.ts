/**
 * Opens a TCP or TLS connection to an upstream, by the addresses that its name has and with the TLS settings of its service.
 */
import { createHash } from "node:crypto";
import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction, type Socket } from "node:net";
import tls, { type ConnectionOptions, type PeerCertificate } from "node:tls";
import type { Dial } from "../base/egress.ts";
import type { Service } from "../config/model.ts";
import type { Address, Name } from "./addresses.ts";

export interface ConnectTarget {
  readonly host: string;
  readonly port: number;
  /** Connects to `host` and `port`. */
  readonly dial: Dial;
  /** The addresses of `host`, if it is a name. Default: Node looks the name up for every connection. */
  readonly name?: Name;
}

/**
 * Connects to the address `first`, and if that is unreachable to the other addresses of the name; without `first` it waits for the first
 * look-up. `secure`: null for plain TCP. `readyEvent` names the event that the socket emits when it can be used.
 */
export function connect(to: ConnectTarget, secure: ConnectionOptions | null, first: Address | undefined, more: object = {}): Socket {
  const socket = to.dial({ ...lookupOptions(to.name, first), ...more }, secure);
  // Nagle's algorithm would hold back the last small segment of each message. A host's process lives as long as the client of a request, and not
  // until an idle connection ends.
  return socket.setNoDelay(true).unref();
}

export function readyEvent(socket: Socket): "connect" | "secureConnect" {
  return socket instanceof tls.TLSSocket ? "secureConnect" : "connect";
}

export function lookupOptions(name: Name | undefined, first: Address | undefined): { lookup?: LookupFunction; autoSelectFamily?: true } {
  if (name === undefined) return {};
  const lookup: LookupFunction = (_host, { all }, done) => {
    // A promise, even if the addresses are known: `net` expects the answer in a later turn.
    name.known().then(
      (addresses) => {
        // `first` may have left the name since.
        const start = first === undefined ? 0 : Math.max(0, addresses.indexOf(first));
        const list = [...addresses.slice(start), ...addresses.slice(0, start)] as LookupAddress[];
        if (all === true) done(null, list);
        else done(null, list[0]!.address, list[0]!.family);
      },
      (error: NodeJS.ErrnoException) => done(error, [] as LookupAddress[]),
    );
  };
  return { lookup, autoSelectFamily: true };
}

export interface UpstreamTls {
  /** CA certificates, PEM. Default: the system's CA certificates. */
  readonly ca?: Buffer | undefined;
  /** Client certificate chain and its key, PEM. */
  readonly cert?: Buffer | undefined;
  readonly key?: Buffer | undefined;
  /** The name sent as SNI and verified. Default: the upstream's host. */
  readonly servername?: string | undefined;
  readonly verify: boolean;
  /** The same for the same settings and contents of files, whatever the names of the files. */
  readonly identity: string;
}

export function upstreamTls({ ca, cert, key, servername, verify }: NonNullable<Service["tls"]>): UpstreamTls {
  const hash = createHash("sha256");
  for (const part of [ca?.content, cert?.content, key?.content, servername, String(verify)]) {
    // With the lengths, bytes that move from one part to the next make another identity.
    hash.update(part === undefined ? "-;" : `${part.length};`).update(part ?? "");
  }
  return { ca: ca?.content, cert: cert?.content, key: key?.content, servername, verify, identity: hash.digest("hex") };
}

/** Options for `tls.connect`. Throws when certificate and key do not fit. */
export function tlsOptions(host: string, { ca, cert, key, servername = host, verify }: Partial<UpstreamTls> = {}): ConnectionOptions {
  const name = servername.endsWith(".") ? servername.slice(0, -1) : servername;
  return {
    // One context for all connections: reading the system's certificates takes milliseconds.
    secureContext: tls.createSecureContext({ ca, cert, key }),
    // SNI cannot carry an address (RFC 6066 §3), but a certificate can.
    servername: isIP(name) === 0 ? name : "",
    checkServerIdentity: (_host: string, certificate: PeerCertificate) => tls.checkServerIdentity(name, certificate),
    // Set in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
    rejectUnauthorized: verify ?? true,
  };
}

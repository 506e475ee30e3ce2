/**
 * What a thread serves of the certificates that the gateway orders itself (ACME, `global.acme`): the certificates by
 * host, and the answers to open challenges. The main thread orders them, and gives each thread the same.
 */
import { createHash } from "node:crypto";
import type { IssuedPairs, Pair } from "./certificates.ts";

/** What a directory asks for as proof that the gateway serves a host. */
export type Challenge =
  /** RFC 8555 §8.3: GET /.well-known/acme-challenge/<token> on the plain port is answered with `keyAuthorization`. */
  | { readonly type: "http-01"; readonly host: string; readonly token: string; readonly keyAuthorization: string }
  /**
   * RFC 8737, RFC 8738: a handshake for `servername`, with the protocol acme-tls/1 alone, gets this certificate.
   * `servername` is the host; for an IP address its name below in-addr.arpa or ip6.arpa.
   */
  | { readonly type: "tls-alpn-01"; readonly host: string; readonly servername: string; readonly pair: Pair };

/** A certificate that is to be presented, with its chain. */
export interface IssuedCertificate extends Pair {
  /** Those of `global.acme.hosts` that it is for. */
  readonly hosts: readonly string[];
}

/** For status, UI and metrics. Times are in milliseconds since 1970. */
export interface AcmeState {
  readonly directory: string;
  /** What is under way, or waited for. */
  readonly state: "starting" | "ordering" | "valid" | "waiting";
  readonly hosts: readonly AcmeHost[];
  /** The last error, in words; null: the last attempt succeeded. */
  readonly error: string | null;
  /** When the next attempt, or renewal, begins; null: one is under way, or begins at another gateway of the fleet. */
  readonly nextAt: number | null;
  /** Of this gateway, since the program started. */
  readonly orders: { readonly succeeded: number; readonly failed: number };
  /** Null: this gateway orders for itself. */
  readonly fleet: AcmeFleetState | null;
}

/** Of gateways that share their certificates: one of them orders. */
export interface AcmeFleetState {
  /** Who orders: the name and the id of its entry in the fleet; null: nobody does, or it is not known. */
  readonly holder: { readonly id: string; readonly name: string } | null;
  /** Whether this gateway orders. */
  readonly isHolder: boolean;
  /** Why this gateway cannot use what is shared, in words; null: it can. */
  readonly problem: string | null;
}

interface AcmeHost {
  readonly host: string;
  /** The end of its certificate, in milliseconds since 1970; null: it has none yet. */
  readonly notAfter: number | null;
  /** What stood against this host alone in the last attempt; null: nothing. */
  readonly error: string | null;
  /** Whether it has no certificate, or one that is to be renewed by now. */
  readonly isDue: boolean;
}

/** What one thread has to serve. */
export interface Issued {
  readonly certificates: readonly IssuedCertificate[];
  readonly challenges: readonly Challenge[];
}

export class IssuedCertificates implements Issued, IssuedPairs {
  certificates: readonly IssuedCertificate[] = [];
  #byHost: ReadonlyMap<string, Pair> = new Map();
  readonly #challenges = new Set<Challenge>();
  /**
   * By the digest of the token: how long a look-up takes says nothing about tokens, only about their digests.
   */
  readonly #authorizations = new Map<string, string>();
  /** By `servername`. */
  readonly #overTls = new Map<string, Pair>();
  /** What the keeper of the main thread says of itself; null: there is none in this thread. */
  state: (() => AcmeState) | null = null;

  get challenges(): readonly Challenge[] {
    return [...this.#challenges];
  }

  /** Whether a challenge is open that the plain port answers. */
  get isChallengedOverHttp(): boolean {
    return this.#authorizations.size > 0;
  }

  get isChallengedOverTls(): boolean {
    return this.#overTls.size > 0;
  }

  /** From the next handshake on, in place of those of before. Connections stay. */
  use(certificates: readonly IssuedCertificate[]): void {
    this.certificates = certificates;
    this.#byHost = new Map(certificates.flatMap((each) => each.hosts.map((host) => [host, each] as const)));
  }

  present(challenge: Challenge): void {
    this.#challenges.add(challenge);
    if (challenge.type === "http-01") this.#authorizations.set(digestOf(challenge.token), challenge.keyAuthorization);
    else this.#overTls.set(challenge.servername.toLowerCase(), challenge.pair);
  }

  /** A challenge that is the same, whichever object it is. */
  remove(challenge: Challenge): void {
    const name = nameOf(challenge);
    for (const each of this.#challenges) if (nameOf(each) === name) this.#challenges.delete(each);
    if (challenge.type === "http-01") this.#authorizations.delete(digestOf(challenge.token));
    else this.#overTls.delete(challenge.servername.toLowerCase());
  }

  pairFor(host: string): Pair | undefined {
    return this.#byHost.get(host);
  }

  /** Undefined: no open challenge has this token. */
  keyAuthorization(token: string): string | undefined {
    return this.#authorizations.get(digestOf(token));
  }

  challengePair(servername: string): Pair | undefined {
    return this.#overTls.get(servername.toLowerCase());
  }
}

function digestOf(token: string): string {
  return createHash("sha256").update(token).digest("base64");
}

function nameOf(challenge: Challenge): string {
  return challenge.type === "http-01" ? `token ${challenge.token}` : `name ${challenge.servername.toLowerCase()}`;
}

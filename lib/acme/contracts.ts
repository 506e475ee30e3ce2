/**
 * What the keeper of ACME certificates (RFC 8555) needs from the gateway around it, and what it tells. It orders in the
 * main thread alone; whoever serves clients answers challenges and presents certificates.
 */
import type { AcmeFleetState, AcmeState, Challenge } from "../server/issued_certificates.ts";

export type { AcmeFleetState, AcmeState, Challenge, IssuedCertificate } from "../server/issued_certificates.ts";

/** `global.acme`, with its files read. */
export interface AcmeSettings {
  /** An https:// URL. */
  readonly directory: string;
  readonly email: string | null;
  /** Names and IP addresses, in lower case and without wildcards; at most a hundred. */
  readonly hosts: readonly string[];
  /** CA certificates that the directory's server is verified with, PEM; null: the system's. */
  readonly ca: Buffer | null;
  readonly challenge: "http-01" | "tls-alpn-01";
  /** External account binding (RFC 8555 §7.3.4); null: none. */
  readonly eab: { readonly kid: string; readonly hmacKey: Buffer } | null;
  /** Asked for where the directory lists it; null: the directory's default. */
  readonly profile: string | null;
  /** Hosts besides the directory's own that its URLs may name, at port 443 or at the directory's. */
  readonly hostsAllowed: readonly string[];
}

/** Files below STATE_DIR/acme, 0600. Names have no folders. */
export interface AcmeFiles {
  /** Null: there is none. Throws where it cannot be read. */
  read(name: string): Buffer | null;
  /** Replaces it as a whole. Rejects with the system's error, and the former content stays. */
  write(name: string, content: Buffer): Promise<void>;
  remove(name: string): Promise<void>;
}

export interface ChallengeAnswers {
  /** All of an order. Resolves once every thread answers them. */
  present(challenges: readonly Challenge[]): Promise<void>;
  remove(challenges: readonly Challenge[]): Promise<void>;
}

/**
 * Gateways that share one account and one set of certificates, which are in the keeper's files then: one of them
 * orders.
 */
export interface KeeperFleet {
  readonly state: AcmeFleetState;
  /** `changed` is called when the files have something else, and when this gateway begins to order, or ends to. */
  start(changed: () => void): void;
  /** Gives up what is asked and waited for. What is written from now on takes a second at most. */
  stop(): void;
  /** Another gateway may order. Resolves once nothing is asked and written any more. */
  close(): Promise<void>;
}

/**
 * Keeps certificates for the hosts of a configuration: orders, stores and renews them. Nothing is asked before `start`.
 */
export interface CertificateKeeper {
  readonly state: AcmeState;
  /** What is there already, from the files; then, beside the traffic, what is missing or to be renewed. */
  start(): void;
  /** Other settings, or a reload: what failed is tried at once, unless it still runs. */
  configure(settings: AcmeSettings): void;
  /** Replaces the account's key (RFC 8555 §7.3.5): the new one is on disk before the request. Rejects in words. */
  rollover(): Promise<void>;
  /** Resolves once nothing is asked and written any more. What was ordered is taken up by the next start. */
  close(): Promise<void>;
}

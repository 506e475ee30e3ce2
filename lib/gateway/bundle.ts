/**
 * What the threads of one program need to serve the same configuration: all of its inputs, and the interface between
 * the gateway of the main thread, which reads and checks it, and the gateways of the workers, which follow.
 */
import type { ConfigSource } from "../config/source.ts";
import type { Handler } from "../http/handler.ts";
import type { TlsFiles } from "../server/certificates.ts";
import type { Challenge, IssuedCertificate } from "../server/issued_certificates.ts";
import type { Purge } from "../plugins/cache/purge.ts";
import type { UpstreamState } from "../upstream/taken_out.ts";

/** All inputs of one configuration, so that a worker compiles what the main thread has compiled, and reads no file. */
export interface Bundle {
  /** A new number for each configuration that is prepared, from 1 on. */
  readonly version: number;
  readonly source: ConfigSource;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Certificates, secrets, modules and other files that the configuration names, by absolute path. */
  readonly files: ReadonlyMap<string, Buffer>;
  /** The memory that the threads share, by name. */
  readonly memory: ReadonlyMap<string, ArrayBufferLike>;
}

/** "counts": without the figures of the thread, whose lag is measured from one reading to the next. */
export type ReportExtent = "counts" | "all";

/** The gateways of all workers, as the one of the main thread sees them. */
export interface Followers {
  readonly serving: number;
  /** How many were replaced since the start. */
  readonly restarts: number;
  /** How many threads have not ended; more than there should be while one that was replaced hangs in a native call. */
  readonly alive: number;
  /** Ends all workers; resolves when they have ended. */
  terminate(): Promise<void>;
  /**
   * Adds what all workers have counted to `Gateway.reports`; after half a second without those that have not answered.
   */
  collect(extent: ReportExtent): Promise<void>;
  /**
   * Has every worker compile the configuration. Rejects with the reason if one of them refuses; a worker that ends
   * meanwhile does not.
   */
  prepare(bundle: Bundle): Promise<void>;
  /** Every worker that has prepared the configuration brings it into force before it answers its next request. */
  commit(bundle: Bundle): void;
  /** The prepared configuration is dropped. */
  abandon(): void;
  renewTls(files: TlsFiles): void;
  /** Certificates of `global.acme`, all of them, for the next handshakes of every worker. */
  useCertificates(certificates: readonly IssuedCertificate[]): void;
  /**
   * Resolves when every worker answers a challenge, or does not any more. A worker that does not answer for seconds
   * follows later.
   */
  setChallenge(challenge: Challenge, is: "open" | "over"): Promise<void>;
  /**
   * Resolves when every worker has taken an upstream out, or back. A worker that does not answer for seconds does so
   * later.
   */
  setUpstream(upstream: UpstreamState): Promise<void>;
  /** Resolves with the number of stored replies that all workers have dropped. */
  purge(purge: Purge): Promise<number>;
  announceStop(): void;
  close(graceMs: number): Promise<"drained" | "cut">;
}

export type Watch = (handler: Handler, route: WatchedRoute) => Handler;

export interface WatchedRoute {
  readonly service: string;
  readonly route: string;
  /** The kinds of its plugins that are not the gateway's own. */
  readonly plugins: readonly string[];
}

/** A configuration that came from another thread, where a Buffer arrives as a Uint8Array. */
export function received<T extends Pick<Bundle, "source" | "files">>(bundle: T): T {
  const { source } = bundle;
  const files = new Map(Array.from(bundle.files, ([path, content]) => [path, asBuffer(content)]));
  if (!("text" in source) || typeof source.text === "string") return { ...bundle, files };
  return { ...bundle, files, source: { ...source, text: asBuffer(source.text) } };
}

/** A view of the same bytes. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

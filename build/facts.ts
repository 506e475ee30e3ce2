/**
 * What goes into a release.
 */
import { createHash } from "node:crypto";

/** The part of package-lock.json that is used here. */
export interface Lock {
  readonly packages: Readonly<
    Record<
      string,
      { readonly version?: string; readonly integrity?: string; readonly license?: string; readonly resolved?: string }
    >
  >;
}

/** Nothing here differs between two machines that build the same commit with the same Node and npm. */
export interface Facts {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly commit: string;
  readonly tree: string;
  /** Seconds since 1970. */
  readonly epoch: number;
  readonly node: string;
  readonly npm: string;
  readonly lock: Lock;
  /** SHA-256 of package-lock.json. */
  readonly lockSum: string;
  readonly tarball: Artefact;
  /** SHA-256 of the tarball before its compression, which depends on the zlib of Node. */
  readonly tarSum: string;
}

export interface Artefact {
  readonly name: string;
  readonly content: Buffer;
}

export function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

/** "sha512-" and base64, as package-lock.json writes it. */
export function hexOf(integrity: string | undefined, path: string): string {
  const [, digest] = /^sha512-(\S+)$/.exec(integrity ?? "") ?? [];
  if (digest === undefined) throw new Error(`package-lock.json has no SHA-512 of ${path}`);
  return Buffer.from(digest, "base64").toString("hex");
}

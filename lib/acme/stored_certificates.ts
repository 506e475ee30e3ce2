/**
 * The certificates in `certificates.pem`, each with its key, the newest first: one file, so that they cannot be mixed.
 *
 * ```
 * Directory: https://ca.internal/acme/directory
 * -----BEGIN PRIVATE KEY-----
 * -----BEGIN CERTIFICATE-----     the chain
 * ```
 *
 * There are several while a host could not be renewed together with the others: its former certificate stays.
 */
import { messageOf } from "../base/errors.ts";
import { coversHost } from "../base/pem.ts";
import { chainOf, chainProblem, type CertificateChain } from "./chain.ts";
import type { AcmeFiles } from "./contracts.ts";
import { keyFrom, pemOf } from "./signing_request.ts";
import type { KeyObject } from "node:crypto";

export interface StoredCertificate {
  readonly chain: CertificateChain;
  /** PEM. */
  readonly key: Buffer;
  /** Its URL. */
  readonly directory: string;
  /** Milliseconds since 1970; null: a former process has got it. */
  readonly obtainedAt: number | null;
  /** Whether it is for the host. */
  readonly covers: (host: string) => boolean;
}

/** The name of the file. */
export const CERTIFICATES = "certificates.pem";

/** `problem` completes "certificates.pem …": undefined when all of it can be used. What can is there in any case. */
export function readCertificates(files: AcmeFiles): {
  readonly certificates: readonly StoredCertificate[];
  readonly problem?: string;
} {
  let content: Buffer | null;
  try {
    content = files.read(CERTIFICATES);
  } catch (error) {
    return { certificates: [], problem: `cannot be read: ${messageOf(error)}` };
  }
  return certificatesIn(content);
}

function certificatesIn(content: Buffer | null): ReturnType<typeof readCertificates> {
  const certificates: StoredCertificate[] = [];
  let problem: string | undefined;
  for (const part of content?.toString("latin1").split(/^(?=Directory: )/m) ?? []) {
    try {
      certificates.push(certificateIn(part));
    } catch (error) {
      problem = `is damaged: ${messageOf(error)}`;
    }
  }
  return problem === undefined ? { certificates } : { certificates, problem };
}

function certificateIn(part: string): StoredCertificate {
  const directory = /^Directory: (\S+)\n/.exec(part)?.[1];
  const key = /-----BEGIN PRIVATE KEY-----[\sA-Za-z0-9+/=]{1,4096}-----END PRIVATE KEY-----\n/.exec(part)?.[0];
  if (directory === undefined || key === undefined) throw new Error("a certificate in it has no key");
  const chain = chainOf(part);
  const problem = chainProblem(chain, readableKey(key), []);
  if (problem !== undefined) throw new Error(`a certificate in it ${problem}`);
  return { chain, key: Buffer.from(key), directory, obtainedAt: null, covers: coverageOf(chain) };
}

/** Each host is asked for once: a hundred of them take OpenSSL 5 ms, and each look and each status asks for all. */
function coverageOf({ leaf }: CertificateChain): (host: string) => boolean {
  const known = new Map<string, boolean>();
  return (host) => {
    const covered = known.get(host) ?? coversHost(leaf, host);
    known.set(host, covered);
    return covered;
  };
}

/** Node's message may have a part of what it could not read. */
function readableKey(pem: string): KeyObject {
  try {
    return keyFrom(Buffer.from(pem));
  } catch {
    throw new Error("a key in it cannot be read");
  }
}

/** Rejects with the system's error, and the former file stays. */
export function writeCertificates(files: AcmeFiles, certificates: readonly StoredCertificate[]): Promise<void> {
  return files.write(CERTIFICATES, contentOf(certificates));
}

function contentOf(certificates: readonly StoredCertificate[]): Buffer {
  const parts = certificates.flatMap(({ directory, key, chain }) => [
    Buffer.from(`Directory: ${directory}\n`),
    key,
    chain.pem,
  ]);
  return Buffer.concat(parts);
}

/**
 * The content of `shared`, before it those certificates of `own` that are newer than all of the same directory in
 * `shared`. `shared` itself: there are none. A directory's clock alone is compared with itself.
 */
export function withNewer(shared: Buffer, own: Buffer): Buffer {
  if (shared.equals(own)) return shared;
  const { certificates } = certificatesIn(shared);
  const newer = certificatesIn(own).certificates.filter(({ directory, chain }) => {
    const begins = certificates.filter((each) => each.directory === directory).map((each) => each.chain.notBefore);
    return begins.length > 0 && begins.every((each) => each < chain.notBefore);
  });
  return newer.length === 0 ? shared : contentOf([...newer, ...certificates]);
}

/** The certificate that the host is served with: the newest one that is not over, else the newest one. */
export function certificateFor(
  host: string,
  certificates: readonly StoredCertificate[],
  now: number,
): StoredCertificate | undefined {
  const covering = certificates.filter((each) => each.covers(host));
  return covering.find(({ chain }) => now <= chain.notAfter) ?? covering[0];
}

/** A certificate that has just been obtained. */
export function storedCertificate(
  chain: CertificateChain,
  key: KeyObject,
  directory: string,
  obtainedAt: number,
): StoredCertificate {
  return { chain, key: pemOf(key), directory, obtainedAt, covers: coverageOf(chain) };
}

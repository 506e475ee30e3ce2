/**
 * Has new content of certificates, keys and authorities taken while the gateway runs, and watches for it.
 * What is read and judged how is `tls_files.ts` for the settings' files, and the gateway's own affair for the configuration's.
 */
import { resolve } from "node:path";
import type { Log } from "../base/log.ts";
import { watchFile } from "../config/watch.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { TlsFiles } from "../server/tls.ts";
import { readTlsFiles, type TlsSettings } from "./tls_files.ts";

/** What shows the server certificate, where it does; and the files that it began with. */
export interface TlsUsers {
  readonly gateway?: { renewTls(files: TlsFiles): void };
  readonly admin?: { renewTls(files: TlsFiles): void } | null;
  readonly manager?: { renewTls(files: TlsFiles): void } | null;
  readonly tls: TlsFiles | null;
}

/**
 * Takes the settings' files once they have changed and belong together. Certificate and key are seldom exchanged in one step: as long
 * as they do not fit, or one of them is no good, the log says so and the old ones stay.
 */
export function createTlsRenewal(settings: TlsSettings, log: Log): (started: TlsUsers) => void {
  let taken: TlsFiles | null = null;
  return ({ gateway, admin, manager, tls }) => {
    try {
      const files = readTlsFiles(settings, log);
      const inUse = taken ?? tls;
      if (files === null || inUse === null || sameFiles(files, inUse)) return;
      gateway?.renewTls(files);
      admin?.renewTls(files);
      manager?.renewTls(files);
      taken = files;
      log.info("server certificate, key and CA read again: taken", { file: settings.serverCertPath });
    } catch (error) {
      log.error("new certificate files refused, the old ones stay in use", { reason: (error as Error).message });
    }
  };
}

/** Takes new content of the files that the configuration in force names. */
export function rereadFrom(gateway: Gateway, log: Log): void {
  try {
    if (gateway.rereadFiles()) log.info("files that the configuration names read again: taken", { digest: gateway.digest });
  } catch (error) {
    log.error("new files that the configuration names refused, the old ones stay in use", { reason: (error as Error).message });
  }
}

export interface WatchedFiles {
  /** What to watch from now on; what was watched before stays so without a gap. */
  follow(paths: readonly string[]): void;
  close(): void;
}

/** `onChange` is called after any of the files has changed. */
export function watchFiles(onChange: () => void): WatchedFiles {
  const watchers = new Map<string, { close(): void }>();
  const follow = (paths: readonly string[]) => {
    const wanted = new Set(paths.map((path) => resolve(path)));
    for (const [path, watcher] of watchers) {
      if (wanted.has(path)) continue;
      watcher.close();
      watchers.delete(path);
    }
    for (const path of wanted) if (!watchers.has(path)) watchers.set(path, watchFile(path, { onChange }));
  };
  return { follow, close: () => follow([]) };
}

function sameFiles(a: TlsFiles, b: TlsFiles): boolean {
  const sameCa = a.ca === null || b.ca === null ? a.ca === b.ca : a.ca.equals(b.ca);
  return sameCa && a.cert.equals(b.cert) && a.key.equals(b.key);
}

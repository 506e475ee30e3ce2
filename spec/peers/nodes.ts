/**
 * Finds the Node releases, installed from npm beside the peers, with which the gateway runs several workers; the one
 * that runs the specs may be older.
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type Release = 22 | 24;
export const RELEASES: readonly Release[] = [22, 24];

/** The path of its `node`. Throws where npm has none for this machine. */
export function nodeOf(release: Release): string {
  const path = fileURLToPath(
    new URL(`node_modules/node${release}${process.arch === "arm64" ? "-arm64" : ""}/bin/node`, import.meta.url),
  );
  if (!existsSync(path))
    throw new Error(`there is no ${path}: "npm ci --prefix spec/peers" installs it on Linux with x64 or arm64`);
  return path;
}

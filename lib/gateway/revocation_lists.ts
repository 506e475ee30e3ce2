/**
 * What is reported of the revocation lists that a configuration names.
 */
import { mayHaveLists, readListsAhead, revocationListsIn, type RevocationList } from "../base/crl.ts";
import type { Log } from "../base/log.ts";
import type { ShownRevocationList } from "./status.ts";

/**
 * Reads again those files that had lists, in slices: `loadSteps` would read them in one turn. Files that cannot be read
 * are left to it. Returns a function that ends the memory of what was read, once it has been loaded.
 */
export async function readRevocationListsAhead(
  files: Iterable<{ readonly path: string; readonly content: Buffer }>,
  readFile: (path: string) => Buffer,
): Promise<() => void> {
  const held: Buffer[] = [];
  for (const { path, content } of files) {
    if (!mayHaveLists(content)) continue;
    try {
      held.push(readFile(path));
    } catch {
      continue;
    }
    await readListsAhead(held.at(-1)!);
  }
  return () => void held.splice(0);
}

/** A list that has ended or has not begun is used with a warning: it is the configuration that decides what it does. */
export function shownRevocationLists(
  where: string,
  { path, content }: { readonly path: string; readonly content: Buffer },
  log: Log,
  wall: number,
): readonly ShownRevocationList[] {
  const lists = revocationListsIn(content);
  // A newer one takes the place of those before.
  const counting = lists.filter((list) => !lists.some((other) => isNewer(other, list)));
  return counting.map(({ issuerName, thisUpdate, nextUpdate }) => {
    if (wall > nextUpdate) log.warn("a revocation list has expired", { file: path, issuer: issuerName });
    if (wall < thisUpdate) log.warn("a revocation list is not valid yet", { file: path, issuer: issuerName });
    return { where, path, issuer: issuerName, notAfter: nextUpdate };
  });
}

function isNewer(one: RevocationList, other: RevocationList): boolean {
  return one.issuer.equals(other.issuer) && one.thisUpdate > other.thisUpdate;
}

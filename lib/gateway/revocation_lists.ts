/**
 * What is reported of the revocation lists that a configuration names.
 */
import { revocationListsIn, type RevocationList } from "../base/crl.ts";
import type { Log } from "../base/log.ts";
import type { ShownRevocationList } from "./status.ts";

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

/**
 * Shares the certificates of `global.acme` among the gateways of a fleet, whose configuration is in etcd
 * (ACME_FLEET_KEY_FILE).
 */
import { AcmeFleet, type AcmeFleetOptions } from "../acme/fleet.ts";
import { SealingKey } from "../base/sealing_key.ts";
import type { FleetMember } from "./fleet_member.ts";

/** Called for each configuration that begins to have `global.acme`. */
export type ShareCertificates = (own: Pick<AcmeFleetOptions, "files" | "answers" | "clock" | "log">) => AcmeFleet;

/** `key`: 32 bytes. */
export function sharingIn(member: FleetMember, key: Buffer): ShareCertificates {
  const sealing = new SealingKey(key);
  return (own) =>
    new AcmeFleet({
      ...own,
      client: member.openClient(),
      key: member.key,
      sealing,
      identity: member.identity,
      serves: (revision) => member.serveAcme(revision),
    });
}

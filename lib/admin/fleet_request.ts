/**
 * Answers `GET /gateway/fleet`: what the gateways of a configuration in etcd run, by the entries that they keep there.
 */
import { messageOf } from "../base/errors.ts";
import { compressed } from "../http/content_coding.ts";
import type { Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import type { Fleet, FleetEntry } from "../source/fleet_entries.ts";
import { json } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

/** An entry that is not of the form has an id alone. */
interface FleetView {
  /** Null: the configuration is not in etcd. */
  readonly key: string | null;
  readonly own_id: string | null;
  /** Why the gateways are not known; null: they are. */
  readonly problem: string | null;
  /** How many there are: `gateways` has 1,000 at most. */
  readonly count: number;
  readonly gateways: readonly ({ readonly id: string } & Partial<FleetEntry>)[];
}

export async function fleetRequest({ headers }: Inbound, { fleet = null }: InterfaceOptions): Promise<Reply> {
  return compressed(json(200, await viewOf(fleet)), headers);
}

async function viewOf(fleet: Fleet | null): Promise<FleetView> {
  const none = { key: null, own_id: null, problem: null, count: 0, gateways: [] };
  if (fleet === null) return none;
  const { name: key, ownId } = fleet;
  try {
    const listed = await fleet.list();
    const gateways = listed.slice(0, MAX_LISTED).map(({ id, entry }) => ({ id, ...entry }));
    return { key, own_id: ownId, problem: null, count: listed.length, gateways };
  } catch (error) {
    return { ...none, key, own_id: ownId, problem: messageOf(error) };
  }
}

const MAX_LISTED = 1_000;

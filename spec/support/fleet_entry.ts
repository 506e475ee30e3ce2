/** What a gateway has written about itself, for specs of those who read it. */
import type { FleetEntry } from "../../lib/source/fleet_entries.ts";

export const ENTRY: FleetEntry = {
  name: "web-1:8008",
  host: "web-1",
  version: "1.2.3",
  digest: "0123456789ab",
  since: "2026-05-04T03:02:01.000Z",
  ready: true,
};

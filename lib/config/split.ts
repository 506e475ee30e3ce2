/**
 * The schema of `split`: which percentages of a service's requests go to which groups of its upstreams.
 */
import { suggest } from "../base/suggest.ts";
import { NAME } from "./fields.ts";
import { HASH_ON } from "./hash_on.ts";
import type { Path } from "./json.ts";
import * as s from "./schema.ts";

const SHARE = s.object({
  group: NAME,
  percent: s.percent({ describe: "Percentage of the requests that goes to the group." }),
  hash_on: s.optional(HASH_ON),
});

export const SPLIT = s.array(SHARE, { min: 1, max: 100, describe: "Percentages of the requests that go to groups of upstreams." });

type Shares = s.Infer<typeof SPLIT>;
type Upstreams = readonly { readonly group?: string }[];
type Report = (message: string, ...under: Path) => void;

/** Reports what is wrong with the shares together, and beside the upstreams of their service. */
export function checkSplit(shares: Shares, upstreams: Upstreams, report: Report): void {
  const groups = [...new Set(upstreams.flatMap(({ group }) => group ?? []))];
  const first = shares.find(isCommon);
  shares.forEach((share, i) => {
    if (!groups.includes(share.group)) report(unknownGroup(share.group, groups), "split", i, "group");
    if (!isCommon(share)) return;
    const same = shares.findIndex((other) => isCommon(other) && other.group === share.group);
    if (same < i) report(`has its percentage in split[${same}]: write one entry, or give one of them a "match"`, "split", i, "group");
    if (share.hashOn !== first!.hashOn) report(otherHash(shares.indexOf(first!), first!.hashOn), "split", i, ...(share.hashOn === undefined ? [] : ["hash_on"]));
  });
  // In hundredths of a percent: sums of fractions are not exact.
  const sum = shares.filter(isCommon).reduce((all, { percent }) => all + Math.round(percent * 100), 0);
  if (sum > 10_000) report(`adds up to ${sum / 100} %: entries without "match" divide 100 %`, "split");
}

function isCommon(_share: Shares[number]): boolean {
  return true;
}

function unknownGroup(group: string, known: readonly string[]): string {
  const nearest = suggest(group, known);
  const help = nearest !== undefined ? `did you mean "${nearest}"?` : known.length === 0 ? 'add "group" to some of them' : `known here: ${known.join(", ")}`;
  return `is the group of no upstream of this service (${help})`;
}

function otherHash(place: number, hashOn: string | undefined): string {
  const has = hashOn === undefined ? 'has no "hash_on"' : `has "hash_on": "${hashOn}"`;
  return `has to be as in all entries without "match", so that no caller changes sides: split[${place}] ${has}`;
}

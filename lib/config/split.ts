/**
 * The schema of `split`: which percentages of a service's requests go to which groups of its upstreams.
 */
import { suggest } from "../base/suggest.ts";
import { CONDITIONS } from "./conditions.ts";
import { NAME } from "./fields.ts";
import { HASH_ON, parameterProblem } from "./hash_on.ts";
import type { Path } from "./json.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

const SHARE = s.object({
  group: NAME,
  percent: s.percent({ describe: "Percentage of the requests that goes to the group." }),
  hash_on: s.optional(HASH_ON),
  match: s.optional(CONDITIONS),
});

export const SPLIT = s.array(SHARE, {
  min: 1,
  max: 100,
  describe: "Percentages of the requests that go to groups of upstreams.",
});

type Shares = s.Infer<typeof SPLIT>;

interface Divided {
  readonly basePath: string;
  readonly routes: readonly { readonly path: string }[];
  readonly upstreams: readonly { readonly group?: string }[];
  readonly split?: Shares;
}

/** Reports what is wrong with the shares of a service together, and beside its upstreams and routes. */
function checkSplit(
  { basePath, routes, upstreams, split = [] }: Divided,
  report: (message: string, ...under: Path) => void,
): void {
  const groups = [...new Set(upstreams.flatMap(({ group }) => group ?? []))];
  const patterns = [basePath, ...routes.map(({ path }) => path)];
  const first = split.findIndex(isCommon);
  split.forEach((share, i) => {
    const { group, hashOn } = share;
    if (!groups.includes(group)) report(unknownGroup(group, groups), "split", i, "group");
    const problem = hashOn === undefined ? undefined : parameterProblem(hashOn, patterns);
    if (problem !== undefined) report(problem, "split", i, "hash_on");
    if (!isCommon(share)) return;
    const same = split.findIndex((other) => isCommon(other) && other.group === group);
    if (same < i)
      report(
        `has its percentage in split[${same}]: write one entry, or give one of them a "match"`,
        "split",
        i,
        "group",
      );
    if (hashOn !== split[first]!.hashOn)
      report(otherHash(first, split[first]!.hashOn), "split", i, ...(hashOn === undefined ? [] : ["hash_on"]));
  });
  // In hundredths of a percent: sums of fractions are not exact.
  const sum = split.filter(isCommon).reduce((all, { percent }) => all + Math.round(percent * 100), 0);
  if (sum > 10_000) report(`adds up to ${sum / 100} %: entries without "match" divide 100 %`, "split");
}

/** Whether it divides all requests, beside the others of this sort. */
function isCommon({ match }: Shares[number]): boolean {
  return match === undefined;
}

function unknownGroup(group: string, known: readonly string[]): string {
  const nearest = suggest(group, known);
  const help =
    nearest !== undefined
      ? `did you mean "${nearest}"?`
      : known.length === 0
        ? 'add "group" to some of them'
        : `known here: ${known.join(", ")}`;
  return `is the group of no upstream of this service (${help})`;
}

function otherHash(place: number, hashOn: string | undefined): string {
  const has = hashOn === undefined ? 'has no "hash_on"' : `has "hash_on": "${hashOn}"`;
  return (
    `"hash_on" has to be the same in all entries without "match", ` +
    `so that no caller changes sides: split[${place}] ${has}`
  );
}

export const fields: FeatureFields = { schemas: { split: SPLIT }, checkService: checkSplit };

/**
 * What is in force: since when, its digest and contents, its tests, and the last reload.
 */
import { ageOf } from "./ages.ts";
import type { Reload, Status } from "./api.ts";
import { factList, fixedBadge, link } from "./components.ts";
import { el } from "./dom.ts";
import { moment, number } from "./format.ts";

const BY: Readonly<Record<Reload["by"], string>> = {
  file: "a change of the file",
  source: "the source",
  signal: "a signal (SIGHUP)",
  admin: "the admin interface",
  api: "the program the gateway is embedded in",
};

export function configFacts({ digest, loaded_at: loaded, last_reload: last, counts, tests }: Status): HTMLElement {
  return factList([
    ["In force since", el("span", {}, moment(loaded), " (", ageOf(loaded), ")")],
    ["Digest", el("span", { class: "mono" }, digest)],
    ["Contents", countsText(counts)],
    ["Tests", link("#/tests", testsText(tests))],
    ["Last reload", last === null ? "none since the start" : lastReload(last)],
  ]);
}

/** What of the status is in the facts. */
export function shownOf({
  digest,
  loaded_at: loaded,
  last_reload: last,
  last_change: change,
  counts,
  tests,
}: Status): unknown {
  return [digest, loaded, last, change, counts, tests];
}

function lastReload({ at, by, outcome }: Reload): HTMLElement {
  const badge = outcome === "taken" ? fixedBadge("good", "Accepted") : fixedBadge("bad", "Refused");
  return el("span", {}, badge, " ", ageOf(at), `, by ${BY[by]}`);
}

function testsText(tests: Status["tests"]): string {
  if (tests === null) return "none";
  return tests.failed > 0
    ? `${number(tests.failed)} failed, ${number(tests.passed)} passed`
    : `${number(tests.passed)} passed`;
}

/** "3 services, 1 route" */
function countsText(counts: Status["counts"]): string {
  const noun = (what: string, count: number) => (count === 1 ? what.replace(/s$/, "") : what).replaceAll("_", " ");
  return Object.entries(counts)
    .map(([what, count]) => `${number(count)} ${noun(what, count)}`)
    .join(", ");
}

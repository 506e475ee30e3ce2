/**
 * `npm run compared` on this repository's own versions: the last release is built from its commit, and compared with
 * this one.
 */
import { expect, it } from "vitest";
import { buildCommit, commitOf, comparisons, HEADING, sectionOf } from "../../build/compared.ts";
import { version } from "../../lib/base/version.ts";
import { read } from "../support/documents.ts";
import { emptyFolder } from "./built.ts";

/** What the changelog says of this version, which may not be released yet. */
const said =
  read("CHANGELOG.md")
    .split(/^(?=## \[)/m)
    .find((part) => part.startsWith(`## [${version.includes("-") ? "Unreleased" : version}]`)) ?? "";
const [, last] = new RegExp(`^${HEADING}(\\S+)$`, "m").exec(said) ?? [];
const commit = last && commitOf(last);
const why =
  last === undefined
    ? "skipped, since CHANGELOG.md has no section yet: npm run compared"
    : commit === undefined
      ? `skipped, since the history here does not have ${last} (a shallow clone)`
      : null;

it.skipIf(why !== null)(
  `the last release differs from this version as CHANGELOG.md says${why === null ? "" : `: ${why}`}`,
  () => {
    const folder = emptyFolder();
    buildCommit(commit!, folder);
    const section = sectionOf(comparisons(folder));
    expect(section.match(/^- `\w+\.json`: ./gm)!.length).toBeGreaterThan(4);
    // If it says something else: npm run compared.
    expect(said).toContain(section);
  },
);

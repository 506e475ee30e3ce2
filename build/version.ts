/**
 * Part of `npm version`: writes the new version wherever a document or an example names the old one; a release gets its
 * heading in CHANGELOG.md.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const { npm_old_version: old = "", npm_new_version: now = "" } = process.env;
const git = (...words: readonly string[]) => execFileSync("git", words, { encoding: "utf8" });

for (const path of git("grep", "--files-with-matches", "--fixed-strings", old, "--", "README.md", "docs", "examples")
  .trim()
  .split("\n")) {
  change(path, (text) =>
    text.replaceAll(new RegExp(`(?<=edge-gateway[- :]|"version":")${old.replaceAll(".", "\\.")}(?![\\w-])`, "g"), now),
  );
}
if (!now.includes("-"))
  change("CHANGELOG.md", (text) =>
    text.replace("## [Unreleased]\n", `$&\n## [${now}] - ${new Date().toISOString().slice(0, 10)}\n`),
  );

function change(path: string, by: (text: string) => string): void {
  writeFileSync(path, by(readFileSync(path, "utf8")));
  git("add", path);
}

/** `npm version` in a repository that names its version as this one does, by the lines under "Make a release". */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, document, root } from "../support/documents.ts";

const project = mkdtempSync(join(tmpdir(), "edge-gateway-version-"));
afterAll(() => rmSync(project, { recursive: true, force: true }));
const who = {
  GIT_AUTHOR_NAME: "a",
  GIT_AUTHOR_EMAIL: "a@example.com",
  GIT_COMMITTER_NAME: "a",
  GIT_COMMITTER_EMAIL: "a@example.com",
};
const [release, make, next] = blocksOf(document("docs/releases.md"), "sh")[3]!.trim().split("\n") as [
  string,
  string,
  string,
];
const read = (name: string) => readFileSync(join(project, name), "utf8");
const today = () => new Date().toISOString().slice(0, 10);

function sh(line: string) {
  const { status, stdout, stderr } = spawnSync("sh", ["-c", line], {
    cwd: project,
    encoding: "utf8",
    env: { PATH: process.env.PATH, HOME: project, ...who },
  });
  return { status, stdout, stderr };
}

/** Each with what else must not change. */
const textsWith = (version: string): Readonly<Record<string, string>> => ({
  "README.md": `edge-gateway ${version} started, node 10.3.0\n`,
  "docs/deployment.md": `npm install edge-gateway-${version}.tgz\n`,
  "docs/health.md": `{"version":"${version}",…} {"version":"1.0"}\n`,
  "examples/edge-gateway.yaml": `image: edge-gateway:${version}\n`,
});
const texts = () => Object.fromEntries(Object.keys(textsWith("")).map((name) => [name, read(name)]));

beforeAll(() => {
  for (const name of ["build", "lib", "package.json"])
    cpSync(join(root, name), join(project, name), { recursive: true });
  writeFileSync(
    join(project, "package.json"),
    read("package.json").replace(/"version": "[^"]+"/, '"version": "0.3.0-dev"'),
  );
  writeFileSync(
    join(project, "package-lock.json"),
    JSON.stringify({
      name: "edge-gateway",
      version: "0.3.0-dev",
      lockfileVersion: 3,
      packages: { "": { version: "0.3.0-dev" } },
    }),
  );
  for (const folder of ["docs", "examples"]) mkdirSync(join(project, folder));
  for (const [name, text] of Object.entries(textsWith("0.3.0-dev"))) writeFileSync(join(project, name), text);
  writeFileSync(
    join(project, "CHANGELOG.md"),
    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- x\n\n## [0.2.0] - 2026-11-22\n",
  );
  writeFileSync(join(project, ".gitignore"), "node_modules\n.npm\n");
  symlinkSync(join(root, "node_modules"), join(project, "node_modules"));
  expect(sh("git init --quiet && git add --all && git commit --quiet --message all")).toMatchObject({ status: 0 });
});

describe("a version", { timeout: 60_000 }, () => {
  it("that ends in -dev is not released: npm run release says what to do", () => {
    expect(sh(make)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(
        "release: 0.3.0-dev is a version between releases: run npm version 0.3.0 first\n",
      ),
    });
  });

  it(
    "becomes a release in every document, example and in CHANGELOG.md by one line, " + "which makes a commit and a tag",
    () => {
      const before = today();
      expect(sh(release)).toMatchObject({ status: 0 });
      expect(texts()).toEqual(textsWith("0.3.0"));
      const heading = /^## \[Unreleased\]\n\n## \[0\.3\.0\] - (\S+)\n\n### Added$/m.exec(read("CHANGELOG.md"))!;
      expect([before, today()]).toContain(heading[1]);
      expect(sh("git status --porcelain; git tag; git log -1 --format=%s").stdout).toBe("v0.3.0\nRelease 0.3.0\n");
    },
  );

  it(
    "is no release without a comparison with the one before in CHANGELOG.md: " + "npm run release says how to get it",
    () => {
      expect(sh(make)).toMatchObject({
        status: 1,
        stderr: expect.stringContaining(
          "release: CHANGELOG.md does not say how 0.3.0 differs from the release before: run npm run compared before",
        ),
      });
    },
  );

  it("is begun in every document and example by another line, which makes a commit and no heading or tag", () => {
    const changelog = read("CHANGELOG.md");
    expect(sh(next.replaceAll("X.Y.Z", "0.4.0"))).toMatchObject({ status: 0 });
    expect(texts()).toEqual(textsWith("0.4.0-dev"));
    expect(read("CHANGELOG.md")).toBe(changelog);
    expect(sh("git status --porcelain; git tag; git log -1 --format=%s").stdout).toBe("v0.3.0\nBegin 0.4.0\n");
  });

  it("of a release does not name changes that came later: npm run release refuses them", () => {
    expect(sh("git reset --quiet --hard v0.3.0").status).toBe(0);
    writeFileSync(
      join(project, "CHANGELOG.md"),
      read("CHANGELOG.md").replace("## [Unreleased]\n", "$&\n### Fixed\n\n- y\n"),
    );
    expect(sh("git commit --quiet --all --message later").status).toBe(0);
    expect(sh(make)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("release: CHANGELOG.md has changes that 0.3.0 does not have: begin"),
    });
  });
});

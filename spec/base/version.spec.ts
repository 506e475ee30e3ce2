import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { version } from "../../lib/base/version.ts";

const tsx = pathToFileURL(createRequire(import.meta.url).resolve("tsx")).href;
const folders: string[] = [];
afterEach(() => folders.splice(0).forEach((folder) => rmSync(folder, { recursive: true })));

/** The version that the module gives when it stands at dist/lib/base/ in a folder with these files. */
function versionBuiltInto(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), "version-"));
  folders.push(root);
  mkdirSync(join(root, "dist/lib/base"), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, name), text);
  cpSync(fileURLToPath(new URL("../../lib/base/version.ts", import.meta.url)), join(root, "dist/lib/base/version.ts"));
  writeFileSync(
    join(root, "main.mts"),
    `import { version } from "./dist/lib/base/version.ts";\nprocess.stdout.write(version);\n`,
  );
  return execFileSync(process.execPath, ["--import", tsx, join(root, "main.mts")], { encoding: "utf8" });
}

describe("version", () => {
  it("equals the version in package.json, read from the sources", () => {
    const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
    expect(version).toBe((JSON.parse(text) as { version: string }).version);
  });

  it("equals the version in package.json, read from dist/, past the package.json of another package", () => {
    const own = JSON.stringify({ name: "edge-gateway", version: "7.8.9" });
    expect(versionBuiltInto({ "package.json": own, "dist/package.json": `{ "type": "module" }` })).toBe("7.8.9");
  });

  it("equals 0.0.0-unknown if there is no package.json of this package", () => {
    expect(versionBuiltInto({ "package.json": `{ "name": "other", "version": "1.0.0", "type": "module" }` })).toBe(
      "0.0.0-unknown",
    );
  });
});

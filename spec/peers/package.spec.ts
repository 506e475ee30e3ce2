import { execFile } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";
import { version } from "../../lib/base/version.ts";
import { oneService } from "../support/gateway.ts";
import { origin } from "../support/origin.ts";
import { emptyFolder, PROGRAM, startBuilt } from "./built.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** npm as a user runs it: without what the surrounding `npm run` puts into the environment. */
async function npm(folder: string, ...args: string[]): Promise<string> {
  const environment = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith("npm_")),
  );
  const { stdout } = await run("npm", args, { cwd: folder, env: environment, maxBuffer: 16 * 1024 * 1024 });
  return stdout;
}

describe("a clone", () => {
  it("starts by npx edge-gateway without compiling again, also for the first time", async () => {
    await npm(root, "run", "build");
    const builtAt = statSync(PROGRAM).mtimeMs;
    const stdout = await npm(root, "exec", "--offline", "--cache", emptyFolder(), "--", "edge-gateway", "--version");
    expect([stdout, statSync(PROGRAM).mtimeMs]).toEqual([`${version}\n`, builtAt]);
  });
});

describe("the package", () => {
  it(
    "the package installs from its tarball without a network into an empty folder, " + "alone, and starts from there",
    async () => {
      const folder = emptyFolder();
      const [packed] = JSON.parse(
        await npm(root, "pack", "--json", "--ignore-scripts", "--pack-destination", folder),
      ) as { filename: string }[];
      await npm(folder, "install", "--offline", "--no-audit", "--no-fund", `./${packed!.filename}`);
      const installed = Object.keys(
        (JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8")) as { packages: object }).packages,
      );
      expect(installed).toEqual(["", "node_modules/edge-gateway"]);
      const upstream = await origin();
      onTestFinished(() => upstream.close());
      const { url } = await startBuilt(oneService(upstream.port), {}, [join(folder, "node_modules/.bin/edge-gateway")]);
      expect(await (await fetch(`${url}/a/x`)).text()).toBe("ok");
      const embedded =
        `import { createGateway, version } from "edge-gateway"; ` + `console.log(typeof createGateway, version)`;
      const { stdout } = await run(process.execPath, ["--input-type=module", "-e", embedded], { cwd: folder });
      expect(stdout).toMatch(/^function \d+\.\d+\.\d+(-dev)?\n$/);
    },
  );
});

/** Builds the pages of the management UI before the first spec runs, so that none meets those of another day. */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export default function buildAssets(): void {
  try {
    execFileSync("npm", ["run", "--silent", "build:manager"], { cwd: ROOT, stdio: "pipe" });
  } catch (error) {
    const { stdout, stderr } = error as { readonly stdout?: Buffer; readonly stderr?: Buffer };
    throw new Error(`the management UI does not build:\n${String(stdout ?? "")}${String(stderr ?? error)}`);
  }
}

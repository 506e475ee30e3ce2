/** Builds the program and the management UI before the first spec runs, so that no spec meets an earlier build. */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export default function build(): void {
  try {
    execFileSync("npm", ["run", "--silent", "build"], { cwd: ROOT, stdio: "pipe" });
  } catch (error) {
    const { stdout, stderr } = error as { readonly stdout?: Buffer; readonly stderr?: Buffer };
    throw new Error(`the program does not build:\n${String(stdout ?? "")}${String(stderr ?? error)}`);
  }
}

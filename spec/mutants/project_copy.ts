/** A copy of the project in a temporary folder, in which files may be changed. */
import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Where a run that measures what specs reach writes it; each process and spec has a file. */
export const REACHED_FOLDER = ".reached";

const TSC = "node_modules/typescript/bin/tsc";

export class ProjectCopy {
  readonly folder: string;
  /** The file that is not as it was, and how it was. */
  #changed: { readonly path: string; readonly text: string } | null = null;
  readonly remove = (): void => {
    process.off("exit", this.remove);
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  };

  /** Of what git knows or would add, as it is on disk. */
  constructor(project: string) {
    this.folder = mkdtempSync(join(tmpdir(), "edge-gateway-mutants-"));
    process.once("exit", this.remove);
    const listed = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
      cwd: project,
      maxBuffer: 64 << 20,
    });
    for (const path of listed.toString().split("\0").filter(Boolean)) {
      cpSync(join(project, path), join(this.folder, path), { force: true });
    }
    symlinkSync(join(project, "node_modules"), join(this.folder, "node_modules"));
  }

  read(path: string): string {
    return readFileSync(join(this.folder, path), "utf8");
  }

  write(path: string, text: string): void {
    writeFileSync(join(this.folder, path), text);
  }

  /** Throws where it does not build. From now on specs take what is built, and build nothing themselves. */
  build(): void {
    execFileSync("npm", ["run", "--silent", "build"], { cwd: this.folder, stdio: ["ignore", "ignore", "inherit"] });
    this.write("spec/support/build.ts", "export default function build(): void {}\n");
  }

  /** Writes a file of lib, here and in what is built; the one before is as it was. False: it does not compile. */
  async change(path: string, text: string): Promise<boolean> {
    const before = this.#changed;
    if (before !== null) this.write(before.path, before.text);
    this.#changed = { path, text: this.read(path) };
    this.write(path, text);
    const compiled = [this.#compile(["--noEmit"]), this.#compile(["--noCheck", "--outDir", "dist"])];
    const [isValid = false] = await Promise.all(compiled);
    this.#listBuilt([path, before?.path ?? path]);
    return isValid;
  }

  /** A program takes no module of another sum than this list has. */
  #listBuilt(paths: readonly string[]): void {
    const manifest = "dist/lib/modules.json";
    const sums = JSON.parse(this.read(manifest)) as Record<string, string>;
    for (const path of paths) {
      const built = path.replace(/\.ts$/, ".js");
      sums[built] = createHash("sha256")
        .update(this.read(join("dist", built)))
        .digest("hex");
    }
    this.write(manifest, `${JSON.stringify(sums, null, 2)}\n`);
  }

  async #compile(words: readonly string[]): Promise<boolean> {
    try {
      await promisify(execFile)(process.execPath, [TSC, ...words], { cwd: this.folder });
      return true;
    } catch {
      return false;
    }
  }
}

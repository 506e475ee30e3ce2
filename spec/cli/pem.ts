import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { emptyFolder } from "../support/process.ts";

/** Writes each text to a file of its name, and gives the files' paths under the same names; gone when the test ends. */
export function pem(files: Readonly<Record<string, string>>): Record<string, string> {
  const folder = emptyFolder();
  return Object.fromEntries(
    Object.entries(files).map(([name, text]) => {
      const path = join(folder, `${name}.pem`);
      writeFileSync(path, text);
      return [name, path];
    }),
  );
}

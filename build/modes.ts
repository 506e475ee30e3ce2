/** Before `npm pack`: sets the modes of all files of the package but `dist`, which has those of the build. */
import { readFileSync } from "node:fs";
import { setModes } from "./files.ts";

const { files } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly files: readonly string[] };
setModes([...files.filter((name) => name !== "dist" && !name.startsWith("!")), "package.json", "README.md", "LICENSE"]);

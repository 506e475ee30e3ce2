/**
 * The absolute path of a file that a configuration names.
 */
import { isAbsolute, resolve } from "node:path";

/** `folder`: of the configuration; null: it is in none. Null: the path is relative, and there is no folder. */
export function namedPath(folder: string | null, path: string): string | null {
  if (folder !== null) return resolve(folder, path);
  return isAbsolute(path) ? resolve(path) : null;
}

export const IS_RELATIVE =
  "is relative to the folder of the configuration, which is from a URL and has none: write the absolute path";

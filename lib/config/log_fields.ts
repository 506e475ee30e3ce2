/**
 * The fields of the access log beyond its format: its file, and the paths that get no line.
 */
import * as s from "./whole_schema.ts";

export const LOG_FILE = s.filePath({ describe: "File to append to instead of standard output; reopened on SIGUSR1." });

export const UNLOGGED_PATH = s.string({
  references: "none",
  hint: 'a path, or the beginning of one and "*"',
  check(text) {
    if (!text.startsWith("/")) return text === "*" ? 'to log nothing, set "enabled" to false' : `write "/${text}"`;
    if (/[?#]/.test(text)) return "leave the query out: paths are compared without it";
    return text.slice(0, -1).includes("*") ? '"*" can only stand at the end' : undefined;
  },
});

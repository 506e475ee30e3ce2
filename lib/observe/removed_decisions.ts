/**
 * The files of decisions in the folder of STATE_DIR, and their removal where none are remembered any more.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { StateFolder } from "../base/state_folder.ts";

export const DECISION_FILE = "decisions";
/** Has the texts of names. */
export const NAMES_FILE = "decision_names";

/** And of what a crash has left of their writing. Rejects with the system's error, when all others are removed. */
export async function removeDecisions({ path }: Pick<StateFolder, "path">): Promise<void> {
  const names = [DECISION_FILE, NAMES_FILE].flatMap((name) => [name, `${name}.new`]);
  const removed = await Promise.allSettled(names.map((name) => rm(join(path, name), { force: true })));
  for (const result of removed) if (result.status === "rejected") throw result.reason;
}

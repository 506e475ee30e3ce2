/**
 * The files of decisions in the folder of STATE_DIR, and their removal where none are remembered any more.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { StateFolder } from "../base/state_folder.ts";

export const DECISION_FILE = "decisions";
/** Has the texts of names. */
export const NAMES_FILE = "decision_names";

/** Rejects with the system's error. */
export async function removeDecisions({ path }: Pick<StateFolder, "path">): Promise<void> {
  for (const name of [DECISION_FILE, NAMES_FILE]) await rm(join(path, name), { force: true });
}

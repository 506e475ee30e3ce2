/**
 * Opens the folder of the setting STATE_DIR.
 */
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { StateFolder, StateProblem } from "../base/state_folder.ts";
import { QuotaFile } from "../store/quota_file.ts";
import { Failure } from "./failure.ts";

/** Throws a `Failure` where another process holds the folder, or a file in it is damaged. */
export async function openState(path: string, log: Log): Promise<QuotaFile> {
  try {
    return new QuotaFile(await StateFolder.open(path), systemClock, log);
  } catch (error) {
    throw new Failure(`STATE_DIR (--state-dir): ${error instanceof StateProblem ? error.message : `${path} cannot be used: ${messageOf(error)}`}`, 2);
  }
}

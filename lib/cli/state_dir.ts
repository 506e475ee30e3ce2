/**
 * Opens the folder of the setting STATE_DIR.
 */
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { StateFolder, StateProblem } from "../base/state_folder.ts";
import type { SeenStore } from "../gateway/features.ts";
import { QuotaFile } from "../store/quota_file.ts";
import { Failure } from "./failure.ts";
import { readSeen, SeenFile } from "./seen_file.ts";

export { readSeen };

interface State {
  readonly state: QuotaFile;
  readonly seen: SeenStore;
}

/** Throws a `Failure` where another process holds the folder, or a file in it is damaged. */
export async function openState(path: string, log: Log): Promise<State> {
  return inState(path, async () => {
    const folder = await StateFolder.open(path);
    readSeen(folder.path);
    return { state: new QuotaFile(folder, systemClock, log), seen: new SeenFile(folder, log) };
  });
}

/** Throws a `Failure` for what is wrong with the folder. */
export async function inState<T>(path: string, act: () => T): Promise<Awaited<T>> {
  try {
    return await act();
  } catch (error) {
    throw new Failure(
      `STATE_DIR (--state-dir): ` +
        `${error instanceof StateProblem ? error.message : `${path} cannot be used: ${messageOf(error)}`}`,
      2,
    );
  }
}

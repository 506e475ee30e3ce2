/**
 * Keeps in the folder of STATE_DIR which signed configurations were in force, so that none of them comes back after a
 * restart.
 */
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { readKept, StateProblem, type StateFolder } from "../base/state_folder.ts";
import type { SeenStore, Seen } from "../gateway/features.ts";

const NAME = "configurations";

/**
 * Throws a `StateProblem` for a file that is damaged, and the system's error. `folder`: of a gateway that may be
 * running.
 */
export function readSeen(folder: string): Seen {
  const content = readKept(folder, NAME);
  if (content === null) return { serial: null, time: 0 };
  try {
    const { serial, time } = JSON.parse(content.toString()) as Seen;
    if ((serial === null || Number.isSafeInteger(serial)) && Number.isFinite(time)) return { serial, time };
  } catch {
    // It is damaged as well.
  }
  throw new StateProblem(
    `${folder}/${NAME} is damaged: put a copy in its place, or move it away, ` +
      `and older signed configurations are taken again`,
  );
}

export class SeenFile implements SeenStore {
  readonly #folder: StateFolder;
  readonly #log: Log;
  #written: Promise<void> = Promise.resolve();

  constructor(folder: StateFolder, log: Log) {
    this.#folder = folder;
    this.#log = log;
  }

  read(): Seen {
    return readSeen(this.#folder.path);
  }

  write(seen: Seen): void {
    this.#written = this.#written
      .then(() => this.#folder.write(NAME, [Buffer.from(`${JSON.stringify(seen)}\n`)]))
      .catch((error: unknown) =>
        this.#log.error("the serial of the configuration cannot be kept: an older one may be taken after a restart", {
          folder: this.#folder.path,
          error: messageOf(error),
        }),
      );
  }
}

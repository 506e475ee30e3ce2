/**
 * Small files of JSON in the folder of STATE_DIR: which signed configurations were in force, so that none of them comes
 * back after a restart; which upstreams an administrator has taken out, so that none of them does; and what sessions of
 * the admin interface need to outlive it, logouts included.
 */
import { messageOf } from "../base/errors.ts";
import type { Log, LogFields } from "../base/log.ts";
import { readKept, StateProblem, type StateFolder } from "../base/state_folder.ts";
import type { Kept, Seen } from "../gateway/features.ts";
import { isObject } from "../json_schema/values.ts";
import type { KeptSessions } from "../admin/views.ts";
import type { TakenOut } from "../upstream/taken_out.ts";

interface Kind<T> {
  readonly name: string;
  /** Where there is no file. */
  readonly none: T;
  /** Null: the content is damaged. */
  readonly from: (content: unknown) => T | null;
  /** What happens without the file. */
  readonly without: string;
  /** It cannot be written. */
  readonly lost: (log: Log, fields: LogFields) => void;
}

export const SEEN: Kind<Seen> = {
  name: "configurations",
  none: { serial: null, time: 0 },
  from(content) {
    const { serial, time } = content as Seen;
    return (serial === null || Number.isSafeInteger(serial)) && Number.isFinite(time) ? { serial, time } : null;
  },
  without: "older signed configurations are taken again",
  lost: (log, fields) =>
    log.error("the serial of the configuration cannot be kept: an older one may be taken after a restart", fields),
};

export const TAKEN_OUT: Kind<readonly TakenOut[]> = {
  name: "taken_out",
  none: [],
  from: (content) => (Array.isArray(content) && content.every(isTakenOut) ? content : null),
  without: "upstreams that were taken out get requests again",
  lost: (log, fields) =>
    log.error("the state of upstreams cannot be kept: another one may be in force after a restart", fields),
};

export const SESSIONS: Kind<KeptSessions> = {
  name: "sessions",
  none: { secret: null, revoked: [], refused: [] },
  from(content) {
    const { secret, revoked, refused } = content as KeptSessions;
    const isSound =
      (secret === null || /^[\w-]{43}$/.test(secret)) &&
      revoked.every(
        ([user, jti, end]) => typeof user === "string" && typeof jti === "string" && Number.isFinite(end),
      ) &&
      refused.every(([user, second]) => typeof user === "string" && Number.isFinite(second));
    return isSound ? { secret, revoked, refused } : null;
  },
  without: "all users of the admin interface sign in again",
  lost: (log, fields) =>
    log.error("sessions of the admin interface cannot be kept: after a restart users sign in again", fields),
};

function isTakenOut(value: unknown): value is TakenOut {
  if (!isObject(value)) return false;
  const { service, id, state, since = null } = value;
  const isNamed = typeof service === "string" && typeof id === "string";
  return isNamed && (state === "drain" || state === "eject") && (since === null || Number.isFinite(since));
}

/**
 * Throws a `StateProblem` for a file that is damaged, or cannot be read. `folder`: of a gateway that may be running.
 */
export function readKeptFile<T>(folder: string, { name, none, from, without }: Kind<T>): T {
  const content = readKept(folder, name);
  if (content === null) return none;
  try {
    const known = from(JSON.parse(content.toString()));
    if (known !== null) return known;
  } catch {
    // It is damaged as well.
  }
  throw new StateProblem(`${folder}/${name} is damaged: put a copy in its place, or move it away, and ${without}`);
}

/** In a folder that this process holds. */
export class KeptFile<T> implements Kept<T> {
  readonly #folder: StateFolder;
  readonly #kind: Kind<T>;
  readonly #log: Log;
  #written: Promise<void> = Promise.resolve();

  constructor(folder: StateFolder, kind: Kind<T>, log: Log) {
    this.#folder = folder;
    this.#kind = kind;
    this.#log = log;
  }

  read(): T {
    return readKeptFile(this.#folder.path, this.#kind);
  }

  write(value: T): Promise<void> {
    const { name, lost } = this.#kind;
    const content = [Buffer.from(`${JSON.stringify(value)}\n`)];
    this.#written = this.#written
      .then(() => this.#folder.write(name, content))
      .catch((error: unknown) => {
        this.#folder.failures++;
        lost(this.#log, { folder: this.#folder.path, error: messageOf(error) });
      });
    return this.#written;
  }
}

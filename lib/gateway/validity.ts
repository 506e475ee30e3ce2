/**
 * Keeps out signed configurations that are older than one that was in force (`serial`), and those that have ended
 * (`expires_at`).
 */
import type { Clock } from "../base/clock.ts";
import type { Issue } from "../config/json.ts";
import { placeInText } from "../config/places.ts";
import type { Config } from "../config/model.ts";
import { timeOf } from "../config/validity_fields.ts";
import { ConfigError } from "./config_error.ts";
import type { Kept, Seen, Validity } from "./features.ts";

/** Null: it is not to be checked. */
export function validityOf({ seen }: { readonly seen?: Kept<Seen> | null }, clock: Clock): Validity | null {
  return seen === null ? null : new SignedValidity(seen ?? null, clock);
}

/** Of one gateway that takes signed configurations only. */
export class SignedValidity implements Validity {
  #seen: Seen;
  readonly #kept: Kept<Seen> | null;
  readonly #clock: Clock;

  /** `kept`: null: the memory of the program. */
  constructor(kept: Kept<Seen> | null, clock: Clock) {
    this.#kept = kept;
    this.#clock = clock;
    this.#seen = kept?.read() ?? { serial: null, time: 0 };
  }

  get seen(): Seen {
    return this.#seen;
  }

  check({ source, valid }: Parameters<Validity["check"]>[0]): void {
    const { serial, expiresAt } = valid.config;
    const wall = this.#clock.wall();
    const issues: Issue[] = [];
    const refuse = (field: "serial" | "expires_at", message: string) =>
      issues.push({ at: [field], message, position: placeInText(source, [field]) });
    const { serial: highest, time } = this.#seen;
    if (highest !== null && serial === undefined)
      refuse("serial", `is missing, and serial ${highest} has been in force: give this configuration a higher one`);
    else if (highest !== null && serial! < highest)
      refuse("serial", `${serial} is older than ${highest}, which has been in force: sign it again with a higher one`);
    if (expiresAt !== undefined && timeOf(expiresAt)! <= Math.max(wall, time)) {
      const back =
        wall < time && timeOf(expiresAt)! > wall
          ? `; the clock has been set back from ${new Date(time).toISOString()}`
          : "";
      refuse("expires_at", `the configuration has ended at ${expiresAt}: sign it again with a later end${back}`);
    }
    if (issues.length > 0) throw new ConfigError(issues, source.file);
  }

  endOf({ expiresAt }: Pick<Config, "expiresAt">): number | null {
    return expiresAt === undefined ? null : timeOf(expiresAt);
  }

  applied({ serial, expiresAt }: Pick<Config, "serial" | "expiresAt">): void {
    if (serial === undefined && expiresAt === undefined) return;
    const before = this.#seen;
    this.#seen = { serial: serial ?? before.serial, time: Math.max(this.#clock.wall(), before.time) };
    void this.#kept?.write(this.#seen);
  }
}

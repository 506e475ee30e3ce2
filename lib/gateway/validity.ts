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
import type { ReadConfig } from "./config_reader.ts";
import type { ConfigurationOptions } from "./options.ts";

/** What outlives the program. */
export interface Seen {
  /** The highest serial that was in force; null: none had one. */
  readonly serial: number | null;
  /**
   * The latest time that was seen, in milliseconds since 1970: a clock that was set back does not bring a configuration
   * back.
   */
  readonly time: number;
}

export interface KeptSeen {
  read(): Seen;
  /** Never throws. */
  write(seen: Seen): void;
}

export type Ordered = Pick<Config, "serial" | "expiresAt">;

/** Null: it is not to be checked. */
export function validityOf({ seen }: Pick<ConfigurationOptions, "seen">, clock: Clock): Validity | null {
  return seen === null ? null : new Validity(seen ?? null, clock);
}

/** Of one gateway that takes signed configurations only. */
export class Validity {
  #seen: Seen;
  readonly #kept: KeptSeen | null;
  readonly #clock: Clock;

  /** `kept`: null: the memory of the program. */
  constructor(kept: KeptSeen | null, clock: Clock) {
    this.#kept = kept;
    this.#clock = clock;
    this.#seen = kept?.read() ?? { serial: null, time: 0 };
  }

  get seen(): Seen {
    return this.#seen;
  }

  /** Throws a `ConfigError` for a configuration that is older than one that was in force, or has ended. */
  check({ source, loaded }: ReadConfig): void {
    const { serial, expiresAt } = loaded.config;
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

  /** In milliseconds since 1970; null: it does not end. */
  endOf({ expiresAt }: Ordered): number | null {
    return expiresAt === undefined ? null : timeOf(expiresAt);
  }

  /** The configuration is in force, and has passed its tests. */
  take({ serial, expiresAt }: Ordered): void {
    if (serial === undefined && expiresAt === undefined) return;
    const before = this.#seen;
    this.#seen = { serial: serial ?? before.serial, time: Math.max(this.#clock.wall(), before.time) };
    this.#kept?.write(this.#seen);
  }
}

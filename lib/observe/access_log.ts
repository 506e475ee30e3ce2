/**
 * The access log: decides which requests get a line, and where the lines go.
 */
import type { Clock } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import type { Notes } from "../http/exchange.ts";
import { jsonLines, pathOf, type LineFormat } from "./access_line.ts";
import { checkWritable, LineWriter } from "./line_writer.ts";

/** `global.access_log`. */
export interface AccessLogSettings {
  readonly enabled: boolean;
  readonly format: "json" | "combined";
  /** Share of the requests that get a line, 0–1. */
  readonly sample: number;
  /** Paths that get no line: exact paths, or prefixes that end with `*`. */
  readonly exclude: readonly string[];
  /** Absolute path; without it lines go to `sink`. */
  readonly file?: string | undefined;
}

interface AccessLogOptions {
  /** Gets whole lines, each with its newline, several at once under load. Null: without a file, nothing is logged. */
  readonly sink: ((lines: string) => void) | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Gives the format "combined". */
  readonly combined: () => LineFormat;
  /** Whether lines for the file go to the sink, too: another thread writes it. Default false. */
  readonly isRemote?: boolean;
  /** Numbers from 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
}

export class AccessLog {
  readonly #options: AccessLogOptions;
  #settings: AccessLogSettings = { enabled: false, format: "json", sample: 1, exclude: [] };
  #line: LineFormat = jsonLines();
  #excluded: ((target: string) => boolean) | null = null;
  #file: LineWriter | null = null;
  /** Whether the lines of the last settings that had the log on are for a file. */
  #isOfFile = false;
  /** For the sink, until the end of this turn of the event loop. */
  #held = "";
  #isStarted = false;
  /** Whether requests that begin now are logged. */
  isOn = false;
  constructor(options: AccessLogOptions) {
    this.#options = options;
  }

  /**
   * Uses these settings for requests that end from now on. Throws the system's error, and changes nothing, when the file cannot be opened.
   * Before `start` the file is not opened; its permissions are checked.
   */
  adopt(settings: AccessLogSettings): void {
    const path = this.#fileOf(settings);
    if (!this.#isStarted) {
      if (path !== undefined) checkWritable(path);
    } else if (path !== this.#fileOf(this.#settings) || (this.#file === null && path !== undefined)) this.#open(path);
    if (settings.format !== this.#settings.format) this.#line = settings.format === "json" ? jsonLines() : this.#options.combined();
    this.#excluded = matcher(settings.exclude);
    this.#settings = settings;
    if (settings.enabled) this.#isOfFile = path !== undefined;
    this.#update();
  }

  /** Opens the file, if one is set and not open. Throws the system's error when it cannot be opened. */
  start(): void {
    this.#isStarted = true;
    const path = this.#fileOf(this.#settings);
    if (path !== undefined && this.#file === null) this.#open(path);
    this.#update();
  }

  #update(): void {
    this.isOn = this.#settings.enabled && (this.#file !== null || this.#options.sink !== null);
  }

  /** A request that is logged has ended at `now`. */
  write(entry: RequestFacts, now: number): void {
    const { sample } = this.#settings;
    if (this.#excluded?.(entry.target) === true) return;
    if (sample < 1 && (this.#options.random ?? Math.random)() >= sample && !isFailure(entry.call.notes)) return;
    this.add(this.#line(entry, now, this.#options.clock.wall()));
  }

  /** Writes whole lines, each with its newline. */
  add(lines: string): void {
    if (this.#file !== null) return this.#file.write(lines);
    // A request may end, and the lines of a worker may arrive, after the log was switched off and its file closed.
    if (this.#isOfFile) return;
    if (this.#held === "") setImmediate(this.flush);
    this.#held += lines;
  }

  /** Passes the held lines to the sink. */
  readonly flush = entry("the access log", () => {
    if (this.#held === "") return;
    const lines = this.#held;
    this.#held = "";
    this.#options.sink?.(lines);
  });

  /** Opens the file again, after it has been renamed. */
  reopen(): void {
    this.#file?.reopen();
  }

  #fileOf({ enabled, file }: AccessLogSettings): string | undefined {
    return enabled && this.#options.isRemote !== true ? file : undefined;
  }

  #open(path: string | undefined): void {
    const file = path === undefined ? null : new LineWriter({ path }, this.#options);
    void this.#file?.close();
    this.#file = file;
  }

  /** Resolves when all lines are written. */
  async close(): Promise<void> {
    this.flush();
    const file = this.#file;
    this.#file = null;
    await file?.close();
  }
}

/** Faults of the gateway or an upstream are logged whatever `sample` is, also when the 200 had been sent already. */
function isFailure({ status, code, fault }: Notes): boolean {
  if (status !== null && status >= 500) return true;
  return fault !== null && (status === null || status < 400) && ERRORS[code as ErrorCode]?.side !== "client";
}

/** Compares the target as it was sent: another spelling of the path is logged. */
function matcher(patterns: readonly string[]): ((target: string) => boolean) | null {
  if (patterns.length === 0) return null;
  const exact = new Set(patterns.filter((pattern) => !pattern.endsWith("*")));
  const prefixes = patterns.filter((pattern) => pattern.endsWith("*")).map((pattern) => pattern.slice(0, -1));
  return (target) => {
    const path = pathOf(target);
    return exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
  };
}

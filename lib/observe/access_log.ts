/**
 * The access log: the lines of requests that have ended, and where they go.
 */
import type { Clock } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import type { Config } from "../config/model.ts";
import type { Call } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import { jsonLines, type LineFormat } from "./access_line.ts";

/** `global.access_log`. `file`: an absolute path; without it lines go to the sink. */
export type AccessLogSettings = Config["global"]["accessLog"];

/** What only some settings need. */
export interface LogFormats {
  /** Apache's combined format. */
  combinedLines(): LineFormat;
  /**
   * The file at a path, in place of the `current` one; undefined: none. Throws, and closes nothing, when it cannot be
   * opened. Before the start nothing is opened; its permissions are checked.
   */
  logFile(
    path: string | undefined,
    current: OpenLogFile | null,
    isStarted: boolean,
    tools: LogTools,
  ): OpenLogFile | null;
  /** Returns whether a request that has ended gets a line. */
  lineFilter(settings: AccessLogSettings, random?: () => number): (entry: RequestFacts) => boolean;
  /** Adds the header Server-Timing. */
  withServerTiming(reply: Reply, call: Call, now: number): Reply;
}

type LogTools = Pick<AccessLogOptions, "clock" | "log">;

/** `global.access_log.file` */
export interface OpenLogFile {
  readonly path: string;
  write(lines: string): void;
  /** If the path cannot be opened, the open file stays. */
  reopen(): void;
  /** Resolves when all lines are written. */
  close(): Promise<void>;
}

interface AccessLogOptions {
  /** Gets whole lines, each with its newline, several at once under load. Null: without a file, nothing is logged. */
  readonly sink: ((lines: string) => void) | null;
  readonly clock: Clock;
  readonly log: Log;
  /** What only some settings need. */
  readonly features: { readonly logs: LogFormats };
  /** Whether lines for the file go to the sink, too: another thread writes it. Default false. */
  readonly isRemote?: boolean;
  /** Numbers from 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
}

export class AccessLog {
  readonly #options: AccessLogOptions;
  #settings: AccessLogSettings = { enabled: false, format: "json", sample: 1, exclude: [] };
  #line: LineFormat = jsonLines();
  /** Null: all requests get a line. */
  #hasLine: ((entry: RequestFacts) => boolean) | null = null;
  #file: OpenLogFile | null = null;
  /** Whether the lines of the last settings that had the log on are for a file. */
  #isOfFile = false;
  /** For the sink, until the end of this turn of the event loop. */
  #unwritten = "";
  #isStarted = false;
  /** Whether requests that begin now are logged, or seen by a tail. */
  isOn = false;
  /** Sees each request that ends, and says whether it gets a line as well; null: nobody reads the tail. */
  tail: ((entry: RequestFacts, now: number) => boolean) | null = null;

  /** Gets all lines as well, wherever they go; null: nothing does. */
  copy: { access(lines: string): void; drain(): Promise<void>; readonly lost: number } | null = null;

  constructor(options: AccessLogOptions) {
    this.#options = options;
  }

  /**
   * Uses these settings for requests that end from now on. Throws the reason, and changes nothing, when the file cannot
   * be opened.
   * Before `start` the file is not opened; its permissions are checked.
   */
  apply(settings: AccessLogSettings): void {
    const { features, random } = this.#options;
    this.#file = this.#fileFor(settings);
    if (settings.format !== this.#settings.format)
      this.#line = settings.format === "json" ? jsonLines() : features.logs.combinedLines();
    const isFiltered = settings.sample < 1 || settings.exclude.length > 0;
    this.#hasLine = isFiltered ? features.logs.lineFilter(settings, random) : null;
    this.#settings = settings;
    if (settings.enabled) this.#isOfFile = this.#pathOf(settings) !== undefined;
    this.update();
  }

  /** Opens the file, if one is set and not open. Throws the reason when it cannot be opened. */
  start(): void {
    this.#isStarted = true;
    this.#file = this.#fileFor(this.#settings);
    this.update();
  }

  update(): void {
    this.isOn = this.tail !== null || (this.#settings.enabled && (this.#file !== null || this.#options.sink !== null));
  }

  /** A request that is logged has ended at `now`. */
  write(entry: RequestFacts, now: number): void {
    if (this.tail !== null && !this.tail(entry, now)) return;
    if (this.#hasLine === null || this.#hasLine(entry)) this.add(this.#line(entry, now, this.#options.clock.wall()));
  }

  /** Writes whole lines, each with its newline. */
  add(lines: string): void {
    this.copy?.access(lines);
    if (this.#file !== null) return this.#file.write(lines);
    // A request may end, and the lines of a worker may arrive, after the log was switched off and its file closed.
    if (this.#isOfFile) return;
    if (this.#unwritten === "") setImmediate(this.flush);
    this.#unwritten += lines;
  }

  readonly flush = entry("the access log", () => {
    if (this.#unwritten === "") return;
    const lines = this.#unwritten;
    this.#unwritten = "";
    this.#options.sink?.(lines);
  });

  /** Opens the file again, after it has been renamed. */
  reopen(): void {
    this.#file?.reopen();
  }

  #pathOf({ enabled, file }: AccessLogSettings): string | undefined {
    return enabled && this.#options.isRemote !== true ? file : undefined;
  }

  #fileFor(settings: AccessLogSettings): OpenLogFile | null {
    const path = this.#pathOf(settings);
    if (path === undefined && this.#file === null) return null;
    return this.#options.features.logs.logFile(path, this.#file, this.#isStarted, this.#options);
  }

  /** Resolves when all lines are written. */
  async close(): Promise<void> {
    this.flush();
    const file = this.#file;
    this.#file = null;
    await Promise.all([file?.close(), this.copy?.drain()]);
  }
}

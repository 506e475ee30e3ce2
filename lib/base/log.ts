/**
 * The program's own log: one line per event on standard error, as text for a terminal or as JSON.
 */
import type { Writable } from "node:stream";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const LOG_FORMATS = ["text", "json"] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

export type LogFields = Readonly<Record<string, unknown>>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface LogOptions {
  /** Events below this level are dropped. Default "info". */
  readonly level?: LogLevel;
  /** Default "text". */
  readonly format?: LogFormat;
  /** Writes a finished line, newline included. Default: standard error, see `stderrLines`. */
  readonly write?: (line: string) => void;
  /** Milliseconds since 1970; default `Date.now`. */
  readonly wall?: () => number;
}

export function createLog(options: LogOptions = {}): Log {
  const threshold = LOG_LEVELS.indexOf(options.level ?? "info");
  let stderr: BoundedLines | null = null;
  const toStderr = (line: string) => {
    stderr ??= stderrLines();
    stderr.add(line, log);
  };
  const write = options.write ?? toStderr;
  const wall = options.wall ?? Date.now;
  const render = options.format === "json" ? jsonLine : textLine;
  const at = (level: LogLevel) => (message: string, fields?: LogFields) => {
    if (LOG_LEVELS.indexOf(level) >= threshold) write(render(new Date(wall()).toISOString(), level, message, fields));
  };
  const log: Log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  return log;
}

/** Lines of the program's log for a reader that may be slow: what it has not read must not fill the memory. */
export class BoundedLines {
  readonly #isFull: (line: string) => boolean;
  readonly #send: (line: string) => void;
  #lost = 0;

  constructor(isFull: (line: string) => boolean, send: (line: string) => void) {
    this.#isFull = isFull;
    this.#send = send;
  }

  /** `log`, which writes here, gets the number of lines that were lost before this one. */
  add(line: string, log: Log): void {
    if (this.#isFull(line)) {
      this.#lost++;
      return;
    }
    const lines = this.#lost;
    this.#lost = 0;
    if (lines > 0) log.error("lines of this log are lost: they came faster than they could be written", { lines });
    this.#send(line);
  }
}

/** Characters that wait for the reader of standard error; further lines are lost. As of the access log. */
const MAX_WAITING = 8 * 1024 * 1024;

/** `stream`: only tests have another. */
export function stderrLines(stream: Pick<Writable, "writableLength" | "write"> = process.stderr): BoundedLines {
  return new BoundedLines(
    ({ length }) => stream.writableLength + length > MAX_WAITING,
    (line) => stream.write(line),
  );
}

/** A log that drops everything: the default of an embedded gateway. */
export const silentLog: Log = createLog({ level: "silent" });

function jsonLine(time: string, level: LogLevel, message: string, fields?: LogFields): string {
  return jsonText({ time, level, message, ...fields }) + "\n";
}

function textLine(time: string, level: LogLevel, message: string, fields?: LogFields): string {
  let line = `${time} ${level.padEnd(5)} ${message}`;
  for (const key in fields) {
    const value = fields[key];
    if (value !== undefined)
      line += ` ${key}=${typeof value === "string" && /^[\w.:/@+-]+$/.test(value) ? value : jsonText(value)}`;
  }
  return line + "\n";
}

/**
 * Like JSON.stringify, with null for values that JSON cannot express. C1 control characters, separators of lines, and
 * characters that change the direction of what follows are escaped, too: terminals and viewers obey them.
 */
export function jsonText(value: unknown): string {
  return ((JSON.stringify(value) as string | undefined) ?? "null").replace(
    /[\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

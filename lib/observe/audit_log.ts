/**
 * The audit log: writes events as a chain of lines, each of which ends on the disk. One turn at a time runs in the
 * background, with the events since the last one; nothing waits for it but who asks `written`.
 */
import { hash } from "node:crypto";
import { close, closeSync, fstatSync, write, writeSync } from "node:fs";
import { promisify } from "node:util";
import { Chain } from "../base/audit_chain.ts";
import { waitAtMost, type Clock, type Timer } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import { jsonText, type Log } from "../base/log.ts";
import { StateFolder, StateProblem } from "../base/state_folder.ts";
import { isSameFile, landedAt, openAuditFile, type AuditFile } from "./audit_file.ts";

/** Events wait this long for others, and each batch for the disk. Somebody may wait for them with "closed". */
const HOLD_MS = { open: 100, closed: 2 };
/** Longer, and the log cannot be written. */
export const MAX_WAIT_MS = 1_000;
/** Pause after a failure. */
const RETRY_MS = 1_000;
/** Events wait while the disk is slow, up to this many characters; further ones are lost. */
const MAX_HELD = 8 * 1024 * 1024;
/** Of refusals. Whoever sends requests makes as many of them as he likes: they leave room for the others. */
const MAX_HELD_REFUSALS = 7 * 1024 * 1024;
const MAX_BATCH = 4_000;
/** Of a text in an event. */
const MAX_TEXT = 256;

/** With the time, and the fields as JSON without braces. */
export interface AuditEvent {
  readonly time: string;
  readonly event: string;
  readonly fields: string;
}

/** Where events go: the log itself, or in a worker what sends them there. */
export type AuditSink = Pick<AuditLog, "add" | "written"> & Partial<Pick<AuditLog, "addEvents" | "reopen">>;

export interface AuditLogOptions {
  readonly path: string;
  /** "closed": nothing may happen that is not in the log. */
  readonly fail: "open" | "closed";
  readonly clock: Clock;
  readonly log: Log;
  /** Default: the system's. */
  readonly disk?: Disk;
}

/** Resolves with the number of bytes that are on the disk. */
export type Disk = (fd: number, bytes: Buffer, from: number) => Promise<number>;

const DISK: Disk = async (fd, bytes, from) =>
  (await promisify(write)(fd, bytes, from, bytes.length - from, null)).bytesWritten;

export function auditEvent(event: string, fields: object, wall: number): AuditEvent {
  const cut: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields))
    cut[name] = typeof value === "string" ? value.slice(0, MAX_TEXT) : value;
  return { time: new Date(wall).toISOString(), event, fields: jsonText(cut).slice(1, -1) };
}

export class AuditLog {
  readonly #options: AuditLogOptions;
  readonly #disk: Disk;
  /** Held while this process writes the log; null: it cannot be held, undefined: nobody has tried. */
  #folder: StateFolder | null | undefined = undefined;
  #file: AuditFile | null = null;
  /** Before the next write the path is opened again. */
  #isRenamed = false;
  #chain = new Chain();
  #queue: AuditEvent[] = [];
  /** Characters in the queue. */
  #held = 0;
  /** Events that no line has, since the last line. */
  #lost = 0;
  /** How many events there were, and how many of them are on the disk. */
  #added = 0;
  #written = 0;
  /** Who waits until so many are. */
  #waiting: { readonly number: number; readonly done: () => void }[] = [];
  #timer: Timer | null = null;
  /** Null: none is under way. */
  #turn: Promise<void> | null = null;
  #state: "open" | "closing" | "ended" = "open";
  /** The last turn has failed, or takes too long. */
  isFailing = false;
  /** Called when `isFailing` has changed. */
  onChange: () => void = ignore;

  constructor(options: AuditLogOptions) {
    this.#options = options;
    this.#disk = options.disk ?? DISK;
  }

  /** Opens the file. Rejects, with "closed", with the reason why that is impossible. */
  async start(): Promise<void> {
    try {
      await this.#open();
    } catch (error) {
      if (this.#options.fail === "closed") throw error;
      this.#failed(error);
    }
  }

  add(event: string, fields: object): void {
    this.addEvents([auditEvent(event, fields, this.#options.clock.wall())], 0);
  }

  /** `lost`: how many there were besides. */
  addEvents(events: readonly AuditEvent[], lost: number): void {
    this.#lost += lost;
    for (const each of events) {
      const length = lengthOf(each);
      if (
        this.#held + length > (each.event === "request_refused" ? MAX_HELD_REFUSALS : MAX_HELD) ||
        this.#state === "ended"
      ) {
        this.#lost++;
        continue;
      }
      this.#held += length;
      this.#added++;
      this.#queue.push(each);
    }
    this.#later(HOLD_MS[this.#options.fail]);
  }

  /**
   * Resolves with "open" at once, with "closed" when all events so far are on the disk, or with false within a second.
   */
  async written(): Promise<boolean> {
    if (this.#options.fail === "open") return true;
    // An event that was lost has no number that could be waited for.
    if (this.isFailing || this.#lost > 0) return false;
    const number = this.#added;
    if (this.#written < number)
      await waitAtMost(new Promise<void>((done) => this.#waiting.push({ number, done })), MAX_WAIT_MS);
    return this.#written >= number;
  }

  /** The file has been renamed. */
  reopen(): void {
    if (this.#file === null) return;
    this.#isRenamed = true;
    this.#later(HOLD_MS.closed);
  }

  /** Resolves when all lines are on the disk, or when that fails. */
  async close(): Promise<void> {
    this.#state = "closing";
    this.#timer?.cancel();
    await this.#turn;
    do await this.#run();
    while (this.#queue.length > 0 && !this.isFailing);
    this.#state = "ended";
    if (this.#file !== null) close(this.#file.fd, ignore);
    await this.#folder?.close();
  }

  /** For a process that ends at once. What is being written at this moment may be lost. */
  endAtOnce(event: string, fields: object): void {
    if (this.#state === "ended" || this.#file === null || this.#turn !== null) return;
    this.add(event, fields);
    this.#state = "ended";
    try {
      writeSync(this.#file.fd, this.#linesOf(this.#queue, this.#file.isCut));
    } catch (error) {
      this.#failed(error);
    }
  }

  async #open(): Promise<void> {
    if (this.#folder === undefined) await this.#hold();
    this.#file = openAuditFile(this.#options.path, this.#chain);
  }

  async #hold(): Promise<void> {
    const { path: file, log } = this.#options;
    // Nothing is made beside what is no audit log.
    closeSync(openAuditFile(file, new Chain()).fd);
    try {
      this.#folder = await StateFolder.open(`${file}.lock`);
    } catch (error) {
      if (error instanceof StateProblem && error.isHeld)
        throw new Error("another process writes it: name a file for each", { cause: error });
      this.#folder = null;
      log.warn("it cannot be seen whether another process writes the audit log", { file, error: messageOf(error) });
    }
  }

  /** Where that fails, lines still go to the old file. */
  #reopen(former: AuditFile): void {
    const { path: file, log } = this.#options;
    this.#isRenamed = false;
    try {
      // Only a log, which this is the end of no more: its chain goes on from the old file.
      const found = openAuditFile(file, new Chain());
      // A file that is written on, as with copytruncate.
      const isSame = isSameFile(former.fd, found.fd);
      close((isSame ? found : former).fd, ignore);
      if (!isSame) this.#file = { fd: found.fd, isCut: false };
      log.info("the audit log has been reopened", { file });
    } catch (error) {
      log.error("the audit log cannot be reopened; lines still go to the old file", { file, error: messageOf(error) });
    }
  }

  #later(ms: number): void {
    if (this.#turn !== null || this.#state !== "open") return;
    const run = () => {
      this.#timer = null;
      void this.#run();
    };
    this.#timer ??= this.#options.clock.after(ms, run);
  }

  #run(): Promise<void> {
    const { fail, clock } = this.#options;
    const late = clock.after(MAX_WAIT_MS, () => this.#failed(new Error("the disk takes longer than a second")));
    this.#turn = this.#write(this.#queue.splice(0, MAX_BATCH))
      .then(
        () => this.#succeeded(),
        (error: unknown) => this.#failed(error),
      )
      .then(() => {
        late.cancel();
        this.#turn = null;
        if (this.isFailing && fail === "closed") this.#later(RETRY_MS);
        else if (this.#queue.length > 0 || this.#isRenamed) this.#later(HOLD_MS[fail]);
      });
    return this.#turn;
  }

  async #write(batch: AuditEvent[]): Promise<void> {
    for (const each of batch) this.#held -= lengthOf(each);
    try {
      if (this.#isRenamed) this.#reopen(this.#file!);
      if (batch.length === 0) return;
      if (this.#file === null) await this.#open();
      await this.#put(this.#file!, batch);
    } catch (error) {
      if (this.#options.fail === "open") {
        this.#lost += batch.length;
      } else {
        this.#queue.unshift(...batch);
        for (const each of batch) this.#held += lengthOf(each);
      }
      throw error;
    }
  }

  /** Leaves in the batch what has no whole line in the file. */
  async #put(file: AuditFile, batch: AuditEvent[]): Promise<void> {
    const { seq } = this.#chain;
    const lost = this.#lost;
    // With copytruncate the torn line, which an empty line would follow, is in the copy.
    if (file.isCut && fstatSync(file.fd).size === 0) file.isCut = false;
    const bytes = this.#linesOf(batch, file.isCut);
    let from = 0;
    try {
      while (from < bytes.length) from += await this.#disk(file.fd, bytes, from);
    } catch (error) {
      // The file has grown, and only the disk has not: a number must not be given twice.
      from = Math.max(from, await landedAt(file.fd, bytes));
      throw error;
    } finally {
      if (from > 0) file.isCut = this.#chain.followEnd(bytes.subarray(0, from));
      batch.splice(0, this.#chain.seq - seq);
      if (this.#chain.seq > seq) this.#lost -= lost;
    }
  }

  /** `isBehind`: a line whose newline is missing. */
  #linesOf(batch: readonly AuditEvent[], isBehind: boolean): Buffer {
    let { seq, prev } = this.#chain;
    const { torn } = this.#chain;
    let text = isBehind ? "\n" : "";
    let more = (torn === undefined ? "" : `,"torn":"${torn}"`) + (this.#lost === 0 ? "" : `,"lost":${this.#lost}`);
    for (const { time, event, fields } of batch) {
      const line =
        `{"seq":${++seq},"time":"${time}","event":"${event}","prev":` +
        `"${prev}"${more}${fields === "" ? "" : ","}${fields}}`;
      text += `${line}\n`;
      [prev, more] = [hash("sha256", line), ""];
    }
    return Buffer.from(text);
  }

  #succeeded(): void {
    this.#written = this.#added - this.#queue.length;
    this.#report(false);
  }

  #failed(error: unknown): void {
    this.#report(true, { error: messageOf(error) });
  }

  /** Lets those go on whose events are on the disk, or nobody knows when. */
  #report(isFailing: boolean, why = {}): void {
    const { path: file, log } = this.#options;
    if (isFailing !== this.isFailing) {
      if (isFailing) log.error("the audit log cannot be written", { file, ...why });
      else log.info("the audit log is written again", { file });
      this.isFailing = isFailing;
      this.onChange();
    }
    const waiting = this.#waiting;
    this.#waiting = isFailing ? [] : waiting.filter(({ number }) => number > this.#written);
    for (const { number, done } of waiting) if (isFailing || number <= this.#written) done();
  }
}

function lengthOf({ event, fields }: AuditEvent): number {
  return event.length + fields.length;
}

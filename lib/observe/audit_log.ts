/**
 * The audit log: writes events as a chain of lines, and makes sure that they are on the disk. One turn at a time runs in the background, each
 * with the events since the last one; nothing waits for it but who asks `written`.
 */
import { close, fdatasync, fdatasyncSync, write, writeSync } from "node:fs";
import { promisify } from "node:util";
import { Chain, chainedLine } from "../base/audit_chain.ts";
import { waitAtMost, type Clock, type Timer } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import { jsonText, type Log } from "../base/log.ts";
import { followFile, isSameFile, openAuditFile } from "./audit_file.ts";

/** Events wait this long for others. Somebody may wait for them with "closed". */
const HOLD_MS = { open: 50, closed: 2 };
/** Lines are on the disk a second after their event at the latest. */
const SYNC_MS = 800;
/** Longer, and the log cannot be written. */
export const MAX_WAIT_MS = 1_000;
/** Pause after a failure. */
const RETRY_MS = 1_000;
/** Events wait while the disk is slow, up to this many characters; further ones are lost. */
const MAX_HELD = 8 * 1024 * 1024;
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

export interface Disk {
  /** Resolves with the number of bytes that were written. */
  write(fd: number, bytes: Buffer, from: number): Promise<number>;
  sync(fd: number): Promise<void>;
}

const DISK: Disk = {
  write: async (fd, bytes, from) => (await promisify(write)(fd, bytes, from, bytes.length - from, null)).bytesWritten,
  sync: promisify(fdatasync),
};

export function auditEvent(event: string, fields: object, wall: number): AuditEvent {
  const cut: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) cut[name] = typeof value === "string" ? value.slice(0, MAX_TEXT) : value;
  return { time: new Date(wall).toISOString(), event, fields: jsonText(cut).slice(1, -1) };
}

export class AuditLog {
  readonly #options: AuditLogOptions;
  readonly #disk: Disk;
  #fd: number | null = null;
  /** Takes the place of `#fd` before the next write. */
  #nextFd: number | null = null;
  #chain = new Chain();
  /** The last write ended inside a line. */
  #isTorn = false;
  #queue: AuditEvent[] = [];
  #held = 0;
  /** Events that no line has, since the last line. */
  #lost = 0;
  #added = 0;
  #written = 0;
  #waiting: { readonly number: number; readonly done: () => void }[] = [];
  #turn: Promise<void> | null = null;
  #timer: Timer | null = null;
  #isSynced = true;
  #syncedAt = -Infinity;
  /** No timer begins a turn: `close` runs the last ones, one at a time. */
  #isClosing = false;
  #isEnded = false;
  /** Whether the last turn has failed, or takes too long. */
  isFailing = false;
  /** Called when `isFailing` has changed. */
  onChange: () => void = ignore;

  constructor(options: AuditLogOptions) {
    this.#options = options;
    this.#disk = options.disk ?? DISK;
  }

  /** Opens the file. Throws, with "closed", the reason why that is impossible. */
  start(): void {
    try {
      this.#open();
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
      const length = each.event.length + each.fields.length;
      if (this.#held + length > MAX_HELD || this.#isEnded) {
        this.#lost++;
        continue;
      }
      this.#held += length;
      this.#added++;
      this.#queue.push(each);
    }
    if (this.#turn === null) this.#later(HOLD_MS[this.#options.fail]);
  }

  /** Resolves with "open" at once, with "closed" when all events so far are on the disk, or with false within a second. */
  async written(): Promise<boolean> {
    if (this.#options.fail === "open") return true;
    // An event that was lost has no number that could be waited for.
    if (this.isFailing || this.#lost > 0) return false;
    if (this.#written >= this.#added) return true;
    const number = this.#added;
    await waitAtMost(new Promise<void>((done) => this.#waiting.push({ number, done })), MAX_WAIT_MS);
    return this.#written >= number;
  }

  /** Opens the file again, after it has been renamed; if that fails, lines still go to the old one. */
  reopen(): void {
    if (this.#fd === null) return;
    const { path: file, log } = this.#options;
    try {
      // Only a log, which this is the end of no more: its chain goes on from the old file.
      const fd = openAuditFile(file, (found) => followFile(found, new Chain()));
      if (this.#nextFd !== null) close(this.#nextFd, ignore);
      this.#nextFd = fd;
      log.info("the audit log has been reopened", { file });
    } catch (error) {
      log.error("the audit log cannot be reopened; lines still go to the old file", { file, error: messageOf(error) });
    }
  }

  /** Resolves when all lines are on the disk, or when that fails. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#timer?.cancel();
    await this.#turn;
    do await this.#run(true);
    while (this.#queue.length > 0 && !this.isFailing);
    this.#isEnded = true;
    if (this.#fd !== null) close(this.#fd, ignore);
  }

  /** For a process that ends at once. What is being written at this moment may be lost. */
  endAtOnce(event: string, fields: object): void {
    if (this.#isEnded || this.#fd === null || this.#turn !== null) return;
    this.add(event, fields);
    this.#isEnded = true;
    try {
      writeSync(this.#fd, this.#linesOf(this.#queue));
      fdatasyncSync(this.#fd);
    } catch (error) {
      this.#failed(error);
    }
  }

  #open(): void {
    this.#fd = openAuditFile(this.#options.path, (fd) => (this.#isTorn = followFile(fd, this.#chain)));
  }

  #later(ms: number): void {
    const run = () => {
      this.#timer = null;
      void this.#run(false);
    };
    if (!this.#isClosing) this.#timer ??= this.#options.clock.after(ms, run);
  }

  #run(isLast: boolean): Promise<void> {
    const { fail, clock } = this.#options;
    const late = fail === "open" ? null : clock.after(MAX_WAIT_MS, () => this.#failed(new Error("the disk takes longer than a second")));
    this.#turn = this.#writeAndSync(isLast)
      .then(() => this.#succeeded(), (error: unknown) => this.#failed(error))
      .then(() => {
        late?.cancel();
        this.#turn = null;
        if (this.isFailing && fail === "closed") this.#later(RETRY_MS);
        else if (this.#queue.length > 0) this.#later(HOLD_MS[fail]);
        else if (!this.#isSynced) this.#later(this.isFailing ? RETRY_MS : Math.max(this.#syncedAt + SYNC_MS - clock.now(), 1));
      });
    return this.#turn;
  }

  async #writeAndSync(isLast: boolean): Promise<void> {
    const { fail, clock } = this.#options;
    const batch = this.#queue.splice(0, MAX_BATCH);
    for (const { event, fields } of batch) this.#held -= event.length + fields.length;
    if (batch.length > 0) await this.#write(batch);
    if (this.#isSynced || (fail === "open" && !isLast && clock.now() < this.#syncedAt + SYNC_MS)) return;
    this.#syncedAt = clock.now();
    await this.#disk.sync(this.#fd!);
    this.#isSynced = true;
  }

  async #write(batch: readonly AuditEvent[]): Promise<void> {
    let whole = 0;
    try {
      if (this.#fd === null) this.#open();
      await this.#replaceFile();
      const [before, lost] = [this.#chain.copy(), this.#lost];
      const bytes = this.#linesOf(batch);
      let from = 0;
      try {
        while (from < bytes.length) from += await this.#disk.write(this.#fd!, bytes, from);
        [this.#isTorn, this.#isSynced] = [false, false];
      } catch (error) {
        whole = this.#undo(before, bytes.subarray(0, from));
        if (whole === 0) this.#lost += lost;
        throw error;
      }
    } catch (error) {
      this.#giveBack(batch.slice(whole));
      throw error;
    }
  }

  #linesOf(batch: readonly AuditEvent[]): Buffer {
    let text = this.#isTorn ? "\n" : "";
    for (const { time, event, fields } of batch) {
      const { seq, prev, torn } = this.#chain;
      const more = (torn === undefined ? "" : `,"torn":"${torn}"`) + (this.#lost === 0 ? "" : `,"lost":${this.#lost}`);
      const line = `{"seq":${seq + 1},"time":"${time}","event":"${event}","prev":"${prev}"${more}${fields === "" ? "" : ","}${fields}}`;
      this.#lost = 0;
      this.#chain.follow(line, seq + 1);
      text += `${line}\n`;
    }
    return Buffer.from(text);
  }

  /** The chain ends with what was written of a batch. Returns how many of its lines were. */
  #undo(before: Chain, written: Buffer): number {
    this.#chain = before;
    let whole = 0;
    let from = this.#isTorn && written.length > 0 ? 1 : 0;
    for (let at = written.indexOf(LINE_FEED, from); at >= 0; at = written.indexOf(LINE_FEED, from)) {
      before.follow(written.subarray(from, at), before.seq + 1);
      from = at + 1;
      whole++;
    }
    if (written.length === 0) return 0;
    this.#isTorn = from < written.length;
    this.#isSynced = false;
    if (!this.#isTorn) return whole;
    const end = written.subarray(from);
    // Only its newline may be missing.
    const seq = chainedLine(end)?.seq ?? null;
    before.follow(end, seq);
    return seq === null ? whole : whole + 1;
  }

  /** These could not be written: with "closed" they wait. */
  #giveBack(events: readonly AuditEvent[]): void {
    if (this.#options.fail === "open") {
      this.#lost += events.length;
      return;
    }
    this.#queue.unshift(...events);
    for (const { event, fields } of events) this.#held += event.length + fields.length;
  }

  /** The file that `reopen` has opened. */
  async #replaceFile(): Promise<void> {
    const fd = this.#fd!;
    if (this.#nextFd === null) return;
    // Before the new file is taken: where it fails, that waits for the next turn.
    if (!this.#isSynced) await this.#disk.sync(fd);
    const next = this.#nextFd;
    this.#nextFd = null;
    // A file that is written on, as with copytruncate.
    if (isSameFile(fd, next)) return close(next, ignore);
    this.#fd = next;
    // A torn line at the end of the old file is ended by that.
    this.#isTorn = false;
    close(fd, ignore);
  }

  #succeeded(): void {
    const { path: file, log } = this.#options;
    if (this.#isSynced || this.#options.fail === "open") this.#written = this.#added - this.#queue.length;
    this.#release();
    if (!this.isFailing) return;
    log.info("the audit log is written again", { file });
    this.isFailing = false;
    this.onChange();
  }

  #failed(error: unknown): void {
    const { path: file, log } = this.#options;
    if (this.isFailing) return;
    log.error("the audit log cannot be written", { file, error: messageOf(error) });
    this.isFailing = true;
    this.onChange();
    this.#release();
  }

  /** Lets those go on whose events are written, or nobody knows when. */
  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = this.isFailing ? [] : waiting.filter(({ number }) => number > this.#written);
    for (const { number, done } of waiting) if (this.isFailing || number <= this.#written) done();
  }
}

const LINE_FEED = 0x0a;

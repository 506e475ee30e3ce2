/**
 * Keeps decisions in a file, so that they outlive the program: those of the last half second are written together. A
 * slot of the file is one of the ring, with a checksum; a second file has the texts of names.
 */
import { createHash } from "node:crypto";
import { closeSync, constants, readSync } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { mix, textHash } from "../base/mix.ts";
import { openRegularFile } from "../base/regular_file.ts";
import { replaceFile } from "../base/replaced_file.ts";
import type { StateFolder } from "../base/state_folder.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { isSound, learnNames, learnSteps, moveAll } from "./decision_reader.ts";
import { DecisionRing, SLOT_BYTES, type Decisions } from "./decisions.ts";
import type { Metrics } from "./metrics_plan.ts";
import { DECISION_FILE, NAMES_FILE, removeDecisions } from "./removed_decisions.ts";

const FORMAT = "edge-gateway decisions 2";
const SAVE_MS = 500;
/** After failures: each writes the whole ring again. */
const LONGEST_PAUSE_MS = 60_000;
/** The first line: format, number of decisions that are kept, and a checksum of both, filled up with spaces. */
const HEAD_BYTES = 64;
/** Of a slot and its checksum. */
const RECORD_BYTES = SLOT_BYTES + 4;
const SLOT_WORDS = SLOT_BYTES / 4;
const RECORD_WORDS = RECORD_BYTES / 4;
/** Slots that are read or written at once: 100 KB, a fifth of a millisecond. */
const SLOTS_OF_STEP = 500;
const MOST_DECISIONS = 1_000_000;
/** Names of a line of their file, which is written and read at once. */
const NAMES_OF_LINE = 500;
/** Of the checksum of their file, with the end of its line. */
const DIGEST_BYTES = 65;
/** Of the file of names that are hashed at once. */
const PIECE_BYTES = 2 ** 16;
/** No number of a decision. */
const NONE = -1;

export interface DecisionFileTools {
  readonly folder: StateFolder;
  readonly metrics: Pick<Metrics, "inForce">;
  readonly decisions: Decisions;
  readonly clock: Clock;
  readonly log: Log;
}

export class DecisionFile implements NonNullable<Decisions["kept"]> {
  readonly #tools: DecisionFileTools;
  readonly #path: string;
  /** How many decisions the program before kept; null: it has left none, they cannot be used, or they are read. */
  #former: number | null;
  /** Gets those of before; null: none are remembered. */
  readonly #first: DecisionRing | null;
  #isThere = true;
  /** The ring whose decisions the file has; null: the file is to be written as a whole. */
  #ring: DecisionRing | null = null;
  /** The number of the newest decision that was written. */
  #written: number;
  /** Slots that a thread was writing to when they were to be written here: each is written once more. */
  #open: number[] = [];
  /** The configuration whose names the file beside it has. */
  #named: object | null = null;
  #timer: Timer;
  /** Until the next saving: twice as long after each failure. */
  #pauseMs = SAVE_MS;
  #isClosed = false;
  #saving: Promise<void> = Promise.resolve();

  /** Before a request can come: the first numbers are left to the decisions of before, which are read later. */
  constructor(tools: DecisionFileTools) {
    this.#tools = tools;
    this.#path = join(tools.folder.path, DECISION_FILE);
    this.#former = this.#countOfFormer();
    const { ring } = tools.decisions;
    this.#first = ring;
    if (this.#former !== null && ring !== null)
      Atomics.compareExchange(ring.words, 0, 0, Math.min(this.#former, ring.count));
    // Where the program has begun to remember requests later, some may be in the ring before this is loaded.
    this.#written = (this.#former === null ? ring?.lap : ring?.last) ?? NONE;
    this.#timer = this.#saveLater();
  }

  #saveLater(): Timer {
    return this.#tools.clock.after(this.#pauseMs, () => {
      this.restore();
      void this.save().then(() => {
        if (!this.#isClosed) this.#timer = this.#saveLater();
      });
    });
  }

  restore(): void {
    const { decisions } = this.#tools;
    const count = this.#former;
    const ring = this.#first;
    if (count === null || ring === null) return;
    this.#former = null;
    decisions.moved = decisions.moved.then(() => this.#restore(count, ring));
  }

  /** Writes what has changed. Never rejects. */
  save(): Promise<void> {
    return (this.#saving = this.#saving.then(() => this.#save()));
  }

  /** Resolves when all is written, or cannot be. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer.cancel();
    await this.save();
  }

  async #save(): Promise<void> {
    const { decisions } = this.#tools;
    await decisions.moved;
    const { ring } = decisions;
    try {
      if (ring === null) await this.#remove();
      else await this.#saveRing(ring);
      const message = ring === null ? "decisions are removed" : "decisions are written again";
      if (this.#pauseMs > SAVE_MS) this.#tools.log.info(message, { file: this.#path });
      this.#pauseMs = SAVE_MS;
    } catch (error) {
      this.#ring = null;
      this.#written = NONE;
      const isFirst = this.#pauseMs === SAVE_MS;
      this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
      this.#tools.folder.failures++;
      if (isFirst || this.#pauseMs === LONGEST_PAUSE_MS) this.#report(error, ring === null);
    }
  }

  async #saveRing(ring: DecisionRing): Promise<void> {
    const isSame = ring === this.#ring;
    const newest = ring.last;
    const count = (newest - this.#written + ring.lap) % ring.lap;
    if (count === 0 && this.#open.length === 0 && (isSame || this.#ring === null)) return;
    // What is there is replaced.
    this.restore();
    await this.#tools.decisions.moved;
    this.#isThere = true;
    await this.#saveNames();
    const file = isSame ? await this.#reopened() : null;
    if (file === null) await this.#replace(ring);
    else {
      try {
        const again = this.#open;
        this.#open = [];
        for (const slot of again) await this.#write(file, ring, slot, slot + 1, false);
        const first = count < ring.slots ? this.#written % ring.slots : 0;
        const end = first + Math.min(count, ring.slots);
        await this.#write(file, ring, first, Math.min(end, ring.slots));
        await this.#write(file, ring, 0, end - ring.slots);
      } finally {
        await file.close();
      }
    }
    this.#written = newest;
    this.#ring = ring;
  }

  /** Null: it was moved away. */
  async #reopened(): Promise<FileHandle | null> {
    try {
      const { O_RDWR, O_NONBLOCK, O_NOFOLLOW } = constants;
      return await open(this.#path, O_RDWR | O_NONBLOCK | O_NOFOLLOW);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    }
  }

  async #replace(ring: DecisionRing): Promise<void> {
    this.#open = [];
    const prepare = async (file: FileHandle) => {
      await file.write(Buffer.from(headOf(ring.count)), 0, HEAD_BYTES, 0);
      await this.#write(file, ring, 0, ring.slots);
    };
    await replaceFile(this.#path, [], { beside: `${this.#path}.new`, isOver: true, prepare });
  }

  /** Slots `from` to `end`. `isFirst`: slots that a thread is writing to are noted for the next time. */
  async #write(file: FileHandle, ring: DecisionRing, from: number, end: number, isFirst = true): Promise<void> {
    for (let first = from; first < end; first += SLOTS_OF_STEP) {
      const words = new Int32Array(Math.min(SLOTS_OF_STEP, end - first) * RECORD_WORDS);
      let written = 0;
      for (let at = 0; at < words.length; at += RECORD_WORDS) {
        const slot = first + at / RECORD_WORDS;
        const state = copySlot(ring, slot, words, at);
        if (state === "complete") written++;
        else words.fill(0, at, at + RECORD_WORDS);
        if (state === "open" && isFirst) this.#open.push(slot);
      }
      if (written === 0) continue;
      const records = Buffer.from(words.buffer);
      const at = HEAD_BYTES + first * RECORD_BYTES;
      for (let done = 0; done < records.length;)
        done += (await file.write(records, done, records.length - done, at + done)).bytesWritten;
    }
  }

  /** Before the decisions that have their numbers. */
  async #saveNames(): Promise<void> {
    const { decisions, metrics } = this.#tools;
    const { inForce } = metrics;
    await learnNames(decisions, inForce);
    if (this.#named === inForce) return;
    await this.#tools.folder.write(NAMES_FILE, await inSlices(contentOf(decisions.names), paced()));
    this.#named = inForce;
  }

  /** None are remembered any more. */
  async #remove(): Promise<void> {
    if (!this.#isThere) return;
    this.#ring = this.#named = null;
    this.#written = NONE;
    await removeDecisions(this.#tools.folder);
    this.#isThere = false;
  }

  /** Null: the program before has left none, or they cannot be used. */
  #countOfFormer(): number | null {
    try {
      const head = headIn(this.#path);
      if (head === null) return null;
      const [, count] = /^edge-gateway decisions 2 (\d+) /.exec(head) ?? [];
      if (count !== undefined && head === headOf(Number(count)) && Number(count) <= MOST_DECISIONS)
        return Number(count);
      const [format] = /^edge-gateway decisions \d+/.exec(head) ?? [];
      throw new Error(format === undefined || format === FORMAT ? "it is damaged" : `it has the format "${format}"`);
    } catch (error) {
      this.#unusable(error);
      return null;
    }
  }

  /** Never rejects. */
  async #restore(count: number, ring: DecisionRing): Promise<void> {
    const { metrics, decisions, folder, log } = this.#tools;
    try {
      const { former, newest, lost } = await this.#read(count);
      if (lost > 0)
        log.warn("decisions of the previous run are lost: records in the file are damaged", { file: this.#path, lost });
      if (newest === 0) return;
      await learnNames(decisions, metrics.inForce);
      try {
        const names = await inSlices(namesIn(folder), paced());
        // Beyond that all would be forgotten.
        const room = Math.max(0, decisions.maxNames - decisions.names.size);
        await inSlices(learnSteps(decisions, names.slice(0, room)), paced());
      } catch (error) {
        const file = join(folder.path, NAMES_FILE);
        log.warn("names in decisions of the previous run cannot be used", { file, error: messageOf(error) });
      }
      await moveAll(former, newest, ring);
    } catch (error) {
      this.#unusable(error);
    }
  }

  /** `newest`: the number of the newest; 0: there is none. `lost`: records that are damaged. */
  async #read(count: number): Promise<{ former: DecisionRing; newest: number; lost: number }> {
    const former = new DecisionRing(count, (_name, bytes) => new ArrayBuffer(bytes), 0);
    const { slots, lap } = former;
    let newest = 0;
    let lost = 0;
    const file = await open(this.#path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      for (let first = 0; first < slots; first += SLOTS_OF_STEP) {
        const words = new Int32Array(Math.min(SLOTS_OF_STEP, slots - first) * RECORD_WORDS);
        const records = Buffer.from(words.buffer);
        const { bytesRead } = await file.read(records, 0, records.length, HEAD_BYTES + first * RECORD_BYTES);
        for (let at = 0; at * 4 < bytesRead; at += RECORD_WORDS) {
          const number = words[at]!;
          if (number === 0 && (at + RECORD_WORDS) * 4 <= bytesRead) continue;
          const isPlaced = number > 0 && number <= lap && (number - 1) % slots === first + at / RECORD_WORDS;
          const isWhole = isPlaced && words[at + SLOT_WORDS] === checksum(words, at);
          if (!isWhole || !isSound(records.subarray(at * 4, at * 4 + SLOT_BYTES))) {
            lost++;
            continue;
          }
          former.words.set(words.subarray(at, at + SLOT_WORDS), former.at(number) >> 2);
          const isNewer = newest === 0 || (number - newest + lap) % lap < lap / 2;
          if (isNewer) newest = number;
        }
        if (bytesRead < records.length) break;
      }
    } finally {
      await file.close();
    }
    return { former, newest, lost };
  }

  #unusable(error: unknown): void {
    const why = messageOf(error);
    this.#tools.log.warn("decisions of the previous run cannot be used", { file: this.#path, error: why });
  }

  /** The first failure, and then one a minute. */
  #report(error: unknown, isRemoval: boolean): void {
    const { log } = this.#tools;
    const facts = { file: this.#path, error: messageOf(error) };
    if (isRemoval) log.error("decisions cannot be removed", facts);
    else log.error("decisions cannot be written, and are kept in memory only", facts);
  }
}

function headOf(count: number): string {
  const facts = `${FORMAT} ${count}`;
  return `${`${facts} ${textHash(facts).toString(16)}`.padEnd(HEAD_BYTES - 1)}\n`;
}

/** The first line of a file; null: there is no file. Throws the system's error. */
function headIn(path: string): string | null {
  let fd: number;
  try {
    fd = openRegularFile(path, constants.O_RDONLY);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  try {
    const head = Buffer.alloc(HEAD_BYTES);
    return head.toString("latin1", 0, readSync(fd, head));
  } finally {
    closeSync(fd);
  }
}

/** Copies a slot by its place, with its checksum; "open": a thread is writing to it. A loop over words is fastest. */
function copySlot(ring: DecisionRing, slot: number, to: Int32Array, at: number): "complete" | "open" | "void" {
  const { words } = ring;
  const from = ring.at(slot + 1) >> 2;
  const number = Atomics.load(words, from);
  if (number <= 0) return number === 0 ? "void" : "open";
  for (let i = 0; i < SLOT_WORDS; i++) to[at + i] = words[from + i]!;
  to[at + SLOT_WORDS] = checksum(to, at);
  return Atomics.load(words, from) === number ? "complete" : "open";
}

/** FNV-1a over the words of a slot, mixed. */
function checksum(words: Int32Array, at: number): number {
  let sum = 0x811c9dc5;
  for (let i = at; i < at + SLOT_WORDS; i++) sum = Math.imul(sum ^ words[i]!, 0x01000193);
  return mix(sum) | 0;
}

/** Of the file of names: a checksum, then lists of them, one a line. */
function* contentOf(names: ReadonlyMap<number, string>): Generator<void, readonly Buffer[]> {
  const digest = createHash("sha256");
  const pieces: Buffer[] = [];
  const end = (texts: readonly string[]) => {
    const piece = Buffer.from(`${JSON.stringify(texts)}\n`);
    digest.update(piece);
    pieces.push(piece);
  };
  let texts: string[] = [];
  for (const text of names.values()) {
    if (text !== "") texts.push(text);
    if (texts.length < NAMES_OF_LINE) continue;
    end(texts);
    texts = [];
    yield;
  }
  end(texts);
  return [Buffer.from(`${digest.digest("hex")}\n`), ...pieces];
}

/** The texts of the file of names. Throws where it cannot be read or is damaged: decisions have no names then. */
function* namesIn(folder: StateFolder): Generator<void, readonly string[]> {
  const content = folder.read(NAMES_FILE);
  if (content === null) return [];
  const digest = createHash("sha256");
  for (let at = DIGEST_BYTES; at < content.length; at += PIECE_BYTES) {
    digest.update(content.subarray(at, at + PIECE_BYTES));
    yield;
  }
  if (content.toString("latin1", 0, DIGEST_BYTES) !== `${digest.digest("hex")}\n`) throw new Error("it is damaged");
  const names: string[] = [];
  for (let at = DIGEST_BYTES, end = 0; at < content.length; at = end) {
    end = content.indexOf("\n", at) + 1 || content.length;
    const list = parsed(content.toString("utf8", at, end));
    if (Array.isArray(list)) for (const name of list) if (isName(name)) names.push(name);
    yield;
  }
  return names;
}

/** A text; one that looks like the key of an instance is one. */
function isName(name: unknown): name is string {
  if (typeof name !== "string" || !name.startsWith('["')) return typeof name === "string";
  const key = parsed(name);
  return Array.isArray(key) && key.length === 5 && typeof key[3] === "string";
}

/** Null for text that is no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * Decisions: what became of the latest requests, each in a slot of bytes, in memory that all threads of the program
 * share. They have no query, no header and no body, and paths as the access log has them. `decision_reader.ts` reads
 * them.
 */
import { createHash } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { textHash } from "../base/mix.ts";
import type { Notes } from "../http/exchange.ts";
import { redactedPath } from "../http/redact.ts";
import type { RequestFacts } from "../http/request_facts.ts";
import { isPlain, loggedHost, pathOf, plainPath } from "./access_line.ts";
import { traceIdOf } from "./traceparent.ts";

const DEFAULT_COUNT = 10_000;
/** Of the number of requests so far, in front of the slots. */
const HEAD_BYTES = 8;
/**
 * Of a slot: one word for its number, one for status and number of steps, 64-bit numbers (time, milliseconds, digest,
 * service, route, answerer), lines of text (id, client, method, code with rule, caller and method of MCP, host, path),
 * and at the end the steps, the tries as the latest: four words, of which the first two have the number of an upstream
 * or plugin (48 bits) and the status, the third and fourth when it began and how long it took, in hundredths of a
 * millisecond.
 */
export const SLOT_BYTES = 200;
export const TEXTS_AT = 56;
export const STEP_BYTES = 16;
/** In place of a status: the step is one of a plugin. */
export const BY_PLUGIN = 1_023;
/** With the number of steps: behind them, at the very end, is the id of the trace, which takes as much room. */
export const TRACED = 0x100;
/** All of these, one try and an end of the path fit. */
const MOST = { id: 40, client: 40, method: 10, code: 28, rule: 48, caller: 48, mcp: 48 };
const PATH_ROOM = 24;
/** More of a path is not looked at. */
const MAX_PATH = 256;
/** In one line, between the code, the rule of a plugin that has refused, the caller, and what was asked of MCP. */
export const BETWEEN_TEXTS = 0x09;
/** Between a method of MCP and the name of a tool or prompt; few methods have it. */
export const BEFORE_NAME = ":";
/** Where a text is cut; shown as "…". */
export const CUT = 0x85;
const LINE_FEED = 0x0a;
const SLASH = 0x2f;

export class DecisionRing {
  readonly count: number;
  readonly slots: number;
  /** Numbers begin again behind it: a multiple of the slots. */
  readonly lap: number;
  readonly bytes: Buffer;
  readonly words: Int32Array;
  readonly doubles: Float64Array;

  /** `taken`: how many of the first numbers are for decisions of an earlier ring. */
  constructor(count: number, memory: (name: string, bytes: number) => ArrayBufferLike, taken: number) {
    this.count = count;
    // With few slots, threads would meet in one of them.
    this.slots = Math.max(count, 64);
    this.lap = Math.floor(2 ** 30 / this.slots) * this.slots;
    const shared = memory(`decisions ${count}`, HEAD_BYTES + this.slots * SLOT_BYTES);
    this.bytes = Buffer.from(shared);
    this.words = new Int32Array(shared);
    this.doubles = new Float64Array(shared);
    Atomics.compareExchange(this.words, 0, 0, taken);
  }

  /** Where the slot of a number begins. */
  at(number: number): number {
    return HEAD_BYTES + ((number - 1) % this.slots) * SLOT_BYTES;
  }

  /** When the request with this number ended, in milliseconds since 1970. */
  timeOf(number: number): number {
    return this.doubles[(this.at(number) >> 3) + 1]!;
  }

  /** The number of the latest request. */
  get last(): number {
    return Atomics.load(this.words, 0) % this.lap || this.lap;
  }

  /** The number of the request so many before it. */
  before(number: number, age: number): number {
    return ((number - 1 - age + this.lap) % this.lap) + 1;
  }

  /** The number of one more request. Until `end` its slot has it as a negative one. */
  begin(): number {
    const before = Atomics.add(this.words, 0, 1);
    if (before === this.lap) Atomics.sub(this.words, 0, this.lap);
    const number = (before % this.lap) + 1;
    Atomics.store(this.words, this.at(number) >> 2, -number);
    return number;
  }

  /** Without locks: a thread that was held up until others had come round to its slot makes it void. */
  end(number: number): void {
    const word = this.at(number) >> 2;
    if (Atomics.compareExchange(this.words, word, -number, number) !== -number) Atomics.store(this.words, word, 0);
  }

  /**
   * Writes a line, cut if it does not end before `end`; returns where the next one begins. A loop is faster than
   * `Buffer.write` for texts this short.
   */
  line(at: number, text: string, end: number): number {
    const { bytes } = this;
    const last = Math.min(at + text.length, end - 1);
    for (let i = at; i < last; i++) bytes[i] = text.charCodeAt(i - at);
    if (last < at + text.length && last > at) bytes[last - 1] = CUT;
    bytes[last] = LINE_FEED;
    return last + 1;
  }

  /** Adds a text to the line before, unless a try and an end of the path would not fit any more. */
  more(at: number, text: string, most: number, end: number): number {
    const textEnd = Math.min(at + most + 1, end - STEP_BYTES - PATH_ROOM);
    if (at + Math.min(most, 1) >= textEnd) return at;
    this.bytes[at - 1] = BETWEEN_TEXTS;
    return this.line(at, text, textEnd);
  }

  /**
   * Writes a line up to the query, if all characters before are of the kind and it ends before `end`; returns where the
   * next one begins, else 0.
   * To read each character once spares two searches (`plainPath`, `hostOf`): 0.33 µs a request instead of 0.46.
   */
  plainLine(at: number, text: string, end: number, kind: number): number {
    const { bytes } = this;
    const { length } = text;
    const most = Math.min(length, end - 1 - at);
    let code = 0;
    let i = 0;
    for (; i < most; i++) {
      code = text.charCodeAt(i);
      if ((KINDS[code]! & kind) === 0) break;
      bytes[at + i] = code;
    }
    if (i < length && (i === most || kind !== OF_PATH || !isQueryStart(code))) return 0;
    bytes[at + i] = LINE_FEED;
    return at + i + 1;
  }
}

const OF_PATH = 1;
const OF_HOST = 2;
/**
 * By the code of a character: whether it may be in a path, and in a host, that are kept as they are. Not "J", by which
 * a token begins (`eyJ`).
 */
const KINDS = Uint8Array.from({ length: 256 }, (_, code) => {
  const text = String.fromCharCode(code);
  const isOfPath = text !== "J" && plainPath(`/${text}`) === `/${text}`;
  return (isOfPath ? OF_PATH : 0) | (loggedHost({ authority: text, target: "/" }) === null ? 0 : OF_HOST);
});

function isQueryStart(code: number): boolean {
  return code === 0x3f || code === 0x23;
}

export class Decisions {
  /** Null: none are kept. */
  ring: DecisionRing | null = null;
  /** Resolves when it has those that it takes over. */
  moved: Promise<void> = Promise.resolve();
  /** Keeps them over restarts; null: they end with the program. */
  kept: { restore(): void; close(): Promise<void> } | null = null;
  /** Called when requests begin to be remembered; null: nobody waits for it. */
  onFirstRing: (() => void) | null = null;
  /** What numbers in slots stand for. */
  readonly names = new Map<number, string>();
  /** All are forgotten before there are more. A configuration has to fit, beside those of the ones before. */
  maxNames = 2 ** 16;
  readonly #numbers = new Map<string | null, number>([[null, 0]]);
  readonly #clock: Clock;
  /** Of the last request. */
  #digest = { text: "", number: 0 };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** For a configuration that is compiled. `count`: as it is configured. */
  ringFor(count = DEFAULT_COUNT, memory: (name: string, bytes: number) => ArrayBufferLike): DecisionRing | null {
    return count === 0 ? null : new DecisionRing(count, memory, Math.min(count, this.ring?.count ?? 0));
  }

  /** 48 bits, the same in all threads. */
  numberOf(name: string | null): number {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    if (this.names.size >= this.maxNames) [this.names, this.#numbers].forEach((names) => names.clear());
    const number = name === null ? 0 : textHash(name) * 2 ** 16 + (textHash(`#${name}`) >>> 16);
    if (name !== null) this.names.set(number, name);
    this.#numbers.set(name, number);
    return number;
  }

  /** A request has ended at `now`. */
  add({ call, method, target, authority, clientAddress, headers }: RequestFacts, now: number): void {
    const { ring } = this;
    if (ring === null) return;
    const { notes } = call;
    const { words, doubles } = ring;
    const number = ring.begin();
    const at = ring.at(number);
    let double = at >> 3;
    doubles[++double] = this.#clock.wall();
    doubles[++double] = now - call.startedAt;
    if (notes.digest !== this.#digest.text) this.#digest = { text: notes.digest, number: parseInt(notes.digest, 16) };
    doubles[++double] = this.#digest.number;
    doubles[++double] = this.numberOf(notes.service);
    doubles[++double] = this.numberOf(notes.route);
    doubles[++double] = this.numberOf(answererOf(notes));
    let end = at + SLOT_BYTES;
    let next = ring.line(at + TEXTS_AT, idText(call.id), end);
    next = ring.line(next, clientAddress, next + MOST.client + 1);
    next = ring.line(next, method, next + MOST.method + 1);
    next = ring.line(next, codeText(notes.code) ?? (call.aborted ? "client_closed" : ""), next + MOST.code + 1);
    const { rule, identity, mcp } = notes;
    // A plugin of others may have put anything there.
    const caller = typeof identity === "string" ? identity : null;
    const isRuled = rule !== null && notes.by !== null;
    if (isRuled) next = ring.more(next, codeText(rule), MOST.rule, end);
    if (caller !== null) {
      if (!isRuled) next = ring.more(next, "", 0, end);
      next = ring.more(next, codeText(caller), MOST.caller, end);
    }
    if (mcp !== null) {
      if (!isRuled && caller === null) next = ring.more(next, "", 0, end);
      if (caller === null) next = ring.more(next, "", 0, end);
      const text = mcp.name === null ? mcp.method : `${mcp.method}${BEFORE_NAME}${mcp.name}`;
      next = ring.more(next, codeText(text), MOST.mcp, end);
    }
    const traceId = notes.span === null ? traceIdOf(headers) : notes.span.traceId;
    const isTraced = traceId !== null && end - next >= 2 * STEP_BYTES + PATH_ROOM;
    if (isTraced) {
      end -= STEP_BYTES;
      for (let i = 0; i < 4; i++) words[(end >> 2) + i] = parseInt(traceId.slice(8 * i, 8 * i + 8), 16);
    }
    // The latest steps, as many as leave room for a part of the path; a try is under way if the client has
    // disconnected.
    const { askedAt, upstream, tried: before } = notes;
    const { startedAt } = call;
    let steps = 0;
    let tried: Notes["tried"] =
      askedAt === null ? before : { upstream: upstream!, status: null, from: askedAt, ms: now - askedAt, before };
    for (; tried !== null && (steps === 0 || end - next >= STEP_BYTES + PATH_ROOM); tried = tried.before) {
      end -= STEP_BYTES;
      steps++;
      this.#writeStep(words, end, tried.upstream, tried.status ?? 0);
      writeTimes(words, end, tried.from - startedAt, tried.ms);
    }
    for (let { held } = notes; held !== null && end - next >= STEP_BYTES + PATH_ROOM; held = held.before) {
      end -= STEP_BYTES;
      steps++;
      this.#writeStep(words, end, held.plugin, BY_PLUGIN);
      writeTimes(words, end, held.from - startedAt, held.ms);
    }
    const plain = target.charCodeAt(0) === SLASH ? ring.plainLine(next, authority, end, OF_HOST) : 0;
    if (plain === 0 || ring.plainLine(plain, target, end, OF_PATH) === 0) {
      // What it has written may be a secret.
      ring.bytes.fill(0, next, end);
      const path = plainPath(target) ?? beginOf(pathOf(target));
      // An end of the path is worth more than one of the host.
      next = ring.line(
        next,
        loggedHost({ authority, target }) ?? "",
        Math.max(end - path.length - 1, (next + end) >> 1),
      );
      ring.line(next, path, end);
    }
    words[(at >> 2) + 1] = ((isTraced ? TRACED | steps : steps) << 16) | (notes.status ?? 0);
    ring.end(number);
  }

  /** `name`: of an upstream, or of a plugin (`Scope.key`). */
  #writeStep(words: Int32Array, place: number, name: string, status: number): void {
    const number = this.numberOf(name);
    // An assignment takes the low 32 bits.
    words[place >> 2] = number;
    words[(place >> 2) + 1] = Math.floor(number / 2 ** 32) * 2 ** 10 + status;
  }
}

/** In milliseconds, `at` since the request had arrived; each is 11.9 hours at most. */
function writeTimes(words: Int32Array, place: number, at: number, ms: number): void {
  words[(place >> 2) + 2] = hundredths(at);
  words[(place >> 2) + 3] = hundredths(ms);
}

/** Never negative: a fetch that a request has joined may have begun before it. */
function hundredths(ms: number): number {
  return Math.min(Math.max(Math.round(ms * 100), 0), 2 ** 32 - 1);
}

/**
 * A path with its secrets redacted, as much of it as a slot may have room for: 8 KB of parameters take 0.3 ms. A secret
 * that is cut off is not recognised by its end, but by what is before it.
 */
function beginOf(path: string): string {
  return path.length <= MAX_PATH
    ? redactedPath(path)
    : redactedPath(path.slice(0, MAX_PATH)) + String.fromCharCode(CUT);
}

/** What `idText` makes of an id that is too long. No id begins with "#". */
export const HASHED_ID = /^#[\w-]{39}$/;

/** An id as a slot has it: by a hash if it is too long. */
export function idText(id: string): string {
  return id.length < MOST.id ? id : `#${createHash("sha256").update(id).digest("base64url").slice(1, MOST.id)}`;
}

/**
 * Codes and rules of plugins that are not built in, names of groups and claims in rules, and callers may be any text.
 */
function codeText<T extends string | null>(text: T): T {
  return (text === null || isPlain(text) ? text : text.replace(/[^!-~]/g, "?")) as T;
}

/** Who has given the reply: a plugin by its key; null: nobody has. */
export function answererOf({ status, code, by, tried }: Notes): string | null {
  if (status === null) return null;
  if (by !== null) return by.scope.key;
  return tried !== null && (code === null || (tried.status === status && code !== "internal")) ? "upstream" : "gateway";
}

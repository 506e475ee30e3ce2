/**
 * One connection to one Redis or Valkey server: sends commands, matches replies with them, and opens the connection
 * again when it is lost.
 */
import type { Socket } from "node:net";
import type { Clock, Timer } from "../base/clock.ts";
import { connectFailure, messageOf } from "../base/errors.ts";
import { TimeLimit } from "../base/time_limit.ts";
import type { WriteBatch } from "../base/event_loop.ts";
import { ErrorReply, ReplyParser, type RespValue } from "./resp.ts";

export interface RedisCommand {
  /** As it is sent. */
  readonly text: string;
  /** It is on the wire. `now`: the monotonic clock. */
  written?(now: number): void;
  /** Called once, unless `failed` is. */
  answered(reply: RespValue, connection: RedisConnection): void;
  /** There will be no reply: the connection was lost, or cannot be used. */
  failed(): void;
}

/**
 * A command that prepares a new connection. Returns undefined if its reply is right, else why the server cannot be
 * used.
 */
export interface Greeting {
  readonly text: string;
  problem(reply: RespValue): string | undefined;
}

export interface RedisConnectionOptions {
  /** For reports: "10.0.0.7:6379". */
  readonly address: string;
  /** Begins to connect. `ready` names the event that the socket emits when it can be used. */
  readonly open: () => { readonly socket: Socket; readonly ready: string };
  /** At least two. The last one is sent when the others are answered. */
  readonly greetings: readonly Greeting[];
  /** Time limit for the connection, and for all greetings except the last one, in milliseconds. */
  readonly connectMs: number;
  /** Time limit for the last greeting: a server that is slower is not used. In milliseconds. */
  readonly answerMs: number;
  readonly clock: Clock;
  readonly writeBatch: WriteBatch;
  readonly random: () => number;
  /** Called when `state` has changed. */
  readonly changed: () => void;
}

/** Most commands that wait for replies. */
const MAX_PENDING = 10_000;
/** Waits between attempts, in milliseconds. */
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2_000;
const KEEP_ALIVE_MS = 30_000;
/** A connection that was lost earlier counts as a failed attempt. In milliseconds. */
const SHORT_LIFE_MS = 1_000;

/** "connecting": commands wait for the connection. "down": the last attempt failed, and commands fail at once. */
export type ConnectionState = "connecting" | "up" | "down" | "closed";

export class RedisConnection {
  readonly address: string;
  readonly #options: RedisConnectionOptions;
  #state: ConnectionState = "connecting";
  #reason: string | null = null;
  #socket: Socket | null = null;
  /** Greetings that are not answered yet. */
  #greetings: readonly Greeting[] = [];
  /** Commands without a reply, in the order in which they were added. */
  #pending: RedisCommand[] = [];
  /** How many of them are on the wire. */
  #owed = 0;
  /** When the server was last heard of, or owed nothing. */
  #heardAt = 0;
  /** Commands that are not written yet. */
  #unwritten = "";
  #failures = 0;
  #upAt = 0;
  #retry: Timer | null = null;
  #limit: TimeLimit | null = null;

  constructor(options: RedisConnectionOptions) {
    this.address = options.address;
    this.#options = options;
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Why it is down; null otherwise. Never has a password in it. */
  get reason(): string | null {
    return this.#reason;
  }

  /** Opens the connection, unless that has begun. */
  start(): void {
    if (this.#socket === null && this.#retry === null && this.#state !== "closed") this.#connect();
  }

  /**
   * Sends a command at the end of this round of the event loop. Returns false when it cannot: nothing is called then.
   */
  send(command: RedisCommand): boolean {
    if (this.#state === "down" || this.#state === "closed" || this.#pending.length >= MAX_PENDING) return false;
    this.start();
    this.#pending.push(command);
    if (this.#unwritten === "" && this.#state === "up") this.#options.writeBatch.add(this);
    this.#unwritten += command.text;
    return true;
  }

  /**
   * A reply is overdue: one that is late is waited for, so that it costs nobody else a decision. A server that is
   * silent for `ms` is given up.
   */
  giveUpAfter(ms: number): void {
    if (this.#owed === 0 || this.#state !== "up") return;
    const { clock } = this.#options;
    const left = this.#heardAt + ms - clock.now();
    if (left <= 0) return this.giveUp(`no answer within ${ms} ms`);
    this.#limit?.cancel();
    this.#limit = new TimeLimit(clock, left, () => this.giveUpAfter(ms));
  }

  /**
   * The server does not do its work: what it still owes fails, and it gets no commands until it answers on a new
   * connection.
   */
  giveUp(reason: string): void {
    if (this.#state !== "closed") this.#lose("down", reason);
  }

  close(): void {
    this.#retry?.cancel();
    this.#drop();
    this.#change("closed", null);
    this.#failAll();
  }

  #connect(): void {
    const { open, greetings, connectMs } = this.#options;
    this.#retry = null;
    let opened: ReturnType<typeof open>;
    try {
      opened = open();
    } catch (error) {
      // TLS settings that cannot be used.
      return this.#lose("down", messageOf(error));
    }
    const { socket, ready } = opened;
    const parser = new ReplyParser();
    // A socket that was given up may still have bytes.
    const own =
      <T>(run: (value: T) => void) =>
      (value: T) =>
        void (this.#socket === socket && run(value));
    const take = own((reply: RespValue) => this.#take(reply));
    const lost = (reason: string) => this.#lose(this.#state === "up" ? "connecting" : "down", reason);
    this.#socket = socket;
    this.#greetings = greetings;
    this.#expectAnswer(connectMs);
    // Firewalls drop silent connections. The clients of requests keep the process alive, not this connection.
    socket.setKeepAlive(true, KEEP_ALIVE_MS).unref();
    const greet = own(() => {
      this.#expectAnswer(connectMs);
      socket.write(
        greetings
          .slice(0, -1)
          .map(({ text }) => text)
          .join(""),
      );
    });
    socket.once(ready, greet);
    const failed = own((error: unknown) => this.#lose("down", messageOf(error)));
    const read = own((chunk: Buffer) => {
      this.#heardAt = this.#options.clock.now();
      try {
        parser.feed(chunk, take);
      } catch (error) {
        failed(error);
      }
    });
    socket.on("data", read);
    socket.on(
      "error",
      own((error: Error) => lost(connectFailure(error))),
    );
    socket.once(
      "close",
      own(() => lost("the server closed the connection")),
    );
  }

  #take(reply: RespValue): void {
    const [greeting, ...rest] = this.#greetings;
    if (greeting !== undefined) {
      const problem = greeting.problem(reply);
      if (problem !== undefined) return this.#lose("down", problem);
      this.#greetings = rest;
      if (rest.length === 0) this.#ready();
      if (rest.length !== 1) return;
      this.#expectAnswer(this.#options.answerMs);
      this.#socket!.write(rest[0]!.text);
      return;
    }
    const command = this.#pending.shift();
    this.#owed--;
    if (command === undefined) return this.#lose("down", "the server sent a reply to no command");
    command.answered(reply, this);
  }

  #expectAnswer(ms: number): void {
    this.#limit?.cancel();
    this.#limit = new TimeLimit(this.#options.clock, ms, () => this.#lose("down", `no answer within ${ms} ms`));
  }

  #ready(): void {
    this.#limit?.cancel();
    this.#upAt = this.#options.clock.now();
    if (this.#unwritten !== "") this.#options.writeBatch.add(this);
    this.#change("up", null);
  }

  /** As `ReadyWrite`. */
  writeNow(): void {
    const text = this.#unwritten;
    if (text === "" || this.#state !== "up") return;
    this.#unwritten = "";
    this.#socket!.write(text);
    const now = this.#options.clock.now();
    if (this.#owed === 0) this.#heardAt = now;
    for (let i = this.#owed; i < this.#pending.length; i++) this.#pending[i]!.written?.(now);
    this.#owed = this.#pending.length;
  }

  /** "connecting": a working connection has ended, as by a restart; commands wait for the next one. */
  #lose(next: "connecting" | "down", reason: string): void {
    const { clock, random } = this.#options;
    const wasUp = this.#state === "up";
    this.#drop();
    if (wasUp && clock.now() - this.#upAt >= SHORT_LIFE_MS) this.#failures = 0;
    else this.#failures++;
    const state = this.#failures === 0 ? next : "down";
    this.#change(state, state === "down" ? reason : null);
    this.#failAll();
    // A command may have closed or restarted this connection.
    if (this.#state === "closed" || this.#socket !== null || this.#retry !== null) return;
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#failures - 1));
    if (this.#failures === 0) this.#connect();
    else this.#retry = clock.after(longest * (0.5 + random() / 2), () => this.#connect());
  }

  #drop(): void {
    this.#limit?.cancel();
    const socket = this.#socket;
    this.#socket = null;
    socket?.destroy();
  }

  #failAll(): void {
    const failed = this.#pending;
    this.#pending = [];
    this.#owed = 0;
    this.#unwritten = "";
    for (const command of failed) command.failed();
  }

  #change(state: ConnectionState, reason: string | null): void {
    if (this.#state === state && this.#reason === reason) return;
    this.#state = state;
    this.#reason = reason;
    this.#options.changed();
  }
}

/** Why a reply is wrong, as text for the log. An error about AUTH is cut to its code: it may repeat the password. */
export function replyProblem(asked: string, reply: RespValue): string {
  if (!(reply instanceof ErrorReply)) return `${asked} got an unknown reply`;
  const { code, message } = reply;
  return (
    `${asked}: ` +
    `${asked === "AUTH" && !message.startsWith("ERR max number of clients") ? code : message.slice(0, 200)}`
  );
}

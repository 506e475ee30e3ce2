/**
 * Keeps rate counters in Redis or Valkey, so that gateways share them: one script call for each decision, and counts in
 * memory, or none, while the server does not answer.
 */
import { hash } from "node:crypto";
import type { Socket } from "node:net";
// Node's own function: the tests of an embedder may replace the global one to stop time.
import { setImmediate } from "node:timers";
import { addressOf } from "../base/ip_address.ts";
import { DeadlineTimer, type Clock, type HasDeadline } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import { SharedCount } from "../base/shared_counts.ts";
import { ALONE, type Threads } from "../base/threads.ts";
import type { WriteBatch } from "../base/event_loop.ts";
import type { MemoryCounters } from "./caller_tables.ts";
import type {
  CostedLimiter,
  Decision,
  GiveMemory,
  Limiter,
  LimiterOptions,
  LocalCosted,
  SharedQuota,
  Undecided,
  Window,
  CountersReport,
  GatewayCounters,
} from "./counters.ts";
import { RedisServers, type RedisServer } from "./redis_cluster.ts";
import { RedisConnection, replyProblem, type RedisCommand, type Greeting } from "./redis_connection.ts";
import { COST_SCRIPT, QUOTA_SCRIPT, RESERVED_COST_SCRIPT, RESERVED_QUOTA_SCRIPT } from "./redis_costs.ts";
import { askedSecret } from "./redis_secret.ts";
import { argumentsOf, SCRIPT, scriptOf, ScriptCalls, type Script } from "./redis_script.ts";
import { command, ErrorReply, type RespValue } from "./resp.ts";

export interface RedisSettings {
  readonly servers: readonly RedisServer[];
  readonly isCluster: boolean;
  /** Null: no AUTH. `user` null: the default user. */
  readonly credentials: { readonly user: string | null; readonly password: string } | null;
  readonly database: number;
  /** Longest wait for a decision, in milliseconds. */
  readonly timeoutMs: number;
  readonly onError: "local" | Undecided;
  /** Of all keys. */
  readonly prefix: string;
}

export interface RedisTools {
  readonly clock: Clock;
  readonly log: Log;
  /** Counts while the server does not. */
  readonly local: MemoryCounters;
  /** Decisions that the server did not make, by reason; added to. */
  readonly errors: Map<string, number>;
  readonly writeBatch: WriteBatch;
  readonly random: () => number;
  readonly connect: RedisConnect;
  /** Default: this thread is alone. */
  readonly shared?: SharedState;
  /** Default: the script of `redis_script.ts`. Specs pass one with another clock. */
  readonly script?: string;
}

/** Begins to connect to a server; `ready` names the event that the socket emits when it can be used. */
export type RedisConnect = (server: RedisServer) => { readonly socket: Socket; readonly ready: string };

/** What the log says; 0: nothing yet. */
const UP = 1;
const DOWN = 2;

/**
 * What all workers of a program know about the server together, so that a change is logged once, whichever of them
 * finds it.
 */
export class SharedState {
  /** Workers for which the state is "down". */
  readonly #down: SharedCount;
  readonly #logged: Int32Array;

  constructor(threads: Threads) {
    this.#down = new SharedCount(threads, "counters that are down");
    this.#logged = new Int32Array(threads.memory("logged state of counters", Int32Array.BYTES_PER_ELEMENT));
  }

  /**
   * The state of this worker has changed: `log` is called if that changes the state of all together, which is "down" if
   * one is down.
   */
  changed(was: CountersReport["state"], state: "up" | "down", log: (state: "up" | "down") => void): void {
    if (state === "down") this.#down.take(0);
    else if (was === "down") this.#down.give();
    for (;;) {
      const now = this.#down.total > 0 ? DOWN : UP;
      if (Atomics.exchange(this.#logged, 0, now) === now) return;
      log(now === UP ? "up" : "down");
      // Another worker may have changed its own state before this one wrote.
    }
  }

  /** The worker with this number is dead. The one that replaces it logs what has changed by that. */
  forget(place: number): void {
    this.#down.clear(place);
  }
}

/** Why a decision could not be had. */
const REASONS = ["timeout", "connection", "server", "queue"] as const;
type Reason = (typeof REASONS)[number];

/** Time limit for a connection, TLS and AUTH included, unless `timeout_ms` is longer. */
const CONNECT_MS = 1_000;
/** A server is given up that has sent nothing for so many times `timeout_ms`. */
const SILENT_FOR = 3;
/** Redirections of one command in a Cluster. */
const MAX_REDIRECTIONS = 5;

export class RedisCounters implements GatewayCounters {
  readonly settings: RedisSettings;
  readonly tools: RedisTools;
  readonly shared: SharedState;
  readonly deadlines: DeadlineTimer;
  readonly servers: RedisServers;
  /** Decisions that are awaited. */
  readonly #asked = new Set<Asked>();
  #state: CountersReport["state"] = "connecting";
  #since: number;
  /** The server refused a decision in this state, and the log says so. */
  #isRefusalLogged = false;
  #isClosed = false;
  #whenIdle = () => {};

  constructor(settings: RedisSettings, tools: RedisTools) {
    const { clock } = tools;
    this.settings = settings;
    this.tools = tools;
    this.shared = tools.shared ?? new SharedState(ALONE);
    this.deadlines = new DeadlineTimer(clock);
    this.#since = clock.wall();
    for (const reason of REASONS) tools.errors.set(reason, tools.errors.get(reason) ?? 0);
    const greetings = greetingsOf(settings, tools.script);
    this.servers = new RedisServers({
      ...settings,
      clock,
      changed: () => this.#look(),
      connection: (server, changed) =>
        new RedisConnection({
          ...tools,
          address: addressOf(server),
          open: () => tools.connect(server),
          greetings,
          connectMs: Math.max(CONNECT_MS, settings.timeoutMs),
          answerMs: settings.timeoutMs,
          changed,
        }),
    });
  }

  limiter(key: string, options: LimiterOptions, memory?: GiveMemory): Limiter {
    const calls = new ScriptCalls(
      scriptOf(this.tools.script ?? SCRIPT),
      argumentsOf(options.windows),
      options.windows.length,
    );
    const local = this.tools.local.limiter(key, options, memory);
    return { decide: (caller) => this.#ask({ calls, tag: tagOf(key, caller), local, caller }) };
  }

  /** Books costs in sliding windows. `local` counts while the server does not. */
  costed(key: string, windows: readonly Window[], local: LocalCosted, reserve: number): CostedLimiter {
    const plain = scriptOf(COST_SCRIPT);
    const reserved = scriptOf(RESERVED_COST_SCRIPT);
    const parts = argumentsOf(windows);
    const looks = new ScriptCalls(plain, [...parts, "0"], windows.length);
    return this.#booked(key, local, reserve > 0, {
      look: () => looks,
      book: (cost) => new ScriptCalls(plain, [...parts, String(cost)], windows.length),
      reserved: (cost) => new ScriptCalls(reserved, [...parts, String(reserve), String(cost)], windows.length),
    });
  }

  /** Counts calendar periods, by the clock of this gateway. */
  quota(key: string, { limit, isCosted, reserve, period }: SharedQuota, local: LocalCosted): CostedLimiter {
    const plain = scriptOf(QUOTA_SCRIPT);
    const reserved = scriptOf(RESERVED_QUOTA_SCRIPT);
    const callsOf = (script: Script, ...what: (string | number)[]) => {
      const { number, end } = period();
      const parts = [limit, number, Math.ceil(end - this.tools.clock.wall()), ...what].map(String);
      return new ScriptCalls(script, parts, 1);
    };
    return this.#booked(key, local, reserve > 0, {
      look: () => callsOf(plain, isCosted ? "0" : "one"),
      book: (cost) => callsOf(plain, cost),
      reserved: (cost) => callsOf(reserved, cost, reserve),
    });
  }

  /** `calls.reserved`: with a cost of -1 a request begins, else it ends. */
  #booked(
    key: string,
    local: LocalCosted,
    hasReserve: boolean,
    calls: {
      readonly look: () => ScriptCalls;
      readonly book: (cost: number) => ScriptCalls;
      readonly reserved: (cost: number) => ScriptCalls;
    },
  ): CostedLimiter {
    const ask = (caller: string, scripted: ScriptCalls, inMemory: Local) =>
      this.#ask({ calls: scripted, tag: tagOf(key, caller), local: inMemory, caller });
    const book = (caller: string, cost: number) => void ask(caller, calls.book(cost), booking(local, cost));
    if (!hasReserve) return { decide: (caller) => ask(caller, calls.look(), local), book };
    const withReservation = (caller: string, decision: Decision | Undecided): Decision | Undecided => {
      // One that was made in memory has a reservation there.
      if (typeof decision === "string" || !decision.admitted || decision.reservation !== undefined) return decision;
      const reservation = (cost: number) => void ask(caller, calls.reserved(cost), booking(local, cost));
      return { ...decision, reservation };
    };
    return {
      decide(caller) {
        const decision = ask(caller, calls.reserved(-1), local);
        return decision instanceof Promise ? decision.then((made) => withReservation(caller, made)) : decision;
      },
      book,
    };
  }

  secret(name: string): Promise<Buffer | null> {
    return this.#isClosed ? Promise.resolve(null) : askedSecret(this, tagOf("secret", name));
  }

  /** Connects. Without it, the first decision does. */
  start(): void {
    if (!this.#isClosed) this.servers.start();
  }

  /** Decisions that are awaited get their answers, or time out; further ones are made in memory. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#asked.size > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve));
    this.servers.close();
  }

  get report(): CountersReport {
    const servers = Array.from(this.servers.connections, ({ address, state, reason }) => ({ address, state, reason }));
    return { store: "redis", state: this.#state, onError: this.settings.onError, since: this.#since, servers };
  }

  /** Asks the server, or decides by `on_error`. */
  #ask(question: Question): Decision | Promise<Decision | Undecided> {
    if (this.#isClosed) return question.local.decide(question.caller);
    const connection = this.servers.find(question.tag);
    if (connection.state === "down") {
      const answer = this.undecided("connection", question);
      return typeof answer === "string" ? Promise.resolve(answer) : answer;
    }
    return new Promise((resolve) => {
      const asked = new Asked(this, question, resolve);
      this.#asked.add(asked);
      asked.send(connection);
    });
  }

  settled(asked: Asked): void {
    this.#asked.delete(asked);
    this.deadlines.remove(asked);
    if (this.#asked.size === 0) this.#whenIdle();
  }

  /**
   * Decides by `on_error`, and counts that. A full queue is ours and no failure of the server, and so is a command that
   * was not sent in time: nobody may pass uncounted by keeping this gateway busy.
   */
  undecided(reason: Reason, { local, caller }: Question): Decision | Undecided {
    const { onError } = this.settings;
    const { errors } = this.tools;
    errors.set(reason, errors.get(reason)! + 1);
    return onError === "local" || (onError === "allow" && reason === "queue") ? local.decide(caller) : onError;
  }

  /** The server answered, but with no decision: logged once until the state changes. */
  refused(server: string, reason: string): void {
    if (this.#isRefusalLogged) return;
    this.#isRefusalLogged = true;
    this.tools.log.warn("the server of the rate counters refused a decision", {
      server,
      reason,
      on_error: this.settings.onError,
    });
  }

  #look(): void {
    const { state } = this.servers;
    const was = this.#state;
    // Connections that are opened again are no news until that fails.
    if (this.#isClosed || state === was || state === "connecting") return;
    this.#state = state;
    this.#since = this.tools.clock.wall();
    this.#isRefusalLogged = false;
    this.shared.changed(was, state, (now) => this.#logState(now));
  }

  #logState(state: "up" | "down"): void {
    const { log } = this.tools;
    const { servers, onError } = this.report;
    if (state === "up")
      return log.info("rate counters are shared", { servers: servers.map(({ address }) => address).join(",") });
    // In a Cluster that is not complete every server may answer.
    const { address, reason } = servers.find((each) => each.state === "down") ?? {
      address: null,
      reason: "some hash slots have no server",
    };
    log.warn("rate counters are not shared: their server cannot be used", {
      server: address,
      reason,
      on_error: onError,
    });
  }
}

/**
 * Names the caller of a limiter: 132 bits of a hash. Neither names nor addresses of callers are stored. 1: the format
 * of the stored text.
 */
function tagOf(key: string, caller: string): string {
  return hash("sha256", JSON.stringify([1, key, caller]), "base64url").slice(0, 22);
}

/** Its decision is for nobody, and holds nothing. */
function booking(local: LocalCosted, cost: number): Local {
  return {
    decide(caller) {
      local.book(caller, cost);
      return NOBODYS;
    },
  };
}

const NOBODYS: Decision = { admitted: false, remaining: [], resetMs: [], retryMs: 0 };

/** Decides in memory, where the server does not. */
type Local = Pick<LocalCosted, "decide">;

interface Question {
  readonly calls: ScriptCalls;
  /** See `tagOf`. */
  readonly tag: string;
  readonly local: Local;
  readonly caller: string;
}

/** One decision that is awaited. */
class Asked implements RedisCommand, HasDeadline {
  text: string;
  dueAt: number;
  index = -1;
  readonly #counters: RedisCounters;
  readonly #question: Question;
  readonly #resolve: (decision: Decision | Undecided) => void;
  readonly #key: string;
  #connection: RedisConnection | null = null;
  #isWritten = false;
  #isSettled = false;
  #redirections = 0;

  constructor(counters: RedisCounters, question: Question, resolve: (decision: Decision | Undecided) => void) {
    const { settings, tools, deadlines } = counters;
    const now = tools.clock.now();
    this.#counters = counters;
    this.#question = question;
    this.#resolve = resolve;
    // In a Cluster the hash tag alone decides the slot.
    this.#key = `${settings.prefix}{${question.tag}}`;
    this.text = question.calls.cached(this.#key);
    this.dueAt = now + settings.timeoutMs;
    deadlines.add(this, now);
  }

  send(connection: RedisConnection): void {
    this.#connection = connection;
    this.#isWritten = false;
    if (!connection.send(this))
      this.#fail(connection.state === "up" || connection.state === "connecting" ? "queue" : "connection");
  }

  /** The server's time begins: it does not answer for the time in which this process was busy or had no connection. */
  written(now: number): void {
    this.#isWritten = true;
    this.dueAt = now + this.#counters.settings.timeoutMs;
  }

  answered(reply: RespValue, from: RedisConnection): void {
    if (this.#isSettled) return;
    const { calls } = this.#question;
    const decision = calls.decisionOf(reply);
    if (decision !== undefined) return this.#settle(decision);
    const isError = reply instanceof ErrorReply;
    if (isError && reply.code === "NOSCRIPT") {
      this.text = calls.whole(this.#key);
      return this.send(from);
    }
    const next =
      isError && this.#redirections++ < MAX_REDIRECTIONS ? this.#counters.servers.redirected(reply, from) : null;
    if (next !== null) return this.send(next);
    const problem = replyProblem("the script", reply);
    // All other errors are about the server, not about this key: LOADING, BUSY, OOM, READONLY, NOAUTH, …
    if (!isError || /^(ERR|WRONGTYPE)$/.test(reply.code) || reply.isAboutSlot)
      this.#counters.refused(from.address, problem);
    else from.giveUp(problem);
    this.#fail("server");
  }

  failed(): void {
    this.#fail("connection");
  }

  overdue(): void {
    const { deadlines, settings, tools } = this.#counters;
    deadlines.remove(this);
    // When this process was busy itself, the reply may be there: it is read before the next round of the event loop.
    setImmediate(
      entry("a late reply of Redis", () => {
        if (this.#isSettled) return;
        const now = tools.clock.now();
        // It has just been sent, perhaps to another server.
        if (now < this.dueAt) return deadlines.add(this, now);
        this.#fail(this.#isWritten ? "timeout" : "queue");
        this.#connection?.giveUpAfter(SILENT_FOR * settings.timeoutMs);
      }),
    );
  }

  #fail(reason: Reason): void {
    if (this.#isSettled) return;
    const answer = this.#counters.undecided(reason, this.#question);
    // The limiter in memory uses its decision again.
    this.#settle(
      typeof answer === "string"
        ? answer
        : { ...answer, remaining: [...answer.remaining], resetMs: [...answer.resetMs] },
    );
  }

  #settle(decision: Decision | Undecided): void {
    this.#isSettled = true;
    this.#counters.settled(this);
    this.#resolve(decision);
  }
}

function greetingsOf({ credentials, database, prefix }: RedisSettings, script?: string): Greeting[] {
  const expectOk = (asked: string) => (reply: RespValue) => (reply === "OK" ? undefined : replyProblem(asked, reply));
  const greetings: Greeting[] = [];
  if (credentials !== null) {
    const { user, password } = credentials;
    greetings.push({ text: command("AUTH", ...(user === null ? [] : [user]), password), problem: expectOk("AUTH") });
  }
  if (database !== 0) greetings.push({ text: command("SELECT", String(database)), problem: expectOk("SELECT") });
  // Shows that scripts run and that keys can be written, and makes the script known.
  const probe = new ScriptCalls(scriptOf(script ?? SCRIPT), ["probe", "1000000", "1"], 1);
  const problem = (reply: RespValue) => {
    if (probe.decisionOf(reply) !== undefined) return undefined;
    // In a Cluster the key may belong to another server, or to none.
    return reply instanceof ErrorReply && reply.isAboutSlot ? undefined : replyProblem("the script", reply);
  };
  const key = `${prefix}{probe}`;
  return [...greetings, { text: probe.whole(key), problem }, { text: probe.cached(key), problem }];
}

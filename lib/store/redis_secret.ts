/**
 * Secrets that gateways share: whoever asks for one first makes it, and Redis or Valkey keeps it for all of them.
 */
import { randomBytes } from "node:crypto";
import type { Clock, DeadlineTimer, HasDeadline } from "../base/clock.ts";
import type { RedisServers } from "./redis_cluster.ts";
import type { RedisCommand, RedisConnection } from "./redis_connection.ts";
import { command, ErrorReply, type RespValue } from "./resp.ts";

const SECRET_BYTES = 32;
/** A secret is forgotten that no gateway has asked for so long. */
const KEPT_MS = 30 * 24 * 3600 * 1000;
/** Redirections in a Cluster. */
const MAX_REDIRECTIONS = 5;

/**
 * Makes the secret where there is none, keeps it for longer, and returns it: with the two commands that a user for
 * counters may call anyway.
 */
const SCRIPT = `
local secret = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], secret, 'PX', ARGV[2])
return secret
`;

/** What asks for a secret; `RedisCounters` is one. */
interface Asking {
  readonly settings: { readonly prefix: string; readonly timeoutMs: number };
  readonly tools: { readonly clock: Clock };
  readonly deadlines: DeadlineTimer;
  readonly servers: RedisServers;
}

/** Resolves with the secret of a key; null: the server has not given it in time. `tag`: the key without the prefix. */
export function askedSecret(counters: Asking, tag: string): Promise<Buffer | null> {
  const connection = counters.servers.find(tag);
  if (connection.state === "down") return Promise.resolve(null);
  return new Promise((resolve) => new AskedSecret(counters, tag, resolve).send(connection));
}

class AskedSecret implements RedisCommand, HasDeadline {
  readonly text: string;
  readonly dueAt: number;
  index = -1;
  readonly #counters: Asking;
  readonly #resolve: (secret: Buffer | null) => void;
  #redirections = 0;

  constructor(counters: Asking, tag: string, resolve: (secret: Buffer | null) => void) {
    const { settings, tools, deadlines } = counters;
    const made = randomBytes(SECRET_BYTES).toString("hex");
    this.text = command("EVAL", SCRIPT, "1", `${settings.prefix}{${tag}}`, made, String(KEPT_MS));
    this.#counters = counters;
    this.#resolve = resolve;
    const now = tools.clock.now();
    this.dueAt = now + settings.timeoutMs;
    deadlines.add(this, now);
  }

  send(connection: RedisConnection): void {
    if (!connection.send(this)) this.failed();
  }

  answered(reply: RespValue, from: RedisConnection): void {
    const next =
      reply instanceof ErrorReply && this.#redirections++ < MAX_REDIRECTIONS
        ? this.#counters.servers.redirected(reply, from)
        : null;
    if (next !== null) return this.send(next);
    const isSecret = typeof reply === "string" && reply.length === 2 * SECRET_BYTES;
    this.#settle(isSecret ? Buffer.from(reply, "hex") : null);
  }

  failed(): void {
    this.#settle(null);
  }

  overdue(): void {
    this.#settle(null);
  }

  #settle(secret: Buffer | null): void {
    this.#counters.deadlines.remove(this);
    this.#resolve(secret);
  }
}

/**
 * The keys by which a gateway knows the ids of MCP sessions that it has given out: the same in all its workers, across
 * reloads, and with `global.counters` in all gateways.
 */
import { randomBytes } from "node:crypto";
import type { GatewaySecrets } from "../../store/counters.ts";
import type { KeptState, Tools } from "../plugin.ts";

const KEY_BYTES = 32;
/** How often the store is asked: the key is another one where the store has lost it. */
const ASKED_EVERY_MS = 30_000;
/** How soon it is asked again where it has not answered, or an id does not fit. */
const ASKED_AGAIN_MS = 1_000;

/** Keys of an instance that no reload changes. */
interface Kept extends KeptState {
  /** Of this program. */
  readonly local: Buffer;
  /** Of all gateways, the latest first: sessions of the former one go on. */
  shared: readonly Buffer[];
  askedAt: number;
  asking: Promise<void> | null;
}

export class SessionKeys {
  readonly #kept: Kept;
  readonly #store: GatewaySecrets | null;
  readonly #name: string;
  readonly #now: () => number;

  /** To be made in `create`. */
  constructor({ shared, keep, gatewaySecrets, scope, clock }: SessionKeyTools) {
    const memory = shared("session key", KEY_BYTES);
    this.#kept = keep("session keys", null, () => ({
      local: memory === null ? randomBytes(KEY_BYTES) : commonKey(memory),
      shared: [],
      askedAt: -Infinity,
      asking: null,
      close() {},
    }));
    this.#store = gatewaySecrets;
    this.#name = `sessions of mcp ${scope.key}`;
    this.#now = () => clock.now();
  }

  /** The key for new sessions; null: the gateways' own cannot be had, and `on_error` is not "local". */
  async latest(): Promise<Buffer | null> {
    const { local } = this.#kept;
    if (this.#store === null) return local;
    await this.#ask(ASKED_EVERY_MS);
    return this.#kept.shared[0] ?? (this.#store.report.onError === "local" ? local : null);
  }

  /** What is found by one of the keys; null: none fits. "unasked": as `latest`. */
  async find<T>(look: (key: Buffer) => T | null): Promise<T | null | "unasked"> {
    const found = this.#found(look);
    if (found !== null || this.#store === null) return found;
    // Another gateway may have given it out.
    await this.#ask(ASKED_AGAIN_MS);
    const isUnasked = this.#kept.shared.length === 0 && this.#store.report.onError !== "local";
    return this.#found(look) ?? (isUnasked ? "unasked" : null);
  }

  #found<T>(look: (key: Buffer) => T | null): T | null {
    for (const key of [...this.#kept.shared, this.#kept.local]) {
      const found = look(key);
      if (found !== null) return found;
    }
    return null;
  }

  /** Asks the store, unless it was asked within so many milliseconds. */
  #ask(everyMs: number): Promise<void> | undefined {
    const kept = this.#kept;
    const every = kept.shared.length === 0 ? ASKED_AGAIN_MS : everyMs;
    if (kept.asking !== null) return kept.asking;
    if (this.#now() - kept.askedAt < every) return undefined;
    kept.askedAt = this.#now();
    kept.asking = this.#store!.secret(this.#name).then((key) => {
      kept.asking = null;
      if (key !== null && kept.shared[0]?.equals(key) !== true) kept.shared = [key, ...kept.shared.slice(0, 1)];
    });
    return kept.asking;
  }
}

export type SessionKeyTools = Pick<Tools, "shared" | "keep" | "gatewaySecrets" | "scope" | "clock">;

/** Each word is written once, by whichever thread comes first: when a thread has tried all, all are there. */
function commonKey(memory: ArrayBufferLike): Buffer {
  const words = new Int32Array(memory);
  for (let i = 0; i < words.length; i++) Atomics.compareExchange(words, i, 0, randomBytes(4).readInt32LE() || 1);
  return Buffer.concat(Array.from(words, (_word, i) => wordBytes(Atomics.load(words, i))));
}

function wordBytes(word: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(word);
  return bytes;
}

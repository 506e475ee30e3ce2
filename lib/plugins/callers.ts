/**
 * The registry of callers: finds callers by their keys, knows their groups, and keeps disabled ones out, whatever
 * plugin identifies them.
 */
import type { Clock } from "../base/clock.ts";
import type { Caller, CallerList } from "../config/caller_list.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { problem } from "../http/reply.ts";

/** No member of the plugin's `config` decides, so there is no `rule`. */
const DISABLED = { detail: "This caller is disabled.", why: "callers: enabled is false" };

/** Who has an API key, and until when. */
export interface KeyOwner {
  readonly identity: string;
  /** In milliseconds since 1970; `Infinity`: the key does not end. */
  readonly end: number;
  /** What says so, see `Notes.rule`. */
  readonly rule: string;
}

export class CallerRegistry {
  readonly lists: readonly CallerList[];
  /** The number of the first caller of each list. */
  readonly #starts: readonly number[];
  /** When each caller was seen last, in seconds since 1970. */
  #seen: Uint32Array = new Uint32Array(0);

  /** `lists`: of `CallerReader`: the kernel, which passes them on, does not know what they are. */
  constructor(lists: readonly object[]) {
    this.lists = (lists as readonly CallerList[]).filter(({ callers }) => callers.length > 0);
    this.#starts = this.lists.map((_, i) =>
      this.lists.slice(0, i).reduce((sum, { callers }) => sum + callers.length, 0),
    );
  }

  /** The enabled caller who has the key with this SHA-256. */
  withKey(digest: Buffer): KeyOwner | undefined {
    for (const list of this.lists) {
      const key = list.keyWith(digest);
      if (key < 0) continue;
      const { id, enabled } = list.ownerOf(key);
      return enabled ? { identity: id, end: list.ends.get(key) ?? Infinity, rule: "callers" } : undefined;
    }
    return undefined;
  }

  withId(id: string): Caller | undefined {
    for (const list of this.lists) {
      const caller = list.withId(id);
      if (caller !== undefined) return caller;
    }
    return undefined;
  }

  /**
   * From now on it is remembered who is there, in memory that all threads share and that a reload of other things
   * keeps.
   */
  remember(memory: (name: string, bytes: number) => ArrayBufferLike): void {
    const name = `callers ${this.lists.map(({ fingerprint, callers }) => `${fingerprint}/${callers.length}`).join()}`;
    const count = this.lists.reduce((sum, { callers }) => sum + callers.length, 0);
    if (count > 0) this.#seen = new Uint32Array(memory(name, count * Uint32Array.BYTES_PER_ELEMENT));
  }

  /** When a request of the caller was admitted last, in seconds since 1970; 0: none was since the start. */
  lastSeen(list: CallerList, { index }: Caller): number {
    return this.#seen[this.#starts[this.lists.indexOf(list)]! + index] ?? 0;
  }

  /** See `groupsOf`. */
  groupsOf(identity: string | null, ofToken: readonly string[]): readonly string[] {
    const groups = identity === null ? undefined : this.withId(identity)?.groups;
    if (groups === undefined || groups.length === 0) return ofToken;
    return ofToken.length === 0 ? groups : [...new Set([...ofToken, ...groups])];
  }

  /**
   * Wraps a plugin that identifies callers: one who is disabled gets no further. Without a clock nobody is remembered.
   */
  admitting(middleware: Middleware, clock: Clock | null): Middleware {
    return (next) =>
      middleware((exchange: Exchange) => {
        const { identity } = exchange;
        for (let i = 0; identity !== null && i < this.lists.length; i++) {
          const caller = this.lists[i]!.withId(identity);
          if (caller?.enabled === false) return problem(exchange.call, "forbidden", DISABLED);
          if (caller !== undefined && clock !== null)
            this.#seen[this.#starts[i]! + caller.index] = Math.floor(clock.wall() / 1000);
        }
        return next(exchange);
      });
  }
}

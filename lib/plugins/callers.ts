/**
 * The registry of callers: finds callers by their keys, knows their groups, and keeps disabled ones out, whatever plugin identifies them.
 */
import type { Caller, CallerList } from "../config/caller_list.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { problem } from "../http/reply.ts";

const DISABLED = { detail: "This caller is disabled." };

export class CallerRegistry {
  readonly lists: readonly CallerList[];

  constructor(lists: readonly CallerList[]) {
    this.lists = lists.filter(({ callers }) => callers.length > 0);
  }

  /** The id of the enabled caller who has the key with this SHA-256. */
  withKey(digest: Buffer): string | undefined {
    for (const list of this.lists) {
      const key = list.keyWith(digest);
      if (key >= 0) return list.ownerOf(key).enabled ? list.ownerOf(key).id : undefined;
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

  /** See `groupsOf`. */
  groupsOf(identity: string | null, ofToken: readonly string[]): readonly string[] {
    const groups = identity === null ? undefined : this.withId(identity)?.groups;
    if (groups === undefined || groups.length === 0) return ofToken;
    return ofToken.length === 0 ? groups : [...new Set([...ofToken, ...groups])];
  }

  /** Wraps a plugin that identifies callers: one who is disabled gets no further. */
  admitting(middleware: Middleware): Middleware {
    return (next) =>
      middleware((exchange: Exchange) => {
        const caller = exchange.identity === null ? undefined : this.withId(exchange.identity);
        return caller?.enabled === false ? problem(exchange.call, "forbidden", DISABLED) : next(exchange);
      });
  }
}

/**
 * Finds what ends workers: each notes in shared memory which requests it is answering, and the main thread compares
 * what was in flight as they ended.
 */
import type { Watch, WatchedRoute } from "../gateway/bundle.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";

/**
 * Requests of one worker that are noted at the same time; a further one takes the place of one of the oldest, such as
 * that of an open WebSocket.
 */
const SLOTS = 1_024;
/**
 * Longer names are cut. A slot: the client's address, the route, and the plugins of modules that it has, a line each.
 * It is free if it begins with 0.
 */
const SLOT_BYTES = 256;
/** "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255" and the line feed. */
const MAX_CLIENT_BYTES = 46;
const MAX_NAMES_BYTES = SLOT_BYTES - MAX_CLIENT_BYTES - 1;
const LINE_FEED = 0x0a;
/** The memory of one worker. */
export const IN_FLIGHT_BYTES = SLOTS * SLOT_BYTES;

/** In a worker: the requests that it is answering. */
export class InFlight {
  readonly #bytes: Buffer;
  readonly #free = Array.from({ length: SLOTS }, (_, slot) => slot);
  readonly #holders: (Call | null)[] = Array.from({ length: SLOTS }, () => null);
  #nextTaken = 0;

  /** `memory`: `IN_FLIGHT_BYTES`, all zero. */
  constructor(memory: SharedArrayBuffer) {
    this.#bytes = Buffer.from(memory);
  }

  readonly watched: Watch = (handler: Handler, { service, route, plugins }: WatchedRoute): Handler => {
    const text = Buffer.from([`${service} ${route}`, ...plugins].join("\n"));
    const names = Buffer.concat([text.subarray(0, MAX_NAMES_BYTES), Buffer.of(0)]);
    return (exchange) => {
      this.#begin(exchange, names);
      return handler(exchange);
    };
  };

  #begin({ call, clientAddress }: Exchange, names: Uint8Array): void {
    const slot = this.#free.pop() ?? this.#nextTaken++ % SLOTS;
    this.#holders[slot] = call;
    let at = slot * SLOT_BYTES;
    // Loops are faster than `Buffer.write` and `set` for texts this short.
    for (let i = 0; i < clientAddress.length && i < MAX_CLIENT_BYTES - 1; i++)
      this.#bytes[at++] = clientAddress.charCodeAt(i);
    this.#bytes[at++] = LINE_FEED;
    for (let i = 0; i < names.length; i++) this.#bytes[at++] = names[i]!;
    call.onEnd(() => {
      // Another request may have taken its place.
      if (this.#holders[slot] !== call) return;
      this.#holders[slot] = null;
      this.#bytes[slot * SLOT_BYTES] = 0;
      this.#free.push(slot);
    });
  }
}

const SORTS = ["routes", "plugins", "clients"] as const;
type Sort = (typeof SORTS)[number];
/** How many requests were in flight, by name. */
type Present = Readonly<Record<Sort, Map<string, number>>>;

/** So many ends are compared, of the last so many milliseconds. */
const MAX_ENDS = 20;
const WINDOW_MS = 600_000;
/** So many of each sort are named. */
const MAX_NAMED = 3;

/** `ends` are compared; the others say by name at how many of them it was in flight. */
export type Suspects = Readonly<Record<Sort, Readonly<Record<string, number>>>> & { readonly ends: number };

/** In the main thread: what was in flight as workers ended. */
export class Ends {
  #ends: { readonly at: number; readonly present: Present }[] = [];

  /**
   * A worker has ended at the time `now` (a monotonic clock's) and left this memory. Returns what was in flight at this
   * end and at least at half of all, the most frequent first; null if nothing was.
   */
  add(memory: SharedArrayBuffer, now: number): Suspects | null {
    const present = presentIn(Buffer.from(memory));
    this.#ends = [...this.#ends, { at: now, present }].filter(({ at }) => now - at <= WINDOW_MS).slice(-MAX_ENDS);
    const named = Object.fromEntries(SORTS.map((sort) => [sort, this.#named(sort, present)])) as Record<
      Sort,
      Record<string, number>
    >;
    return SORTS.every((sort) => Object.keys(named[sort]).length === 0) ? null : { ends: this.#ends.length, ...named };
  }

  #named(sort: Sort, present: Present): Record<string, number> {
    const least = Math.max(2, this.#ends.length / 2);
    const counted = Array.from(present[sort], ([name, requests]) => ({
      name,
      requests,
      count: this.#ends.filter((end) => end.present[sort].has(name)).length,
    }));
    // What is always in flight, because there is much of it, comes behind what is rare.
    const found = counted
      .filter(({ count }) => count >= least)
      .sort((one, other) => other.count - one.count || one.requests - other.requests);
    return Object.fromEntries(found.slice(0, MAX_NAMED).map(({ name, count }) => [name, count]));
  }
}

function presentIn(bytes: Buffer): Present {
  const present: Present = { routes: new Map(), plugins: new Map(), clients: new Map() };
  const add = (to: Map<string, number>, name: string) => to.set(name, (to.get(name) ?? 0) + 1);
  for (let at = 0; at < bytes.length; at += SLOT_BYTES) {
    if (bytes[at] === 0) continue;
    const [client = "", route = "", ...plugins] = bytes.toString("utf8", at, bytes.indexOf(0, at)).split("\n");
    add(present.clients, client);
    add(present.routes, route);
    for (const plugin of plugins) add(present.plugins, plugin);
  }
  return present;
}

/**
 * The requests to upstreams that are to fill a cache: each with a call of its own, so that one client may leave while others wait for
 * what it asked for. What is done with their replies is `response_cache.ts`.
 */
import { Call } from "../http/exchange.ts";

/** What those that waited for another's reply learn: it is in the store; it is not for them; the upstream failed. */
export type Outcome = "stored" | "unshared" | "failed";

export interface FetchOptions {
  readonly key: string;
  /** Under which others wait for it; null when nobody may. */
  readonly awaitedAs: string | null;
  /** Whose request it is. */
  readonly client: Call;
  /** Whether that client has its reply already. */
  readonly isBackground: boolean;
  /** `clock.now()`. */
  readonly startedAt: number;
}

export class Fetches {
  readonly #awaited = new Map<string, Fetch>();
  readonly #byKey = new Map<string, Set<Fetch>>();

  begin(options: FetchOptions): Fetch {
    const fetch = new Fetch(options, (isOver) => {
      this.#unlist(fetch);
      if (isOver) this.#forget(fetch);
    });
    if (options.awaitedAs !== null) this.#awaited.set(options.awaitedAs, fetch);
    const others = this.#byKey.get(options.key);
    if (others === undefined) this.#byKey.set(options.key, new Set([fetch]));
    else others.add(fetch);
    fetch.begin();
    return fetch;
  }

  awaited(name: string): Fetch | undefined {
    return this.#awaited.get(name);
  }

  /** What is under way for a target may be older than a change to it: it answers those that asked already, and nobody else. */
  outdate(key: string): void {
    for (const fetch of this.#byKey.get(key) ?? []) {
      fetch.isOutdated = true;
      this.#unlist(fetch);
    }
  }

  /** Nothing is stored any more; what no client waits for ends. */
  close(): void {
    for (const fetches of [...this.#byKey.values()]) {
      for (const fetch of [...fetches]) {
        fetch.isOutdated = true;
        if (fetch.options.isBackground && !fetch.isShared) fetch.call.abort();
      }
    }
    this.#awaited.clear();
  }

  #unlist(fetch: Fetch): void {
    const { awaitedAs } = fetch.options;
    if (awaitedAs !== null && this.#awaited.get(awaitedAs) === fetch) this.#awaited.delete(awaitedAs);
  }

  #forget(fetch: Fetch): void {
    const { key } = fetch.options;
    const others = this.#byKey.get(key);
    if (others?.delete(fetch) === true && others.size === 0) this.#byKey.delete(key);
  }
}

export class Fetch {
  readonly options: FetchOptions;
  /** Stands in for the client's on the way to the upstream; aborted when nobody is interested any more. */
  readonly call: Call;
  /** What it brings must not be stored. */
  isOutdated = false;
  readonly #interested = new Set<Call>();
  readonly #waiting = new Map<Call, (outcome: Outcome) => void>();
  readonly #unlist: (isOver: boolean) => void;
  readonly #users: Set<"client" | "store">;

  /** `unlist` is called when nobody may begin to wait any more, and again with true when it is over. */
  constructor(options: FetchOptions, unlist: (isOver: boolean) => void) {
    const { client, startedAt, isBackground } = options;
    const { id, remoteAddress, trustedRemote, certificate } = client;
    const inform: Call["inform"] = (status, headers) => void (isBackground || client.inform(status, headers));
    this.options = options;
    this.#unlist = unlist;
    this.#users = new Set(isBackground ? ["store"] : ["client", "store"]);
    this.call = new Call({ id, remoteAddress, trustedRemote, certificate, startedAt, inform });
    const { notes } = this.call;
    notes.span = client.notes.span;
    // The plugin that hands this request on is the cache: what comes behind it is not its time.
    notes.plugin = client.notes.plugin;
    notes.pluginFrom = client.notes.pluginFrom;
    client.notes.plugin = null;
  }

  /** Once it is listed: a client that has gone already takes it off at once. */
  begin(): void {
    const { client, isBackground } = this.options;
    if (isBackground) return;
    this.#interest(client);
    client.onEnd(() => this.#part("client"));
  }

  /** Whether others wait for it. */
  get isShared(): boolean {
    return this.#waiting.size > 0;
  }

  /** Whether it is to go on. */
  get isWanted(): boolean {
    return this.options.isBackground || this.#interested.size > 0;
  }

  /** Resolves when it is known what has become of it, or when this client has gone. */
  wait(client: Call): Promise<Outcome> {
    return new Promise((resolve) => {
      this.#waiting.set(client, resolve);
      this.#interest(client);
    });
  }

  /** This client no longer cares. */
  leave(client: Call): void {
    const resolve = this.#waiting.get(client);
    this.#waiting.delete(client);
    resolve?.("unshared");
    if (!this.#interested.delete(client) || this.isWanted) return;
    // Nobody may begin to wait for what is about to end.
    this.#unlist(false);
    this.call.abort();
  }

  /** Answers those that wait; nobody may begin to. */
  tell(outcome: Outcome): void {
    this.#unlist(false);
    for (const [client, resolve] of this.#waiting) {
      this.#interested.delete(client);
      resolve(outcome);
    }
    this.#waiting.clear();
    if (outcome !== "stored" && !this.isWanted) this.call.abort();
  }

  /** It is over as far as the store is concerned. */
  end(outcome: Outcome): void {
    this.tell(outcome);
    this.#unlist(true);
    this.#part("store");
  }

  /** The last of those for whom it runs says that its call is at its end: plugins further in wait to hear of that. */
  #part(who: "client" | "store"): void {
    this.#users.delete(who);
    if (this.#users.size === 0) this.call.close();
  }

  #interest(client: Call): void {
    this.#interested.add(client);
    client.onAbort(() => this.leave(client));
  }
}

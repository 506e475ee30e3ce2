/**
 * Requests to upstreams that are to fill a cache: each has a call of its own, so that one client may leave while others wait for the reply.
 */
import { Call } from "../../http/exchange.ts";

/** What the clients that waited learn: the reply is in the store; it is not for them; the upstream failed. */
export type Outcome = "stored" | "unshared" | "failed";

export interface FetchOptions {
  readonly key: string;
  /** The name under which others wait for it; null when nobody may. */
  readonly awaitedAs: string | null;
  readonly client: Call;
  /** Whether that client has its reply already. */
  readonly isBackground: boolean;
  /** `clock.now()`. */
  readonly startedAt: number;
}

export class Fetches {
  readonly #awaited = new Map<string, Fetch>();
  readonly #byKey = new Map<string, Set<Fetch>>();

  awaited(name: string): Fetch | undefined {
    return this.#awaited.get(name);
  }

  add(fetch: Fetch): void {
    const { key, awaitedAs } = fetch.options;
    if (awaitedAs !== null) this.#awaited.set(awaitedAs, fetch);
    const others = this.#byKey.get(key);
    if (others === undefined) this.#byKey.set(key, new Set([fetch]));
    else others.add(fetch);
  }

  /** Nobody may begin to wait for it. */
  hide(fetch: Fetch): void {
    const { awaitedAs } = fetch.options;
    if (awaitedAs !== null && this.#awaited.get(awaitedAs) === fetch) this.#awaited.delete(awaitedAs);
  }

  remove(fetch: Fetch): void {
    this.hide(fetch);
    const { key } = fetch.options;
    const others = this.#byKey.get(key);
    if (others?.delete(fetch) === true && others.size === 0) this.#byKey.delete(key);
  }

  /** A reply that is under way may be older than a change to its target: it is for the clients that asked before, and for nobody else. */
  outdate(key: string): void {
    for (const fetch of this.#byKey.get(key) ?? []) {
      fetch.isOutdated = true;
      this.hide(fetch);
    }
  }

  /** Nothing is stored any more; a fetch that no client waits for ends. */
  close(): void {
    for (const [key, fetches] of [...this.#byKey]) {
      this.outdate(key);
      for (const fetch of [...fetches]) if (fetch.options.isBackground && !fetch.isShared) fetch.call.abort();
    }
  }
}

export class Fetch {
  readonly options: FetchOptions;
  /** Takes the place of the client's on the way to the upstream; aborted when nobody is interested any more. */
  readonly call: Call;
  /** Its reply must not be stored. */
  isOutdated = false;
  readonly #list: Fetches;
  /** The interested clients; null for the one whose request this is, which does not wait for the outcome. */
  readonly #clients = new Map<Call, ((outcome: Outcome) => void) | null>();
  /** Whose end the call's end waits for. */
  readonly #users: Set<"client" | "store">;

  constructor(options: FetchOptions, list: Fetches) {
    const { client, startedAt, isBackground } = options;
    const { id, remoteAddress, trustedRemote, certificate } = client;
    const inform: Call["inform"] = (status, headers) => void (isBackground || client.inform(status, headers));
    this.options = options;
    this.#list = list;
    this.#users = new Set(isBackground ? ["store"] : ["client", "store"]);
    this.call = new Call({ id, remoteAddress, trustedRemote, certificate, startedAt, inform });
    const { notes } = this.call;
    notes.span = client.notes.span;
    // The plugin that hands this request on is the cache: what comes behind it is not its time.
    notes.plugin = client.notes.plugin;
    notes.pluginFrom = client.notes.pluginFrom;
    client.notes.plugin = null;
    list.add(this);
    if (isBackground) return;
    this.#join(client, null);
    client.onEnd(() => this.#part("client"));
  }

  /** Whether others wait for it. */
  get isShared(): boolean {
    return [...this.#clients.values()].some((resolve) => resolve !== null);
  }

  get isWanted(): boolean {
    return this.options.isBackground || this.#clients.size > 0;
  }

  /** Resolves when the outcome is known, or when this client has disconnected. */
  wait(client: Call): Promise<Outcome> {
    return new Promise((resolve) => this.#join(client, resolve));
  }

  /** Notes for the client's request what was noted for this one; an error that a stored reply replaces is not. */
  copyNotes(outcome: "answered" | "spared"): void {
    const { client } = this.options;
    const { upstream, attempts, upstreamMs, identity, code, fault } = this.call.notes;
    Object.assign(client.notes, { upstream, attempts, upstreamMs });
    client.notes.identity ??= identity;
    client.personal ||= this.call.personal;
    if (outcome === "answered" && code !== null) client.fail(code, fault ?? undefined);
  }

  /** This client is no longer interested. */
  leave(client: Call): void {
    this.#clients.get(client)?.("unshared");
    if (!this.#clients.delete(client) || this.isWanted) return;
    // Nobody may begin to wait for what is about to end.
    this.#list.hide(this);
    this.call.abort();
  }

  /** Answers the clients that wait; nobody may begin to. */
  announce(outcome: Outcome): void {
    this.#list.hide(this);
    for (const [client, resolve] of this.#clients) {
      if (resolve === null) continue;
      this.#clients.delete(client);
      resolve(outcome);
    }
    if (outcome !== "stored" && !this.isWanted) this.call.abort();
  }

  /** It is over as far as the store is concerned. */
  end(outcome: Outcome): void {
    this.announce(outcome);
    this.#list.remove(this);
    this.#part("store");
  }

  #part(who: "client" | "store"): void {
    this.#users.delete(who);
    // Plugins further in wait to hear of the end.
    if (this.#users.size === 0) this.call.close();
  }

  #join(client: Call, resolve: ((outcome: Outcome) => void) | null): void {
    this.#clients.set(client, resolve);
    client.onAbort(() => this.leave(client));
  }
}

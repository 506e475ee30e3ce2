/**
 * Requests to upstreams that fill the cache: each has its own call, so that one client may disconnect while other
 * clients wait for the reply.
 */
import { Call } from "../../http/exchange.ts";

/** The outcome for waiting clients: the reply is in the store; it cannot be shared; the upstream failed. */
export type FetchOutcome = "stored" | "unshared" | "failed";

export interface FetchOptions {
  readonly key: string;
  /** The key under which other requests wait for it; null if none may. */
  readonly awaitedAs: string | null;
  readonly client: Call;
  /** Whether the client already has its reply. */
  readonly isBackground: boolean;
  /** `clock.now()`. */
  readonly startedAt: number;
  /** See `Entry`. */
  readonly changes: number;
}

/** The fetches that requests may wait for, by `awaitedAs`. */
export type Fetches = Map<string, Fetch>;

export class Fetch {
  readonly options: FetchOptions;
  /** Replaces the client's call for the upstream; aborted when no client waits any more. */
  readonly call: Call;
  readonly #awaited: Fetches;
  /** The waiting clients; null for the client that started it, which does not wait for the outcome. */
  readonly #clients = new Map<Call, ((outcome: FetchOutcome) => void) | null>();

  constructor(options: FetchOptions, awaited: Fetches) {
    const { client, awaitedAs, startedAt, isBackground } = options;
    const { id, remoteAddress, trustedRemote, certificate } = client;
    const inform: Call["inform"] = (status, headers) => void (isBackground || client.inform(status, headers));
    this.options = options;
    this.#awaited = awaited;
    this.call = new Call({ id, remoteAddress, trustedRemote, certificate, startedAt, inform });
    this.call.ownBody = client.ownBody;
    const { notes } = this.call;
    notes.span = client.notes.span;
    // The time after this plugin is not the cache's own time.
    if (!isBackground) {
      notes.plugin = client.notes.plugin;
      notes.pluginFrom = client.notes.pluginFrom;
      client.notes.plugin = null;
    }
    if (awaitedAs !== null) awaited.set(awaitedAs, this);
    if (!isBackground) this.#join(client, null);
  }

  /** Whether other requests wait for it. */
  get isShared(): boolean {
    return [...this.#clients.values()].some((resolve) => resolve !== null);
  }

  get isWanted(): boolean {
    return this.options.isBackground || this.#clients.size > 0;
  }

  /** Resolves when the outcome is known, or when this client has disconnected. */
  wait(client: Call): Promise<FetchOutcome> {
    return new Promise((resolve) => this.#join(client, resolve));
  }

  /**
   * Copies the notes of this call to those of a client that waits for it: the error, and who has answered, only where a
   * stored reply does not replace what was received.
   */
  copyNotes(outcome: "answered" | "spared"): void {
    const { client, isBackground } = this.options;
    if (isBackground) return;
    const { upstream, upstreamPath, attempts, tried, upstreamMs, identity, code, fault, rule, by, plugin, pluginFrom } =
      this.call.notes;
    Object.assign(client.notes, { upstream, upstreamPath, attempts, tried, upstreamMs });
    for (let { held } = this.call.notes; held !== null; held = held.before)
      client.notes.held = { ...held, before: client.notes.held };
    client.notes.identity ??= identity;
    client.personal ||= this.call.personal;
    if (outcome === "spared") return;
    client.notes.by = by;
    // Behind the cache a plugin has answered.
    if (plugin !== null) Object.assign(client.notes, { plugin, pluginFrom });
    if (code !== null) client.fail(code, fault ?? undefined, rule);
  }

  /** The client disconnected. */
  leave(client: Call): void {
    this.#clients.get(client)?.("unshared");
    if (!this.#clients.delete(client) || this.isWanted) return;
    // No request may start to wait for a fetch that is about to end.
    this.#hide();
    this.call.abort();
  }

  /** The cache is closed: a fetch that no client waits for ends. */
  close(): void {
    if (this.options.isBackground && !this.isShared) this.call.abort();
  }

  /** Answers the waiting clients and accepts no further ones. */
  announce(outcome: FetchOutcome): void {
    this.#hide();
    for (const [client, resolve] of this.#clients) {
      if (resolve === null) continue;
      this.#clients.delete(client);
      resolve(outcome);
    }
    if (outcome !== "stored" && !this.isWanted) this.call.abort();
  }

  /** The fetch is finished for the store. */
  end(outcome: FetchOutcome): void {
    this.announce(outcome);
    const { client, isBackground } = this.options;
    // Later plugins wait for the end of the call: until the client has its reply, too.
    if (isBackground) this.call.close();
    else client.onEnd(() => this.call.close());
  }

  /** No request may start to wait for it. */
  #hide(): void {
    const { awaitedAs } = this.options;
    if (awaitedAs !== null && this.#awaited.get(awaitedAs) === this) this.#awaited.delete(awaitedAs);
  }

  #join(client: Call, resolve: ((outcome: FetchOutcome) => void) | null): void {
    this.#clients.set(client, resolve);
    client.onAbort(() => this.leave(client));
  }
}

/**
 * The addresses behind host names, looked up through the system and again as they age; all users of a name share one
 * look-up.
 */
import type { LookupAddress } from "node:dns";
import net, { type LookupFunction } from "node:net";
import type { Timer } from "../base/clock.ts";
import { lookUp } from "../base/egress_clients.ts";
import { ignore } from "../base/errors.ts";
import type { Address, NamesOptions } from "./contracts.ts";

export class Names {
  readonly options: Required<NamesOptions>;
  readonly #names = new Map<string, Name>();
  ttlMs: number;

  constructor({ clock, log, lookup = lookUp, random = Math.random, ttlMs = 30_000 }: NamesOptions) {
    this.options = { clock, log, lookup, random, ttlMs };
    this.ttlMs = ttlMs;
  }

  /** The one `Name` of a host, which is looked up while `retain` holds it; undefined for an address. */
  name(host: string): Name | undefined {
    if (net.isIP(host) !== 0) return undefined;
    let name = this.#names.get(host);
    if (name === undefined) this.#names.set(host, (name = new Name(host, this)));
    return name;
  }

  /**
   * Looks these hosts up from now on, new ones at once, and no others. Addresses among them are skipped. `ttlMs`: how
   * old an answer may get, in milliseconds.
   */
  retain(hosts: Iterable<string>, ttlMs = this.ttlMs): void {
    const isChanged = ttlMs !== this.ttlMs;
    this.ttlMs = ttlMs;
    const wanted = new Set(hosts);
    for (const name of [...this.#names.values()]) {
      if (wanted.has(name.host)) {
        if (isChanged) name.schedule();
        continue;
      }
      name.stop();
      this.forgetIfUnused(name);
    }
    for (const host of wanted) {
      this.name(host);
      this.#names.get(host)?.start();
    }
  }

  /** Ends all look-ups and timers; the last addresses stay. */
  close(): void {
    this.retain([]);
  }

  /**
   * A name is kept during its look-up: otherwise a new request for it would start a second look-up at the same time.
   */
  forgetIfUnused(name: Name): void {
    if (name.isUnused && this.#names.get(name.host) === name) this.#names.delete(name.host);
  }
}

/** One host name, shared by all pools that connect to it. */
export class Name {
  readonly host: string;
  /** By the latest successful look-up, and the same array until they change; empty before the first. */
  addresses: readonly Address[] = [];
  readonly #names: Names;
  readonly #listeners = new Set<() => void>();
  /** The look-up in progress. */
  #looking: Promise<readonly Address[]> | null = null;
  #isRetained = false;
  /** In a row. */
  #failures = 0;
  #endedAt = 0;
  /** In [0, 1): how much earlier than it has to be the next look-up is. */
  #jitter = 0;
  #timer: Timer | null = null;

  constructor(host: string, names: Names) {
    this.host = host;
    this.#names = names;
  }

  get isUnused(): boolean {
    return !this.#isRetained && this.#looking === null;
  }

  /** Calls `listener` whenever `addresses` has changed. Returns a function that ends this. */
  onChange(listener: () => void): () => void {
    // A new function for each call: one listener may be added twice.
    const own = () => listener();
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  /** Resolves with `addresses` as soon as there are any; rejects with the error of a look-up that finds none. */
  known(): Promise<readonly Address[]> {
    return this.addresses.length > 0 ? Promise.resolve(this.addresses) : this.#look();
  }

  /**
   * Options of a connection that goes to the address `first`, and if that is unreachable to the others; without `first`
   * it waits for a look-up.
   */
  connectOptions(first: Address | undefined): { readonly lookup: LookupFunction; readonly autoSelectFamily: true } {
    const lookup: LookupFunction = (_host, { all }, done) => {
      // A promise, even if the addresses are known: `net` expects the answer in a later turn.
      this.known().then(
        (addresses) => {
          // `first` may have left the name since.
          const start = first === undefined ? 0 : Math.max(0, addresses.indexOf(first));
          const list = [...addresses.slice(start), ...addresses.slice(0, start)] as LookupAddress[];
          if (all === true) done(null, list);
          else done(null, list[0]!.address, list[0]!.family);
        },
        (error: NodeJS.ErrnoException) => done(error, [] as LookupAddress[]),
      );
    };
    return { lookup, autoSelectFamily: true };
  }

  start(): void {
    if (!this.#isRetained) this.#look().catch(ignore);
    this.#isRetained = true;
  }

  stop(): void {
    this.#isRetained = false;
    this.#timer?.cancel();
  }

  /** Sets the timer of the next look-up, counted from the end of the last one. */
  schedule(): void {
    if (this.#looking !== null || !this.#isRetained) return;
    const { ttlMs, options } = this.#names;
    const { clock } = options;
    // After a failure 1 s, 2 s, 4 s, …: a name that fails at the start is most often one whose service is starting too.
    const wait = this.#failures === 0 ? ttlMs : Math.min(FIRST_RETRY_MS * 2 ** (this.#failures - 1), ttlMs);
    this.#timer?.cancel();
    const dueAt = this.#endedAt + wait * (1 - JITTER * this.#jitter);
    this.#timer = clock.after(Math.max(0, dueAt - clock.now()), () => void this.#look().catch(ignore));
  }

  #look(): Promise<readonly Address[]> {
    this.#timer?.cancel();
    return (this.#looking ??= this.#names.options.lookup(this.host).then(
      (found) => this.#end(found, found.length > 0 ? null : new Error("the answer is empty")),
      (error: Error) => this.#end([], error),
    ));
  }

  #end(found: readonly Address[], error: Error | null): readonly Address[] {
    const { clock, random } = this.#names.options;
    this.#looking = null;
    if (!this.#isRetained) this.#names.forgetIfUnused(this);
    else {
      this.#report(error);
      this.#failures = error === null ? 0 : this.#failures + 1;
      this.#endedAt = clock.now();
      this.#jitter = random();
      this.schedule();
      if (error === null) this.#update(found);
    }
    if (error !== null) throw error;
    return found;
  }

  #update(found: readonly Address[]): void {
    const unique = new Map<string, Address>(found.map(({ address, family }) => [address, { address, family }]));
    // Name servers rotate the order with each answer; that is no change.
    if (unique.size === this.addresses.length && this.addresses.every(({ address }) => unique.has(address))) return;
    // Addresses that stay are the same objects: connections are kept under them.
    for (const known of this.addresses) if (unique.has(known.address)) unique.set(known.address, known);
    this.addresses = [...unique.values()];
    this.#names.options.log.debug("the addresses of a name have changed", {
      host: this.host,
      addresses: [...unique.keys()].join(" "),
    });
    for (const listener of [...this.#listeners]) listener();
  }

  #report(error: Error | null): void {
    const { log } = this.#names.options;
    if (error === null && this.#failures > 0) log.info("a name can be looked up again", { host: this.host });
    if (error === null || this.#failures > 0) return;
    const meaning = this.addresses.length > 0 ? "its last addresses stay in use" : "there are no addresses yet";
    log.warn(`a name could not be looked up: ${meaning}`, { host: this.host, error: error.message });
  }
}

const FIRST_RETRY_MS = 1000;
/** Each look-up is up to a tenth early, so that names that were looked up together drift apart. */
const JITTER = 0.1;

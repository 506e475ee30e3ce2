/**
 * The addresses behind host names, looked up through the system and again as they age; all users of a name share one
 * look-up.
 */
import type { LookupAddress } from "node:dns";
import net, { type LookupFunction } from "node:net";
import { lookUp } from "../base/egress_clients.ts";
import { ignore } from "../base/errors.ts";
import { textHash } from "../base/mix.ts";
import type { Address, HostName, NamesOptions } from "./contracts.ts";
import { inOrder, MAX_TARGETS } from "./endpoints.ts";
import { LookUp, LookUps } from "./look_ups.ts";

export class Names extends LookUps<Name> {
  readonly lookup: (host: string) => Promise<readonly Address[]>;
  readonly withSeveral: NameMemory;

  constructor({ lookup = lookUp, memory = (bytes) => new ArrayBuffer(bytes), ...tools }: NamesOptions) {
    super(tools);
    this.lookup = lookup;
    this.withSeveral = new NameMemory(memory(NAME_MEMORY_BYTES));
  }

  /** The one `Name` of a host, which is looked up while `retain` holds it; undefined for an address. */
  name(host: string): Name | undefined {
    if (net.isIP(host) !== 0) return undefined;
    let name = this.all.get(host);
    if (name === undefined) this.all.set(host, (name = new Name(host, this)));
    return name;
  }

  at(host: string, address: Address): HostName {
    const addresses = [address];
    return {
      host,
      addresses,
      hasHadSeveral: true,
      loneAddress: null,
      isAwaited: false,
      onChange: () => ignore,
      connectOptions: () => connectOptions(() => Promise.resolve(addresses), address),
    };
  }
}

/** One host name, shared by all pools that connect to it. */
export class Name extends LookUp<readonly Address[]> implements HostName {
  /** By the latest successful look-up, and the same array until they change; empty before the first. */
  addresses: readonly Address[] = [];
  loneAddress: Address | null = null;
  #hasHadSeveral = false;
  /** What `hasHadSeveral` was at the last change. */
  #wasOfSeveral = false;
  #isUnknown = true;
  /** Of the last answer. */
  #dropped = 0;
  readonly #names: Names;
  readonly #listeners = new Set<() => void>();

  constructor(host: string, names: Names) {
    super(host, names);
    this.#names = names;
  }

  get host(): string {
    return this.name;
  }

  /** Also of a thread that began when it had one again: the ids of its endpoints are the same in all. */
  get hasHadSeveral(): boolean {
    return (this.#hasHadSeveral ||= this.#names.withSeveral.has(this.name));
  }

  get isAwaited(): boolean {
    return this.#isUnknown && this.isRetained;
  }

  /** Returns a function that ends this. */
  onChange(listener: () => void): () => void {
    // A new function for each call: one listener may be added twice.
    const own = () => listener();
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  /** Resolves with `addresses` as soon as there are any; rejects with the error of a look-up that finds none. */
  known(): Promise<readonly Address[]> {
    return this.addresses.length > 0 ? Promise.resolve(this.addresses) : this.look();
  }

  /**
   * Options of a connection that goes to the address `first`, and if that is unreachable to the others; without `first`
   * it waits for a look-up.
   */
  connectOptions(first: Address | undefined): ConnectOptions {
    return connectOptions(() => this.known(), first);
  }

  protected override ask(): Promise<readonly Address[]> {
    return this.#names.lookup(this.name).then((found) => {
      if (found.length === 0) throw new Error("the answer is empty");
      return found;
    });
  }

  protected override ended(found: readonly Address[] | null, error: Error | null, failures: number): void {
    const isFirst = this.#isUnknown;
    this.#isUnknown = false;
    this.#report(error, failures);
    if (found !== null) this.#update(found);
    else if (isFirst) this.#changed();
  }

  #update(found: readonly Address[]): void {
    const given = new Map<string, Address>(found.map(withoutMapping).map((each) => [each.address, each]));
    const unique = this.#bounded(given);
    // Name servers rotate the order with each answer; that is no change.
    const isSame = unique.size === this.addresses.length && this.addresses.every(({ address }) => unique.has(address));
    // Another thread may have had several meanwhile, which this one has missed.
    if (isSame && this.#wasOfSeveral === this.hasHadSeveral) return;
    // Addresses that stay are the same objects: connections are kept under them.
    for (const known of this.addresses) if (unique.has(known.address)) unique.set(known.address, known);
    this.addresses = [...unique.values()];
    if (this.addresses.length > 1) this.#isOfSeveral();
    else if (!this.hasHadSeveral) this.loneAddress = this.addresses[0]!;
    this.#wasOfSeveral = this.hasHadSeveral;
    this.#names.tools.log.debug("the addresses of a name have changed", {
      host: this.name,
      addresses: [...unique.keys()].join(" "),
    });
    this.#changed();
  }

  /** Of more than a thousand the same ones with each answer, whatever their order is. */
  #bounded(found: Map<string, Address>): Map<string, Address> {
    const dropped = Math.max(0, found.size - MAX_TARGETS);
    if (dropped > 0 && dropped !== this.#dropped)
      this.#names.tools.log.warn("addresses of a name are left out", { host: this.name, addresses: dropped });
    this.#dropped = dropped;
    if (dropped === 0) return found;
    return new Map(
      inOrder([...found.values()])
        .slice(0, MAX_TARGETS)
        .map((each) => [each.address, each]),
    );
  }

  #isOfSeveral(): void {
    if (!this.hasHadSeveral) this.#names.withSeveral.add(this.name);
    this.#hasHadSeveral = true;
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  #report(error: Error | null, failures: number): void {
    const { log } = this.#names.tools;
    if (error === null && failures > 0) log.info("a name can be looked up again", { host: this.name });
    if (error === null || failures > 0) return;
    const meaning = this.addresses.length > 0 ? "its last addresses stay in use" : "there are no addresses yet";
    log.warn(`a name could not be looked up: ${meaning}`, { host: this.name, error: error.message });
  }
}

/** An IPv4-mapped address is its IPv4 address, as everywhere: the same server, which would be two endpoints. */
function withoutMapping({ address, family }: Address): Address {
  const isMapped = address.startsWith("::ffff:") && address.includes(".");
  return isMapped ? { address: address.slice("::ffff:".length), family: 4 } : { address, family };
}

/** Names, as their hashes, which none has left: those that come once it is full are not remembered. */
class NameMemory {
  readonly #hashes: Int32Array;

  constructor(memory: ArrayBufferLike) {
    this.#hashes = new Int32Array(memory);
  }

  has(name: string): boolean {
    return this.#hashes.includes(hashOf(name));
  }

  add(name: string): void {
    const hash = hashOf(name);
    for (let i = 0; i < this.#hashes.length; i++) {
      const before = Atomics.compareExchange(this.#hashes, i, 0, hash);
      if (before === 0 || before === hash) return;
    }
  }
}

/** Never 0, which is a free place. */
function hashOf(name: string): number {
  return textHash(name) | 1;
}

const NAME_MEMORY_BYTES = 16 * 1024;

type ConnectOptions = ReturnType<HostName["connectOptions"]>;

/** `first`: see `HostName`. Its rejection is the error of the connection. */
function connectOptions(known: () => Promise<readonly Address[]>, first: Address | undefined): ConnectOptions {
  const lookup: LookupFunction = (_host, { all }, done) => {
    // A promise, even if the addresses are known: `net` expects the answer in a later turn.
    known().then(
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

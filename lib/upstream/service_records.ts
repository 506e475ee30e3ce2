/**
 * The targets of SRV records (RFC 2782), which are where the servers of a service are: looked up through the system's
 * name servers, and again as they age.
 */
import { isIP } from "node:net";
import type { Timer } from "../base/clock.ts";
import { lookUpService } from "../base/egress_clients.ts";
import type { LookedUpTarget, RecordTarget, ServiceRecordsOptions, TargetsState } from "./contracts.ts";
import { MAX_TARGETS } from "./endpoints.ts";
import { LookUp, LookUps } from "./look_ups.ts";

/** Targets that can no longer be looked up stay for this many times `dns_ttl_ms`. */
const OLD_FOR_TTLS = 10;

export class ServiceRecords extends LookUps<ServiceRecord> {
  readonly lookUpService: (record: string) => Promise<readonly LookedUpTarget[]>;

  constructor({ lookUpService: ask = lookUpService, ...tools }: ServiceRecordsOptions) {
    super(tools);
    this.lookUpService = ask;
  }

  /** The one of a name, which is looked up while `retain` holds it. */
  record(name: string): ServiceRecord {
    let record = this.all.get(name);
    if (record === undefined) this.all.set(name, (record = new ServiceRecord(name, this)));
    return record;
  }
}

/** One record, shared by all services that name it. */
export class ServiceRecord extends LookUp<readonly RecordTarget[]> {
  /** Sorted, and the same array until they change. */
  targets: readonly RecordTarget[] = [];
  state: TargetsState = "unknown";
  readonly #records: ServiceRecords;
  readonly #listeners = new Set<() => void>();
  /** Of the last answer. */
  #dropped = 0;
  /** Runs while `targets` are old. */
  #expiry: Timer | null = null;

  constructor(name: string, records: ServiceRecords) {
    super(name, records);
    this.#records = records;
  }

  /** Calls `listener` when `targets` have changed, and after the first look-up. Returns a function that ends this. */
  onChange(listener: () => void): () => void {
    const own = () => listener();
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  protected override ask(): Promise<readonly RecordTarget[]> {
    return this.#records.lookUpService(this.name).then((found) => {
      const { targets, dropped } = targetsOf(found);
      if (targets.length === 0) throw new Error(found.length === 0 ? "the answer is empty" : "it has no usable target");
      if (dropped > 0 && dropped !== this.#dropped)
        this.#records.tools.log.warn("targets of an SRV record are left out", { record: this.name, targets: dropped });
      this.#dropped = dropped;
      return targets;
    });
  }

  protected override ended(found: readonly RecordTarget[] | null, error: Error | null, failures: number): void {
    const { log } = this.#records.tools;
    const isFirst = this.state === "unknown";
    if (found === null) return this.#failed(error!, failures, isFirst);
    if (failures > 0) log.info("an SRV record can be looked up again", { record: this.name });
    this.#expiry?.cancel();
    this.#expiry = null;
    this.state = "current";
    if (!isFirst && areSame(found, this.targets)) return;
    this.targets = found;
    log.debug("the targets of an SRV record have changed", { record: this.name, targets: found.length });
    this.#changed();
  }

  #failed({ message }: Error, failures: number, isFirst: boolean): void {
    const { log, clock } = this.#records.tools;
    const has = this.targets.length > 0;
    if (failures === 0 || isFirst) {
      const meaning = has ? "its last targets stay in use" : "there are no targets yet";
      log.warn(`an SRV record could not be looked up: ${meaning}`, { record: this.name, error: message });
    }
    this.state = has ? "old" : "none";
    if (has) this.#expiry ??= clock.after(OLD_FOR_TTLS * this.#records.ttlMs, () => this.#expire());
    if (isFirst) this.#changed();
  }

  #expire(): void {
    this.#records.tools.log.warn("an SRV record could not be looked up for too long: it has no targets any more", {
      record: this.name,
    });
    this.#expiry = null;
    this.state = "none";
    this.targets = [];
    this.#changed();
  }

  protected override released(): void {
    this.#expiry?.cancel();
    this.#expiry = null;
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * The targets of an answer, by priority, host and port: of one that occurs twice the better priority counts, and the
 * weights together. A target "." says that there is no such service (RFC 2782).
 */
export function targetsOf(found: readonly LookedUpTarget[]): {
  readonly targets: readonly RecordTarget[];
  /** How many were left out: those that are no hosts, and those beyond `MAX_TARGETS`. */
  readonly dropped: number;
} {
  const targets = new Map<string, RecordTarget>();
  let invalid = 0;
  for (const { name, port, priority, weight } of found) {
    const host = name.toLowerCase().replace(/\.$/, "");
    if (host === "") continue;
    if (!(HOST.test(host) || isIP(host) !== 0) || host.length > 253 || port < 1) {
      invalid++;
      continue;
    }
    const key = `${host}:${port}`;
    const known = targets.get(key);
    if (known === undefined || known.priority > priority) targets.set(key, { host, port, priority, weight });
    else if (known.priority === priority) targets.set(key, { ...known, weight: known.weight + weight });
  }
  const sorted = [...targets.values()].sort(
    (a, b) => a.priority - b.priority || (a.host < b.host ? -1 : a.host > b.host ? 1 : a.port - b.port),
  );
  return { targets: sorted.slice(0, MAX_TARGETS), dropped: invalid + Math.max(0, sorted.length - MAX_TARGETS) };
}

/** Labels of letters, digits, "-" and "_". */
const HOST = /^[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/;

function areSame(some: readonly RecordTarget[], others: readonly RecordTarget[]): boolean {
  return (
    some.length === others.length &&
    some.every(({ host, port, priority, weight }, i) => {
      const other = others[i]!;
      return other.host === host && other.port === port && other.priority === priority && other.weight === weight;
    })
  );
}

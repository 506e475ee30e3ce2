/**
 * What serves requests sees of upstreams beyond one server over HTTP/1.1: their health, breakers, retries and names.
 * The code behind it is loaded where a configuration needs it.
 */
import type { LookupFunction, Socket } from "node:net";
import type { Clock } from "../base/clock.ts";
import type { Dial, Secure } from "../base/egress.ts";
import type { Log } from "../base/log.ts";
import type { TlsRules } from "../base/tls_rules.ts";

export interface HealthSettings {
  /** Null: no active checks. */
  readonly active: { readonly healthyThreshold: number; readonly unhealthyThreshold: number } | null;
  readonly passive: {
    /** Failures within `windowMs` that eject it; 0: it is never ejected. */
    readonly maxFailures: number;
    readonly windowMs: number;
    /** The first ejection; it doubles while it repeats, to ten times. */
    readonly ejectMs: number;
    /** Statuses that count as failures. */
    readonly statuses: readonly number[];
    /** After a return, the time from a tenth of its share to the whole; 0: at once. */
    readonly slowStartMs: number;
  };
}

export interface HealthOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** For the log. */
  readonly service: string;
  readonly upstream: string;
  /** Whether another upstream can serve its requests; called before it is ejected. */
  readonly mayEject: () => boolean;
  /** Called when `usable` or `ejected` has changed. */
  readonly changed: () => void;
}

export type HealthState = "unknown" | "healthy" | "unhealthy" | "ejected";

export interface HealthReport {
  readonly state: HealthState;
  /** When it entered that state, in milliseconds since 1970; null while it is unknown. */
  readonly since: number | null;
  /** Why it is unhealthy or ejected. */
  readonly reason: string | null;
  /** When an ejection ends, in milliseconds since 1970. */
  readonly until: number | null;
}

/** The health of an upstream as requests see it. */
export interface UpstreamHealth {
  /** Statuses of responses that count as failures; null: `answered` need not be called. */
  readonly failureStatuses: ReadonlySet<number> | null;
  /** Read by balancers when it may have changed. */
  readonly usable: boolean;
  /** Whether it is ejected and not unhealthy: it is used if no other upstream is left. */
  readonly ejected: boolean;
  /** The share of its weight that counts, above 0 to 1. Read by balancers for every request. */
  readonly share: number;
  readonly report: HealthReport;
  /** Sets new settings after a reload. */
  configure(settings: HealthSettings): void;
  /** Counts a response to a client. */
  countAnswer(status: number): void;
  countFailure(reason: string): void;
  /** Counts an active check, where checks are counted in this thread. `failure`: null: it has passed. */
  checked?(failure: string | null): void;
  /** Where threads share it. Absent: there is no state. */
  readonly memory?: ArrayBufferLike;
  /** Other threads find it there from now on: a reload may bring other memory. */
  moveTo?(place: HealthMemory): void;
  close(): void;
}

export interface HealthTools {
  readonly clock: Clock;
  readonly log: Log;
  /** One word, which goes up whenever other upstreams may be usable; shared by all threads. */
  readonly changes: Int32Array;
  /** `memory`: as that of a member. */
  readonly make: (options: HealthOptions, memory: HealthMemory | null) => UpstreamHealth;
}

/** Where threads share the health of one upstream: memory of its own (`HEALTH_BYTES`), or a place in other memory. */
export type HealthMemory = ArrayBufferLike | HealthPlace;

/** `HEALTH_BYTES`, as whole numbers and as floating-point ones. They may be others with each look. */
export interface HealthPlace {
  /** That it is in. */
  readonly memory: ArrayBufferLike;
  readonly words: Int32Array;
  readonly cells: Float64Array;
  /** In the thread that decides: the upstream is gone, and others may have the place. */
  readonly free?: () => void;
}

/** A place that is looked for when it is needed. */
export interface LatePlace {
  readonly memory: ArrayBufferLike;
  /** Null: there is none left. */
  take(): HealthPlace | null;
}

/** Failures of one upstream in one worker. */
export interface UpstreamFailures {
  readonly service: string;
  readonly upstream: string;
  readonly count: number;
  /** Of the latest one. */
  readonly reason: string;
}

/** In a worker: failures for the main thread. */
export interface FailureCounts {
  /** Sends them. */
  send: (failures: readonly UpstreamFailures[]) => void;
  add(service: string, upstream: string, reason: string): void;
}

export interface BreakerSettings {
  /** Share of failed requests that opens it, above 0 to 1. */
  readonly errorRatio: number;
  /** With fewer requests than this within the window it stays closed. */
  readonly minRequests: number;
  readonly windowMs: number;
  readonly openMs: number;
  /** Requests that are admitted after `openMs`, all of which have to pass. */
  readonly probes: number;
}

export type BreakerState = "closed" | "open" | "half_open";

export interface BreakerReport {
  readonly state: BreakerState;
  /** When it entered that state, in milliseconds since 1970; null if it never left "closed". */
  readonly since: number | null;
}

/** How an admitted request has ended; "unknown" says nothing about the service. */
export type Verdict = "passed" | "failed" | "unknown";

export interface CircuitBreaker {
  readonly report: BreakerReport;
  readonly counts: { readonly requests: number; readonly failures: number };
  /** 0: requests are admitted. */
  readonly retryAfterMs: number;
  /** Sets new settings after a reload. */
  configure(settings: BreakerSettings): void;
  /** Admits a request and returns the number to pass to `settle`, once; -1 refuses it. */
  admit(): number;
  settle(admission: number, verdict: Verdict): void;
}

/** Limits the retries of one service to a share of its requests. */
export interface RetryLimit {
  /** Counts a request, not a retry. */
  request(): void;
  /** Takes the right to one retry; false if there is none left. */
  take(ratio: number): boolean;
}

/** The properties of an upstream that a strategy uses. */
export interface WeighedUpstream {
  /** Unique within the service. */
  readonly id: string;
  /** Above 0; its share of the requests beside the others', reduced during a slow start. */
  readonly weightNow: number;
  /** Requests in progress and waiting. */
  readonly load: number;
  /**
   * The state of smooth rotation; kept across reloads, so that a new configuration does not start at the first upstream
   * again.
   */
  turn: number;
}

export interface ConnectTarget {
  readonly host: string;
  readonly port: number;
  /** Connects to `host` and `port`. */
  readonly dial: Dial;
  /** The addresses of `host`, if it is a name. Default: Node looks the name up for every connection. */
  readonly name?: HostName;
}

/** What a connection whose upstream is told its client is opened with. */
export interface ForClient {
  /** An address; null, and default: the gateway opens it for itself. */
  readonly client?: string | null;
}

export interface UpstreamTlsSettings extends TlsRules {
  /** CA certificates, PEM. Default: the system's CA certificates. */
  readonly ca?: { readonly content: Buffer } | undefined;
  /** Client certificate chain and its key, PEM. */
  readonly cert?: { readonly content: Buffer } | undefined;
  readonly key?: { readonly content: Buffer } | undefined;
  /** The name sent as SNI and verified. Default: the upstream's host. */
  readonly servername?: string | undefined;
  /** Default true. */
  readonly verify?: boolean;
  /** Lists of revoked certificates, PEM. Default: none is looked at. */
  readonly crl?: { readonly content: Buffer } | undefined;
  /** What an expired list does with the certificates that it does not have. Default "refuse". */
  readonly crlExpired?: "refuse" | "allow" | undefined;
}

export interface UpstreamTlsTools {
  /** Default: the system's. */
  readonly clock?: Clock;
  /** Counts handshakes. Null, the default: nobody asks for them. */
  readonly handshakes?: {
    /** `group`: null: it is not known. */
    finished(side: "upstream", version: string | null, group: string | null): void;
    refused(side: "upstream", reason: string): void;
  } | null;
}

/** TLS by the settings of a service. */
export interface TlsToUpstreams {
  /** The same for the same settings and contents of files, whatever the names of the files. */
  readonly identity: string;
  /** Throws when certificate and key do not fit. */
  options(host: string): Secure;
  /** Connects as `connect` does. `protocols`: for ALPN. Throws when certificate and key do not fit. */
  connector(to: ConnectTarget, protocols?: readonly string[]): (first: Address | undefined, more?: object) => Socket;
}

export interface Address {
  readonly address: string;
  readonly family: number;
}

/** What look-ups need. */
export interface LookUpTools {
  readonly clock: Clock;
  readonly log: Log;
  /** A number in [0, 1). Default: `Math.random`. */
  readonly random?: () => number;
  /** How old an answer may get, in milliseconds. Default 30,000. */
  readonly ttlMs?: number;
}

export interface NamesOptions extends LookUpTools {
  /** All addresses of a host. Default: getaddrinfo, without IPv6 addresses on a machine that has none. */
  readonly lookup?: (host: string) => Promise<readonly Address[]>;
  /** Memory in which all threads remember which names have had several addresses. Default: of this thread alone. */
  readonly memory?: (bytes: number) => ArrayBufferLike;
}

/** One target of an SRV record (RFC 2782), as Node gives it. */
export interface LookedUpTarget {
  readonly name: string;
  readonly port: number;
  readonly priority: number;
  readonly weight: number;
}

/** The same; `host`: a name or an address, lower case, without the final dot. */
export interface RecordTarget extends Omit<LookedUpTarget, "name"> {
  readonly host: string;
}

/** "unknown": there is no answer yet. "old": it cannot be looked up, and the last targets stay for a while. */
export type TargetsState = "unknown" | "current" | "old" | "none";

export interface ServiceRecordsOptions extends LookUpTools {
  /** The targets of a record; rejects when there is none. Default: as the system's name servers say. */
  readonly lookUpService?: (record: string) => Promise<readonly LookedUpTarget[]>;
}

/** One SRV record, shared by all services that name it. */
export interface TargetsRecord {
  readonly name: string;
  /** Sorted, and the same array until they change. */
  readonly targets: readonly RecordTarget[];
  readonly state: TargetsState;
  /** Called when `targets` have changed, and after the first look-up. Returns what ends it. */
  onChange(listener: () => void): () => void;
}

/** See `LookUps`. */
interface Retaining<One> {
  /** Looks these up from now on, new ones at once, and no others that the same owner has had. */
  retain(wanted: Iterable<One>, ttlMs?: number, owner?: object): void;
  /** Forgets the names that nobody retains: who asks for one of them again gets another object. */
  forgetUnused(): void;
  /** Ends all look-ups and timers; the last answers stay. */
  close(): void;
}

export interface TargetsRecords extends Retaining<TargetsRecord> {
  /** The one of a name. */
  record(name: string): TargetsRecord;
}

/** One host name, shared by all pools that connect to it. */
export interface HostName {
  readonly host: string;
  /** By the latest successful look-up, and the same array until they change; empty before the first. */
  readonly addresses: readonly Address[];
  /** Whether it has had more than one at a time, in any thread. */
  readonly hasHadSeveral: boolean;
  /** The last one that it had alone, before it had several; null: it is not known. */
  readonly loneAddress: Address | null;
  /** Whether its first look-up is on the way. */
  readonly isAwaited: boolean;
  /** Called when `addresses` has changed, and after the first look-up. Returns what ends it. */
  onChange(listener: () => void): () => void;
  /** For `net.connect`. `first`: the address to begin with, if the name still has it. */
  connectOptions(first: Address | undefined): { readonly lookup: LookupFunction; readonly autoSelectFamily: true };
}

export interface HostNames extends Retaining<HostName> {
  /** The one `HostName` of a host; undefined for an address. */
  name(host: string): HostName | undefined;
  /** The same with one of its addresses alone, which is not looked up again. */
  at(host: string, address: Address): HostName;
}

/**
 * The gateways that share one account and one set of certificates, in etcd below the key of their configuration: one of
 * them holds a lock and orders, all serve what it has ordered, and answer its challenges.
 *
 * ```
 * KEY/acme/lock              who orders, under a lease of 15 s
 * KEY/acme/account.key, …    as the files of a keeper that is alone
 * KEY/acme/attempt.json      what the last attempt has left
 * KEY/acme/challenges.json   those that are open, under the lease of the lock
 * ```
 *
 * Every value is encrypted for its key (`SealingKey`). Only the holder writes, and with the lock as a condition. A
 * value that cannot be decrypted stops all that: nobody orders, and nothing is overwritten.
 */
import type { Clock } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { SealingKey } from "../base/sealing_key.ts";
import type { EtcdClient } from "../source/etcd_client.ts";
import { EtcdFailure } from "../source/etcd_failure.ts";
import { acmeBelow, rangeBelow } from "../source/etcd_keys.ts";
import { changeFolder, folderState, isSameFolder, type FolderState } from "../source/etcd_folder.ts";
import { EtcdLock } from "../source/etcd_lock.ts";
import { watchKeys } from "../source/etcd_watch.ts";
import { fleetEntries } from "../source/fleet_entries.ts";
import type { AcmeFiles, AcmeFleetState, Challenge, ChallengeAnswers, KeeperFleet } from "./contracts.ts";
import { isJsonObject, textIn } from "./json_members.ts";
import { AnsweredChallenges, challengesIn, challengesText } from "./shared_challenges.ts";
import { SHARED_NAMES, SharedFiles } from "./shared_files.ts";
import { pause, unlessAborted } from "./waits.ts";

/** A gateway among the entries of its fleet. `id` null: it writes nothing to etcd, and so does not order. */
interface FleetIdentity {
  readonly id: string | null;
  /** "web-1:8008" */
  readonly name: string;
}

export interface AcmeFleetOptions {
  /** It is closed with the fleet. */
  readonly client: EtcdClient;
  /** Of the configuration. */
  readonly key: string;
  readonly sealing: SealingKey;
  /** Of this gateway. */
  readonly files: AcmeFiles;
  /** Of the threads of this gateway. */
  readonly answers: ChallengeAnswers;
  readonly identity: Promise<FleetIdentity>;
  /**
   * Called with the revision up to which this gateway serves what is shared, for its entry in the fleet; null: it does
   * not any more.
   */
  readonly serves: (revision: number | null) => void;
  readonly clock: Clock;
  readonly log: Log;
  /** 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
}

const LOCK = "lock";
const CHALLENGES = "challenges.json";
const NAMES: readonly string[] = [LOCK, CHALLENGES, ...SHARED_NAMES];

export class AcmeFleet implements KeeperFleet {
  readonly files: SharedFiles;
  readonly answers: ChallengeAnswers;
  readonly #options: AcmeFleetOptions;
  readonly #prefix: string;
  readonly #lock: EtcdLock;
  readonly #answered: AnsweredChallenges;
  readonly #closing = new AbortController();
  #identity: FleetIdentity | null = null;
  #changed: () => void = ignore;
  /** What was read last; null: nothing. Without values. */
  #known: FolderState | null = null;
  /** Those that cannot be decrypted. */
  #unreadable: readonly string[] = [];
  /** A stream of events has ended: see `EtcdServer`. */
  #isUnsure = false;
  #isHolder = false;
  #holder: AcmeFleetState["holder"] = null;
  #problem: string | null = null;
  /** What this gateway has presented for an order of its own. */
  #presented: readonly Challenge[] = [];
  #following: Promise<void> = Promise.resolve();
  /** Resolves once the last change has ended. */
  #written: Promise<unknown> = Promise.resolve();

  constructor(options: AcmeFleetOptions) {
    const { client, key, clock, files, answers, log } = options;
    this.#options = options;
    this.#prefix = acmeBelow(key);
    this.#answered = new AnsweredChallenges(answers);
    this.#lock = new EtcdLock({ client, key: `${this.#prefix}${LOCK}`, clock, lost: () => this.#lost() });
    this.files = new SharedFiles(files, {
      share: async (name, content) => void (await this.#write(name, content)),
      uncopied: (name, error) =>
        log.error("ACME: what the fleet shares cannot be copied to STATE_DIR", { name, error: messageOf(error) }),
    });
    this.answers = { present: (challenges) => this.#present(challenges), remove: () => this.#remove() };
  }

  get state(): AcmeFleetState {
    return { holder: this.#holder, isHolder: this.#isHolder, problem: this.#problem };
  }

  start(changed: () => void): void {
    this.#changed = changed;
    this.#following = this.#follow().catch(ignore);
  }

  stop(): void {
    this.#closing.abort();
  }

  async close(): Promise<void> {
    this.stop();
    await this.#following;
    this.#isHolder = false;
    await this.#answered.set([]).catch(ignore);
    this.#options.serves(null);
    await this.#lock.release();
    this.#options.client.close();
  }

  async #follow(): Promise<void> {
    const { client, clock, identity, random = Math.random } = this.#options;
    const { signal } = this.#closing;
    this.#identity = await unlessAborted(identity, signal);
    for (let failures = 0; !signal.aborted; failures++) {
      const began = clock.now();
      const ranges = [rangeBelow(this.#prefix)];
      const look = () => folderState(client, this.#prefix, "revisions", { signal });
      const seen = (state: FolderState) => this.#seen(state);
      const onEnd = () => void (this.#isUnsure = true);
      await watchKeys({ client, clock, ranges, look, isSame: isSameFolder, seen, onEnd }, signal).catch((error) =>
        this.#failed(error),
      );
      if (clock.now() - began > LONGEST_PAUSE_MS) failures = 0;
      const ms = Math.min(FIRST_PAUSE_MS * 2 ** failures, LONGEST_PAUSE_MS) * (0.8 + 0.4 * random());
      await pause(ms, clock, signal).catch(ignore);
    }
  }

  async #seen(state: FolderState): Promise<void> {
    const isKnown = this.#known !== null && !this.#isUnsure && isSameFolder(this.#known, state);
    // Before it is read: the lock may be found lost, and then all is read again.
    this.#isUnsure = false;
    if (!isKnown) await this.#read();
    if (this.#lock.fence === null && this.#unreadable.length === 0 && !this.#known!.keys.has(LOCK)) await this.#take();
    if (this.#problem !== null && this.#unreadable.length === 0) {
      this.#options.log.info("ACME: what the fleet shares can be used again", { key: this.#prefix });
      this.#problem = null;
      this.#changed();
    }
  }

  /** Everything, and puts it into use. */
  async #read(): Promise<void> {
    const { client, sealing, serves } = this.#options;
    const read = await folderState(client, this.#prefix, "texts", { signal: this.#closing.signal });
    const values = new Map<string, Buffer>();
    const unreadable: string[] = [];
    for (const name of NAMES) {
      const sealed = read.keys.get(name)?.value ?? null;
      const value = sealed === null ? null : sealing.open(sealed, `${this.#prefix}${name}`);
      if (value !== null) values.set(name, value);
      else if (sealed !== null) unreadable.push(name);
    }
    this.#known = { ...read, keys: new Map([...read.keys].map(([name, state]) => [name, { ...state, value: null }])) };
    this.#holder = holderIn(values.get(LOCK));
    const is = this.#unreadable.length === 0 ? "new" : "known";
    this.#unreadable = unreadable;
    if (unreadable.length > 0) return this.#refuse(unreadable, is);
    if (this.#isHolder && this.#holder?.id !== this.#identity?.id) this.#lock.drop();
    const shared = new Map(SHARED_NAMES.flatMap((name) => (values.has(name) ? [[name, values.get(name)!]] : [])));
    if (!this.#isHolder) {
      await this.#answered.set(challengesIn(values.get(CHALLENGES) ?? null));
      await this.files.take(shared);
      this.#changed();
    } else await this.#restore(shared, values.has(CHALLENGES));
    serves(Math.max(0, ...[...read.keys.values()].map(({ modRevision }) => modRevision)));
  }

  /** Only the holder writes: where something is different from what it has written, somebody else has changed that. */
  async #restore(found: ReadonlyMap<string, Buffer>, hasChallenges: boolean): Promise<void> {
    if (this.files.isChanging) return void (this.#isUnsure = true);
    try {
      const names = await this.files.restore(found);
      if (names.length > 0)
        this.#options.log.warn("ACME: somebody has changed what the fleet shares, and it is put back", { names });
      // Those of an order that has ended, while etcd did not answer.
      if (hasChallenges && this.#presented.length === 0) await this.#write(CHALLENGES, null);
    } catch (error) {
      this.#isUnsure = true;
      throw error;
    }
  }

  async #refuse(names: readonly string[], is: "new" | "known"): Promise<void> {
    const keys = names.map((name) => `${this.#prefix}${name}`).join(", ");
    const why = `ACME_FLEET_KEY_FILE has another key than the one that ${keys} was encrypted with`;
    this.#fail(`${why}, or somebody has written there`, is);
    if (!this.#isHolder) return this.#changed();
    this.#isHolder = false;
    await this.#lock.release();
    this.#changed();
  }

  async #take(): Promise<void> {
    const { id, name } = this.#identity!;
    if (id === null) return;
    const { sealing, log } = this.#options;
    const { signal } = this.#closing;
    const value = sealing.seal(Buffer.from(JSON.stringify({ id, name })), `${this.#prefix}${LOCK}`);
    if (!(await this.#lock.take(value, signal))) return;
    try {
      // What was written before the lock was taken.
      await this.#read();
      if (signal.aborted || this.#lock.fence === null || this.#unreadable.length > 0) return;
      const brought = await this.files.bring();
      if (brought.length > 0) log.info("ACME: the fleet gets what this gateway has", { names: brought });
      this.#isHolder = true;
    } finally {
      // A gateway that keeps the lock, and orders nothing, would be in the way of all others.
      if (!this.#isHolder) await this.#lock.release();
    }
    log.info("ACME: this gateway orders for its fleet", { key: this.#prefix });
    this.#changed();
  }

  #lost(): void {
    if (!this.#isHolder) return;
    this.#isHolder = false;
    this.#options.log.info("ACME: this gateway does not order for its fleet any more", { key: this.#prefix });
    // What others have written meanwhile.
    this.#isUnsure = true;
    this.#changed();
  }

  /** Resolves with the revision. In the order of the calls: what removes challenges does not remove the next ones. */
  #write(name: string, content: Buffer | null, lease?: string): Promise<number> {
    const written = this.#written.then(() => this.#writeNow(name, content, lease));
    this.#written = written.catch(ignore);
    return written;
  }

  async #writeNow(name: string, content: Buffer | null, lease: string | undefined): Promise<number> {
    const { client, sealing } = this.#options;
    const condition = this.#lock.fence;
    if (condition === null) return this.#notHeld();
    const value = content === null ? null : sealing.seal(content, `${this.#prefix}${name}`);
    const put = value === null ? null : { value, ...(lease !== undefined && { lease }) };
    const changes = [[name, put]] as const;
    const { signal } = this.#closing;
    const time = signal.aborted ? { limitMs: LAST_MS, memberMs: LAST_MS } : { signal };
    const written = changeFolder(client, this.#prefix, { changes, condition }, time);
    return (await written.catch(nullIfLeaseLost)) ?? this.#notHeld();
  }

  #notHeld(): never {
    this.#lock.drop();
    throw new Error("another gateway orders for the fleet by now, or etcd does not answer");
  }

  /** Resolves once the other gateways answer them, too, or after 5 s. */
  async #present(challenges: readonly Challenge[]): Promise<void> {
    this.#presented = challenges;
    await this.#options.answers.present(challenges);
    const revision = await this.#write(CHALLENGES, challengesText(challenges), this.#lock.lease ?? undefined);
    await this.#allServe(revision);
  }

  async #remove(): Promise<void> {
    const presented = this.#presented;
    this.#presented = [];
    await this.#options.answers.remove(presented);
    await this.#write(CHALLENGES, null);
  }

  /** One that has failed a moment ago has an entry for half a minute: it is not waited for longer than this. */
  async #allServe(revision: number): Promise<void> {
    const { client, clock, key, log } = this.#options;
    const { signal } = this.#closing;
    const end = clock.now() + LONGEST_WAIT_MS;
    for (;;) {
      const entries = await fleetEntries(client, key, { signal }).catch(() => null);
      const late = entries?.filter(({ id, entry }) => id !== this.#identity?.id && isBehind(entry?.acme, revision));
      if (late?.length === 0) return;
      if (clock.now() >= end) {
        const gateways = late?.map(({ id, entry }) => entry?.name ?? id) ?? "unknown: their entries cannot be read";
        return log.warn("ACME: gateways of the fleet may not answer its challenges yet", { gateways });
      }
      await pause(AGAIN_MS, clock, signal);
    }
  }

  #failed(error: unknown): void {
    if (this.#closing.signal.aborted) return;
    // Members of etcd fail in different words.
    this.#fail(messageOf(error), this.#problem === null ? "new" : "known");
    this.#changed();
  }

  #fail(problem: string, is: "new" | "known"): void {
    if (is === "new")
      this.#options.log.error("ACME: what the fleet shares cannot be used", { key: this.#prefix, error: problem });
    this.#problem = problem;
  }
}

/** The lock is gone with its lease. */
function nullIfLeaseLost(error: unknown): null {
  if (error instanceof EtcdFailure && error.isLeaseLost) return null;
  throw error;
}

function isBehind(served: number | undefined, revision: number): boolean {
  return served !== undefined && served < revision;
}

/** Null: nobody, or somebody with another key. */
function holderIn(value: Buffer | undefined): AcmeFleetState["holder"] {
  if (value === undefined) return null;
  const holder: unknown = JSON.parse(String(value));
  if (!isJsonObject(holder)) return null;
  return { id: textIn(holder, "id") ?? "", name: textIn(holder, "name") ?? "" };
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
const LONGEST_WAIT_MS = 5_000;
const AGAIN_MS = 100;
const LAST_MS = 1_000;

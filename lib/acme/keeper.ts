/**
 * Keeps certificates for the hosts of a configuration: looks at the wall clock, orders what is missing or due, and
 * waits after failures. It does one thing at a time.
 *
 * ```
 *            ┌──────── within 30 s ────────────┐
 *            ▼                                 │
 * start ─► look ─► nothing is due ─────────────┤
 *            ├───► renewal information is old ─┤ it is asked for
 *            └───► a host has no certificate, or one that is due
 *                     └─► attempt ─► present ──┤
 *                            └─ failed ─ pause ┘
 * ```
 *
 * In a fleet this is what the gateway does that orders; the others present what it has ordered.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Client } from "../client/client.ts";
import { AcmeAccount } from "./account.ts";
import { attempt } from "./attempt.ts";
import type {
  AcmeFiles,
  AcmeSettings,
  AcmeState,
  CertificateKeeper,
  ChallengeAnswers,
  IssuedCertificate,
  KeeperFleet,
} from "./contracts.ts";
import { acmeClient, Directory, type ProxySource } from "./directory.ts";
import { AcmeFailure, hostsFailure } from "./failure.ts";
import { readAttempt, writeAttempt } from "./last_attempt.ts";
import { removeOrder } from "./order.ts";
import { Pauses } from "./pauses.ts";
import { RenewalTimes } from "./renewal.ts";
import { certificateFor, readCertificates, writeCertificates, type StoredCertificate } from "./stored_certificates.ts";

export interface KeeperTools {
  readonly files: AcmeFiles;
  readonly answers: ChallengeAnswers;
  readonly clock: Clock;
  readonly log: Log;
  /** Called with all that are to be presented from now on, once at the start and with each change. */
  present(certificates: readonly IssuedCertificate[]): Promise<void> | void;
  readonly proxy: ProxySource;
  /** Whose `files` these are; null: they are of this gateway alone. Default null. */
  readonly fleet?: KeeperFleet | null;
  /** From 0 to below 1, for pauses and moments of renewal. Default: `Math.random`. */
  readonly random?: () => number;
}

export function keepCertificates(settings: AcmeSettings, tools: KeeperTools): CertificateKeeper {
  return new Keeper(settings, tools);
}

type Presented = readonly [certificate: StoredCertificate, hosts: readonly string[]];

type Doing = "ordering" | "asking" | "replacing the key";

class Keeper implements CertificateKeeper {
  readonly #tools: KeeperTools;
  readonly #account: AcmeAccount;
  readonly #pauses: Pauses;
  readonly #renewals: RenewalTimes;
  #settings: AcmeSettings;
  #client: Client;
  #certificates: readonly StoredCertificate[] = [];
  #presented: readonly Presented[] | null = null;
  /** Whether a certificate is in use that is not on disk yet. */
  #isUnstored = false;
  /** Those whose end has been warned of. */
  readonly #warned = new WeakSet<StoredCertificate>();
  #phase: "starting" | "started" | "closed" = "starting";
  #work: { readonly doing: Doing; readonly controller: AbortController; readonly done: Promise<void> } | null = null;
  #timer: Timer | null = null;
  #error: string | null = null;
  #hostErrors: ReadonlyMap<string, string> = new Map();
  readonly #orders = { succeeded: 0, failed: 0 };
  readonly #fleet: KeeperFleet | null;
  /** Whether it is this gateway that orders. */
  #mayOrder: boolean;

  constructor(settings: AcmeSettings, tools: KeeperTools) {
    const { clock, files, log, fleet = null, random = Math.random } = tools;
    this.#settings = settings;
    this.#tools = tools;
    this.#fleet = fleet;
    this.#mayOrder = fleet === null;
    this.#account = new AcmeAccount(files, log);
    this.#pauses = new Pauses(clock, random);
    this.#renewals = new RenewalTimes(clock, random);
    this.#client = acmeClient(settings, clock, tools.proxy);
  }

  get state(): AcmeState {
    const { directory, hosts } = this.#settings;
    const now = this.#tools.clock.wall();
    const isOrdering = this.#work?.doing === "ordering";
    const isWaiting = this.#isDue || this.#error !== null;
    const isElsewhere = this.#isDue && !this.#mayOrder;
    const settled = isWaiting ? "waiting" : "valid";
    return {
      directory,
      state: this.#phase === "starting" ? "starting" : isOrdering ? "ordering" : settled,
      hosts: hosts.map((host) => ({
        host,
        notAfter: certificateFor(host, this.#certificates, now)?.chain.notAfter ?? null,
        error: this.#hostErrors.get(host) ?? null,
        isDue: this.#renewsAt(host) <= now,
      })),
      error: this.#error,
      nextAt: isOrdering || this.#phase !== "started" || isElsewhere ? null : now + this.#msToNext,
      orders: { ...this.#orders },
      fleet: this.#fleet?.state ?? null,
    };
  }

  start(): void {
    this.#read();
    this.#phase = "started";
    this.#look();
    this.#fleet?.start(() => this.#followFleet());
  }

  #read(): void {
    const { certificates, problem } = readCertificates(this.#tools.files);
    // What is the same stays the same object, of which more is known.
    const known = new Map(this.#certificates.map((each) => [String(each.chain.pem), each]));
    this.#certificates = certificates.map((each) => known.get(String(each.chain.pem)) ?? each);
    // Nothing is lost that could not be had again.
    if (problem !== undefined) this.#tools.log.warn(`ACME: certificates.pem ${problem}`);
  }

  /** The files have what another gateway has written, or it is another gateway that orders. */
  #followFleet(): void {
    if (this.#phase !== "started") return;
    const couldOrder = this.#mayOrder;
    this.#mayOrder = this.#fleet!.state.isHolder;
    if (couldOrder && !this.#mayOrder) {
      this.#work?.controller.abort(new GivenUp(this.#whoOrders));
      // Its order is among the files: whoever continues it gets the same certificate.
      this.#isUnstored = false;
    }
    if (!couldOrder) {
      this.#read();
      this.#takeAttempt();
    }
    this.#look();
  }

  /** What the last attempt of any gateway has left. */
  #takeAttempt(): void {
    const left = readAttempt(this.#tools.files);
    const isOurs = left?.directory === this.#settings.directory;
    this.#error = isOurs ? left.error : null;
    this.#hostErrors = isOurs ? left.hosts : new Map();
    if (isOurs) this.#pauses.resume(left.pauses);
    else this.#pauses.forget();
  }

  get #whoOrders(): string {
    const holder = this.#fleet?.state.holder ?? null;
    return holder === null
      ? "no gateway of the fleet orders at present: try again in half a minute, or see acme.fleet in the status"
      : `${holder.name} orders for the fleet: ask its admin interface`;
  }

  configure(settings: AcmeSettings): void {
    const former = this.#settings;
    if (former.directory === settings.directory) this.#pauses.skip();
    else this.#pauses.forget();
    if (JSON.stringify(former) !== JSON.stringify(settings)) {
      this.#settings = settings;
      this.#client.close();
      this.#client = acmeClient(settings, this.#tools.clock, this.#tools.proxy);
      this.#hostErrors = new Map();
      if (this.#work?.doing !== "replacing the key") this.#work?.controller.abort(new GivenUp());
    }
    this.#look();
  }

  async rollover(): Promise<void> {
    if (this.#work?.doing === "asking") await this.#work.done;
    if (this.#phase === "closed") throw new AcmeFailure("the program ends");
    if (!this.#mayOrder) throw new AcmeFailure(this.#whoOrders);
    if (this.#work !== null) throw new AcmeFailure("an order is under way: try again once it has ended");
    const settings = this.#settings;
    await this.#do("replacing the key", async (signal) => {
      await this.#account.rollover(await this.#directory(signal), settings);
      this.#tools.log.info("ACME: the key of the account is replaced", { directory: settings.directory });
    });
  }

  async close(): Promise<void> {
    this.#phase = "closed";
    this.#timer?.cancel();
    this.#work?.controller.abort(new GivenUp());
    this.#fleet?.stop();
    await this.#work?.done;
    // How long whoever orders next has to wait.
    if (this.#mayOrder && this.#error !== null) await this.#keepAttempt();
    await this.#fleet?.close();
    this.#client.close();
  }

  /** Does what is due, or sleeps until something is. */
  #look(): void {
    if (this.#phase !== "started" || this.#work !== null) return;
    this.#timer?.cancel();
    this.#present();
    this.#warnOfEnds();
    const { clock } = this.#tools;
    if (this.#mayOrder && this.#isDue && this.#pauses.leftMs === 0) {
      void this.#do("ordering", (signal) => this.#obtain(signal)).catch((error: unknown) => this.#failed(error));
    } else if (this.#mayOrder && this.#current !== null && this.#renewals.isOld(this.#current)) {
      const current = this.#current;
      void this.#do("asking", (signal) => this.#renewals.ask(current, () => this.#directory(signal))).catch(ignore);
    } else {
      const ms = this.#mayOrder ? Math.min(LOOK_MS, Math.max(1, this.#msToNext)) : LOOK_MS;
      this.#timer = clock.after(ms, () => this.#look());
    }
  }

  /** Whatever it ends with, the next look follows. */
  #do(doing: Doing, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const controller = new AbortController();
    const limit = this.#tools.clock.after(LONGEST_WORK_MS, () =>
      controller.abort(new AcmeFailure(`given up after ${LONGEST_WORK_MS / 60_000} minutes`, { isPassing: true })),
    );
    const outcome = work(controller.signal).catch((error: unknown) => {
      throw controller.signal.aborted ? controller.signal.reason : error;
    });
    const done = outcome.catch(ignore).then(() => {
      limit.cancel();
      this.#work = null;
    });
    this.#work = { doing, controller, done };
    // Behind what the caller makes of the outcome, which is a step less away.
    void done.then(() => this.#look());
    return outcome;
  }

  async #obtain(signal: AbortSignal): Promise<void> {
    const { log } = this.#tools;
    if (this.#isUnstored) await this.#store();
    if (!this.#isRenewalDue) return this.#succeeded();
    const { certificate, failed, failure } = await attempt({
      ...this.#tools,
      settings: this.#settings,
      directory: await this.#directory(signal),
      account: this.#account,
      current: this.#current,
      signal,
      needs: (hosts) => hosts.some((host) => this.#renewsAt(host) <= this.#tools.clock.wall()),
      count: (outcome) => void this.#orders[outcome]++,
    });
    // It may have been given up in the moment in which the attempt ended: its order is still there.
    signal.throwIfAborted();
    this.#hostErrors = failed;
    if (certificate !== null) {
      const all = [certificate, ...this.#certificates];
      const used = new Set(this.#settings.hosts.map((host) => certificateFor(host, all, this.#tools.clock.wall())));
      this.#certificates = all.filter((each) => used.has(each));
      this.#isUnstored = true;
      this.#present();
      const ends = new Date(certificate.chain.notAfter).toISOString();
      log.info("ACME: a certificate is obtained", {
        hosts: this.#settings.hosts.filter((host) => !failed.has(host)),
        ends,
      });
      await this.#store();
    }
    if (failure !== null) throw failure;
    if (failed.size > 0) throw hostsFailure(failed);
    this.#succeeded();
  }

  async #store(): Promise<void> {
    await writeCertificates(this.#tools.files, this.#certificates).catch((error: unknown) => {
      throw new AcmeFailure(`certificates.pem cannot be written: ${messageOf(error)}`);
    });
    await removeOrder(this.#tools.files);
    this.#isUnstored = false;
  }

  #succeeded(): void {
    this.#error = null;
    this.#pauses.succeeded();
    void this.#keepAttempt();
  }

  /** For the fleet. Never rejects: what is lost is a pause. */
  async #keepAttempt(): Promise<void> {
    if (this.#fleet === null) return;
    const { files } = this.#tools;
    const { directory } = this.#settings;
    const error = this.#error;
    const left = { directory, hosts: this.#hostErrors, pauses: this.#pauses.left };
    await writeAttempt(files, error === null ? null : { ...left, error }).catch(ignore);
  }

  #failed(error: unknown): void {
    if (error instanceof GivenUp) return;
    const failure = error instanceof AcmeFailure ? error : new AcmeFailure(messageOf(error));
    this.#error = failure.message;
    this.#pauses.failed(failure, failure.hosts.size > 0 ? "hosts" : "other");
    void this.#keepAttempt();
    const { directory } = this.#settings;
    const next = new Date(this.#tools.clock.wall() + this.#msToNext).toISOString();
    this.#tools.log.warn("ACME: no certificate for all hosts", { directory, error: failure.message, next });
  }

  #directory(signal: AbortSignal): Promise<Directory> {
    return Directory.open({ settings: this.#settings, client: this.#client, clock: this.#tools.clock, signal });
  }

  /** The newest one, where it is of this directory and in use. */
  get #current(): StoredCertificate | null {
    const [newest] = this.#certificates;
    return newest?.directory === this.#settings.directory ? newest : null;
  }

  /** Milliseconds since 1970; -Infinity: at once. */
  #renewsAt(host: string): number {
    const now = this.#tools.clock.wall();
    const certificate = certificateFor(host, this.#certificates, now);
    if (certificate?.directory !== this.#settings.directory || now > certificate.chain.notAfter) return -Infinity;
    return this.#renewals.of(certificate);
  }

  get #firstRenewal(): number {
    return Math.min(...this.#settings.hosts.map((host) => this.#renewsAt(host)));
  }

  get #isRenewalDue(): boolean {
    return this.#firstRenewal <= this.#tools.clock.wall();
  }

  get #isDue(): boolean {
    return this.#isUnstored || this.#isRenewalDue;
  }

  get #msToNext(): number {
    return this.#isDue ? this.#pauses.leftMs : this.#firstRenewal - this.#tools.clock.wall();
  }

  /** Presents for each host the newest certificate that is for it, where that is another than before. */
  #present(): void {
    const now = this.#tools.clock.wall();
    const hostsOf = new Map<StoredCertificate, string[]>();
    for (const host of this.#settings.hosts) {
      const certificate = certificateFor(host, this.#certificates, now);
      if (certificate !== undefined) hostsOf.set(certificate, [...(hostsOf.get(certificate) ?? []), host]);
    }
    const presented = Array.from(hostsOf);
    const former = this.#presented;
    const isSame = ([certificate, hosts]: Presented, i: number) =>
      former?.[i]?.[0] === certificate && former[i][1].join() === hosts.join();
    if (former?.length === presented.length && presented.every(isSame)) return;
    this.#presented = presented;
    const failed = (error: unknown) => {
      this.#presented = null;
      this.#tools.log.error("ACME: certificates cannot be presented", { error: messageOf(error) });
    };
    const issued = presented.map(([{ chain, key }, hosts]) => ({ cert: chain.pem, key, hosts }));
    Promise.resolve(issued)
      .then((all) => (this.#phase === "closed" ? undefined : this.#tools.present(all)))
      .catch(failed);
  }

  #warnOfEnds(): void {
    if (this.#error === null) return;
    const now = this.#tools.clock.wall();
    for (const host of this.#settings.hosts) {
      const certificate = certificateFor(host, this.#certificates, now);
      if (certificate === undefined || this.#warned.has(certificate)) continue;
      const { notAfter } = certificate.chain;
      if (notAfter - now >= WARNED_MS || this.#renewsAt(host) > now) continue;
      this.#warned.add(certificate);
      const ends = new Date(notAfter).toISOString();
      this.#tools.log.warn("ACME: a certificate ends soon, and could not be renewed", {
        host,
        ends,
        error: this.#error,
      });
    }
  }
}

/** The reason of what ends because the keeper is closed, or has other settings. */
class GivenUp extends Error {}

/** The wall clock may be set at any time. */
const LOOK_MS = 30_000;
const LONGEST_WORK_MS = 60 * 60_000;
const WARNED_MS = 14 * 86_400_000;

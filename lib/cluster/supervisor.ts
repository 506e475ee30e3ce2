/**
 * Starts the workers, replaces those that end or hang, and has all of them follow the gateway of the main thread: its
 * reloads, its certificates and its end.
 */
import { randomBytes } from "node:crypto";
import type { Server } from "node:net";
import { Worker } from "node:worker_threads";
import { waitAtMost } from "../base/clock.ts";
import { entry, guardedEmitter } from "../base/event_loop.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { asReplaced, checkedThread } from "../base/own_code.ts";
import { rightsOfThreads } from "../base/rights.ts";
import type { Threads } from "../base/threads.ts";
import type { Bundle, Followers, ReportExtent } from "../gateway/bundle.ts";
import { GatewayCore, type GatewayInternals } from "../gateway/gateway.ts";
import type { BoundAddress } from "../gateway/options.ts";
import { lingerOf } from "../gateway/shutdown.ts";
import { workerReportsOf } from "../report/worker_reports.ts";
import { TICKET_KEY_BYTES, TICKET_KEY_MS } from "../server/tls.ts";
import type { TlsFiles } from "../server/certificates.ts";
import type { Challenge, Issued, IssuedCertificate } from "../server/issued_certificates.ts";
import type { TailBatch, TailReader } from "../observe/tail.ts";
import type { Purge } from "../plugins/cache/purge.ts";
import { addFailures } from "../upstream/shared_health.ts";
import { takenOut, type UpstreamState } from "../upstream/taken_out.ts";
import { Ends, IN_FLIGHT_BYTES } from "./in_flight.ts";
import {
  BEAT_MS,
  beatsOf,
  VERSION,
  waitingLinesOf,
  type Posted,
  type WorkerTask,
  type ToMain,
  type ToWorker,
  type WorkerStart,
} from "./messages.ts";
import { pauseBefore, WorkerSlot, takesRequests, type WorkerAnswer } from "./worker_slot.ts";
import { takePort } from "./ports.ts";

/** The id of the main thread; workers have the following ones. */
const MAIN = 1;
/**
 * Looks without a new beat after which a worker hangs. The looks are counted, and not the time: a process that was
 * stopped hangs as a whole.
 */
const MAX_SILENT_LOOKS = 10;
/**
 * Further looks after which a worker that hangs in a native call, where nothing can end it, is replaced all the same.
 */
const MAX_HANGING_LOOKS = 3;
/** Looks until a new worker has to serve. */
const MAX_START_LOOKS = 60;
/** A worker that is busy for longer is left out of a report. In milliseconds. */
const MAX_COLLECTING_MS = 500;
/** A worker that compiles a configuration for longer takes an upstream out once it is done. In milliseconds. */
const MAX_SETTING_MS = 5_000;
/** How long a worker that is terminated may take. In milliseconds. */
const LAST_MS = 500;
/** How long a worker may take after its grace. In milliseconds. */
const MAX_CLOSING_MS = 3_000;

export interface SupervisorOptions extends Pick<
  WorkerStart,
  "log" | "tracing" | "adminCookie" | "features" | "asked" | "areDurationsSent"
> {
  /** How many workers; at least 2. */
  readonly count: number;
  readonly logger: Log;
  /** Writes a line of a worker's log. */
  readonly write: (line: string) => void;
}

export class Supervisor implements Followers {
  /** For the gateway of the main thread. */
  readonly threads: Threads;
  readonly #options: SupervisorOptions;
  readonly #words: Int32Array;
  readonly #slots: readonly WorkerSlot[];
  #lastId = MAIN;
  /** Of the main thread's gateway. */
  #internals: GatewayInternals | null = null;
  #addresses: readonly BoundAddress[] = [];
  #tls: TlsFiles | null = null;
  #ticketKey = randomBytes(TICKET_KEY_BYTES);
  #isReloading = false;
  /** Ends a start that is in progress. */
  #failStart: ((error: Error) => void) | null = null;
  #isStopAnnounced = false;
  #isClosing = false;
  #waits: { readonly holds: () => boolean; readonly resolve: () => void }[] = [];
  #timers: NodeJS.Timeout[] = [];
  /** See `takePort`. */
  readonly #names: (Server | null)[] = [];
  /** Hang in a native call, and have been replaced. */
  readonly #lost = new Set<Worker>();
  readonly #ends = new Ends();
  /** Null: nobody has read it. */
  #tail: Parameters<Supervisor["showTail"]>[0] | null = null;
  /** How many workers were replaced. */
  restarts = 0;

  constructor(options: SupervisorOptions) {
    const { count } = options;
    this.#options = options;
    this.threads = { id: MAIN, worker: -1, count, memory: (_name, bytes) => new SharedArrayBuffer(bytes) };
    this.#words = new Int32Array(new SharedArrayBuffer((1 + 2 * count) * Int32Array.BYTES_PER_ELEMENT));
    this.#slots = Array.from({ length: count }, (_, index) => new WorkerSlot(index));
  }

  /** How many workers serve. */
  get serving(): number {
    return this.#slots.filter(({ state }) => state === "serving").length;
  }

  /** Resolves once every worker serves. Rejects, and no worker is left, if one cannot. */
  async start(gateway: GatewayCore, addresses: readonly BoundAddress[], tls: TlsFiles | null): Promise<void> {
    const { configuration } = (this.#internals = GatewayCore.internalsOf(gateway));
    const reports = workerReportsOf(this.#internals);
    this.#addresses = addresses;
    this.#tls = tls;
    configuration.followers = this;
    if (reports !== null) reports.tail = (readers, receive) => this.showTail({ readers, receive });
    Atomics.store(this.#words, VERSION, configuration.bundle.version);
    // This interval keeps the program running while no worker does.
    this.#timers = [
      setInterval(
        entry("a look at the workers", () => this.#look()),
        BEAT_MS,
      ),
      setInterval(
        entry("a ticket key", () => this.#renewTicketKey()),
        TICKET_KEY_MS,
      ),
    ];
    try {
      await new Promise<void>((resolve, reject) => {
        this.#failStart = reject;
        for (const slot of this.#slots) this.#spawn(slot);
        void this.#until(() => this.serving === this.#slots.length).then(resolve);
      });
    } catch (error) {
      await this.close(0);
      throw error;
    } finally {
      this.#failStart = null;
    }
  }

  #broadcast(message: ToWorker): void {
    for (const { worker } of this.#slots) worker?.postMessage(message);
  }

  async prepare(bundle: Bundle): Promise<void> {
    // Where none is about to listen, the configuration in force may be the reason, and nothing can judge the new one.
    await this.#until(() => this.#slots.some(takesRequests) || this.#allEnded);
    this.#isReloading = true;
    const answers = await this.#askAll({ type: "prepare", bundle });
    if (answers.length > 0 && answers.every((answer) => answer === "ended"))
      throw new Error("every worker ended while it prepared this configuration");
  }

  /** Asks all workers that listen, or are about to. Rejects when the first of them refuses. */
  #askAll(task: WorkerTask): Promise<WorkerAnswer[]> {
    return Promise.all(this.#slots.filter(takesRequests).map((slot) => slot.ask(task)));
  }

  commit(bundle: Bundle): void {
    Atomics.store(this.#words, VERSION, bundle.version);
    this.#endReload({ type: "commit" }, { type: "replace", bundle });
  }

  abandon(): void {
    this.#endReload({ type: "abandon" }, null);
  }

  /** The second message is for workers that started meanwhile, with the configuration that was in force before. */
  #endReload(message: ToWorker, forNew: ToWorker | null): void {
    this.#isReloading = false;
    for (const slot of this.#slots) {
      const given = takesRequests(slot) ? message : forNew;
      if (given !== null) slot.worker?.postMessage(given);
      if (slot.state === "compiled") this.#listen(slot);
    }
  }

  renewTls(files: TlsFiles): void {
    this.#tls = files;
    this.#broadcast({ type: "tls", files });
  }

  useCertificates(certificates: readonly IssuedCertificate[]): void {
    this.#broadcast({ type: "certificates", certificates });
  }

  async setChallenge(challenge: Challenge, is: "open" | "over"): Promise<void> {
    const task = { type: "challenge", challenge, is } as const;
    const started = this.#slots.filter(({ worker }) => worker !== null);
    // One that does not listen yet does so behind it, as it deals with one message after the other.
    const answers = started.map((slot) => {
      const isWaitedFor = takesRequests(slot);
      const answer = slot.ask(task);
      return isWaitedFor ? answer : null;
    });
    await waitAtMost(Promise.all(answers), MAX_SETTING_MS);
  }

  async collect(extent: ReportExtent): Promise<void> {
    await waitAtMost(this.#askAll({ type: "report", extent }), MAX_COLLECTING_MS);
  }

  async setUpstream(upstream: UpstreamState): Promise<void> {
    await waitAtMost(this.#askAll({ type: "setUpstream", ...upstream }), MAX_SETTING_MS);
  }

  async purge(purge: Purge): Promise<number> {
    let purged = 0;
    const ask = async (slot: WorkerSlot) => {
      const answer = await slot.ask({ type: "purge", purge });
      if (typeof answer === "number") purged += answer;
    };
    await waitAtMost(Promise.all(this.#slots.filter(takesRequests).map(ask)), MAX_SETTING_MS);
    return purged;
  }

  announceStop(): void {
    this.#isStopAnnounced = true;
    this.#broadcast({ type: "announceStop" });
  }

  async close(graceMs: number): Promise<"drained" | "cut"> {
    this.#isClosing = true;
    for (const { respawn } of this.#slots) if (respawn !== null) clearTimeout(respawn);
    for (const slot of this.#slots) if (!takesRequests(slot)) void slot.worker?.terminate();
    const late = setTimeout(
      entry("the end of the workers", () => this.#terminateAll()),
      graceMs + MAX_CLOSING_MS,
    );
    const begunAt = performance.now();
    // All close their ports before one of them asks a client to leave: the client would connect again to a worker that
    // still listens, just as that one closes its port too, and lose its request.
    const lingerMs = lingerOf(graceMs);
    await waitAtMost(this.#askAll({ type: "stopAccepting", lingerMs: lingerMs / 2 }), lingerMs);
    for (const name of this.#names) name?.close(); // Another program may have the ports now.
    this.#broadcast({ type: "close", graceMs: Math.max(0, graceMs - (performance.now() - begunAt)) });
    // A native call of a plugin cannot be ended: the process ends with it.
    if (!this.#allEnded)
      await waitAtMost(
        this.#until(() => this.#allEnded),
        graceMs + MAX_CLOSING_MS + LAST_MS,
      );
    clearTimeout(late);
    for (const timer of this.#timers) clearInterval(timer);
    return this.#slots.some(({ outcome, worker }) => outcome === "cut" || worker !== null) ? "cut" : "drained";
  }

  get alive(): number {
    return this.#lost.size + this.#slots.filter(({ worker }) => worker !== null).length;
  }

  async terminate(): Promise<void> {
    await Promise.all(this.#slots.map(({ worker }) => worker?.terminate()));
  }

  #terminateAll(): void {
    for (const slot of this.#slots)
      void ((slot.reason ??= "it did not end in time, and was terminated"), slot.worker?.terminate());
  }

  showTail(tail: {
    readonly readers: readonly TailReader[];
    readonly receive: (batches: readonly TailBatch[]) => void;
  }): void {
    this.#tail = tail;
    this.#broadcast({ type: "tail", readers: tail.readers });
  }

  #spawn(slot: WorkerSlot): void {
    const { count, log, tracing, adminCookie, features, asked, areDurationsSent } = this.#options;
    const { index } = slot;
    const start: WorkerStart = {
      id: ++this.#lastId,
      worker: index,
      count,
      log,
      tracing,
      adminCookie,
      features,
      asked,
      areDurationsSent,
      bundle: this.#internals!.configuration.bundle,
      words: this.#words,
      addresses: this.#addresses,
      tls: this.#tls,
      issued: this.#issued,
      audit: this.#internals!.audit?.settings ?? null,
      ticketKey: this.#ticketKey,
      inFlight: new SharedArrayBuffer(IN_FLIGHT_BYTES),
      rights: rightsOfThreads(),
    };
    Object.assign(slot, {
      id: start.id,
      inFlight: start.inFlight,
      hasServed: false,
      state: "starting",
      reason: null,
      looks: 0,
      silentLooks: 0,
      respawn: null,
    });
    Atomics.store(this.#words, waitingLinesOf(index, count), 0);
    let worker: Worker;
    try {
      const { first, held } = checkedThread(ENTRY);
      worker = slot.worker = new Worker(first, { workerData: { ...start, ...held }, name: `worker ${index}` });
    } catch (error) {
      // The system may refuse a further thread. Others serve on.
      slot.reason = messageOf(error);
      return void setImmediate(entry("a worker that does not start", () => this.#ended(slot, 1)));
    }
    guardedEmitter(worker).on("message", (posted: Partial<Posted> | null | undefined) => {
      if (posted?.edgeGateway === undefined) return;
      this.#receive(slot, posted.edgeGateway);
      this.#changed();
    });
    worker.on("error", (error) => {
      slot.reason ??= asReplaced(error)?.message ?? messageOf(error, "stack");
    });
    worker.on("exit", (code) => void (this.#lost.delete(worker) || this.#ended(slot, code)));
  }

  /** What the main thread serves of `global.acme`, as its workers have to. */
  get #issued(): Issued | null {
    const { configuration, features, runtime } = this.#internals!;
    if (configuration.snapshot.issued === null) return null;
    const { certificates, challenges } = features.serverTls.issuedIn(runtime);
    return { certificates, challenges };
  }

  /** Resolves once `holds`, which is asked whenever a worker has sent something, is about to listen, or has ended. */
  #until(holds: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      if (holds()) return resolve();
      this.#waits.push({ holds, resolve });
    });
  }

  #changed(): void {
    const waits = this.#waits;
    this.#waits = waits.filter(({ holds }) => !holds());
    for (const wait of waits) if (!this.#waits.includes(wait)) wait.resolve();
  }

  get #allEnded(): boolean {
    return this.#slots.every(({ worker }) => worker === null);
  }

  #receive(slot: WorkerSlot, message: ToMain): void {
    switch (message.type) {
      case "compiled":
        slot.state = "compiled";
        if (this.#failStart !== null) return this.#listenTogether(this.#failStart);
        // During a reload it is not known yet under which configuration the worker is to serve.
        return this.#isReloading ? undefined : this.#listen(slot);
      case "listening":
        slot.state = "serving";
        if (this.#tail !== null)
          slot.worker!.postMessage({ type: "tail", readers: this.#tail.readers } satisfies ToWorker);
        if (this.#failStart === null) this.#options.logger.info("a worker serves again", { worker: slot.index });
        return;
      case "failed":
        slot.reason = message.reason;
        return;
      case "answer":
        return slot.answered(message.ask, message.refusal, message.count);
      case "log":
        Atomics.sub(this.#words, waitingLinesOf(slot.index, this.#slots.length), 1);
        return this.#options.write(message.line);
      case "access":
        return this.#internals!.accessLog.add(message.lines);
      case "audit":
        return this.#internals!.audit!.receive(message, slot.worker!);
      case "report":
        return workerReportsOf(this.#internals!)!.add(slot.index, message.report);
      case "tail":
        return this.#tail?.receive(message.batches);
      case "failures":
        return addFailures(message.failures, (service, id) => this.#internals!.runtime.peer(service, id));
      case "closed":
        slot.outcome = message.outcome;
    }
  }

  /**
   * At the start, once all have compiled. Workers listen on ports that others share, so another program that has
   * started meanwhile is looked for.
   */
  #listenTogether(failed: (error: Error) => void): void {
    if (this.#slots.some(({ state }) => state !== "compiled")) return;
    const listen = () => this.#slots.forEach((slot) => slot.state === "compiled" && this.#listen(slot));
    Promise.all(this.#addresses.map(async (address) => this.#names.push(await takePort(address))))
      .then(listen)
      .catch(failed);
  }

  #listen(slot: WorkerSlot): void {
    slot.state = "asked";
    slot.hasServed = true;
    const { upstreamSets } = this.#internals!.runtime;
    for (const upstream of takenOut(upstreamSets)) void slot.ask({ type: "setUpstream", ...upstream });
    slot.worker!.postMessage({ type: "listen" } satisfies ToWorker);
    if (this.#isStopAnnounced) slot.worker!.postMessage({ type: "announceStop" } satisfies ToWorker);
    this.#changed();
  }

  #ended(slot: WorkerSlot, code: number): void {
    const { index, id, state, hasServed } = slot;
    const { logger } = this.#options;
    const reason = slot.reason ?? `it exited with code ${code}`;
    Object.assign(slot, { worker: null, state: "none" });
    slot.endAsked();
    this.#internals!.runtime.forget(id, index);
    workerReportsOf(this.#internals!)?.forget(index);
    this.#changed();
    if (this.#isClosing) {
      if (state === "serving" && slot.outcome === null)
        logger.error("a worker has ended during the drain", { worker: index, exit_code: code, error: reason });
      if (state === "serving") slot.outcome ??= "cut";
      return;
    }
    if (this.#failStart !== null) return this.#failStart(new Error(`a worker cannot start: ${reason}`));
    // The reason may be a configuration that does not come into force.
    const pauseMs = this.#isReloading && hasServed ? 0 : pauseBefore(slot, this.#slots);
    logger.error("a worker has ended and is replaced", {
      worker: index,
      exit_code: code,
      pause_s: pauseMs / 1_000,
      error: reason,
    });
    const suspects = this.#ends.add(slot.inFlight, performance.now());
    if (suspects !== null) logger.error("was in flight whenever workers ended", { ...suspects });
    this.restarts++;
    if (pauseMs === 0) this.#spawn(slot);
    else
      slot.respawn = setTimeout(
        entry("the start of a worker", () => this.#spawn(slot)),
        pauseMs,
      );
    this.#endWaits();
  }

  /** No slot waits while none serves, unless its worker could not start. */
  #endWaits(): void {
    if (this.serving > 0) return;
    for (const slot of this.#slots) {
      if (slot.respawn === null || !slot.hasServed) continue;
      clearTimeout(slot.respawn);
      this.#options.logger.info("a worker is started before its time, since no other serves", { worker: slot.index });
      this.#spawn(slot);
    }
  }

  /** Ends workers that hang. */
  #look(): void {
    for (const slot of this.#slots) {
      if (slot.worker === null) continue;
      const beats = Atomics.load(this.#words, beatsOf(slot.index));
      slot.looks++;
      slot.silentLooks = beats === slot.beats ? slot.silentLooks + 1 : 0;
      slot.beats = beats;
      if (slot.state === "hanging") {
        if (slot.silentLooks >= MAX_SILENT_LOOKS + MAX_HANGING_LOOKS) {
          // Its connections, and new ones that reach it, hang until the call returns.
          this.#lost.add(slot.worker);
          this.#ended(slot, 1);
        }
        continue;
      }
      if (slot.state === "serving" && slot.silentLooks >= MAX_SILENT_LOOKS) {
        slot.reason = "it does not answer: it gave no sign of life for 10 seconds";
        slot.state = "hanging";
        this.#options.logger.error("a worker hangs and is being ended", { worker: slot.index });
        this.#endWaits();
      } else if (slot.state !== "serving" && slot.looks >= MAX_START_LOOKS)
        slot.reason = "it did not start within 60 seconds";
      else continue;
      void slot.worker.terminate();
    }
  }

  #renewTicketKey(): void {
    this.#ticketKey = randomBytes(TICKET_KEY_BYTES);
    this.#broadcast({ type: "ticketKey", key: this.#ticketKey });
  }
}

/** `worker.ts`, or `worker.js` in the built package. */
const ENTRY = new URL(`./worker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url);

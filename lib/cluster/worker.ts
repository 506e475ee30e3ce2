/**
 * A worker: the thread that serves requests. Does what the main thread asks by message, and reads no file.
 */
import { parentPort, workerData } from "node:worker_threads";
import { systemClock } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { messageOf } from "../base/errors.ts";
import { giveUp } from "../base/rights.ts";
import { createLog, type Log } from "../base/log.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import { asBuffer, received, type ReportExtent } from "../gateway/bundle.ts";
import { answerForThread } from "../gateway/faults.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type * as auditCode from "../gateway/gateway_audit.ts";
import type { AuditTrail, AuditSettings } from "../gateway/options.ts";
import { loadCode, type LoadedFeatures } from "../gateway/loaded_features.ts";
import { freshFeatures } from "../features/load.ts";
import type * as eventsCode from "../observe/audit_events.ts";
import type { Tail, TailReader } from "../observe/tail.ts";
import { cacheStoresOf } from "../report/cache_figures.ts";
import { workerReportsOf } from "../report/worker_reports.ts";
import type { Pair, TlsFiles } from "../server/certificates.ts";
import type { Challenge, IssuedCertificate } from "../server/issued_certificates.ts";
import { Follower } from "./follower.ts";
import { InFlight } from "./in_flight.ts";
import { LineBatch, sentLines } from "./log_lines.ts";
import {
  BEAT_MS,
  beatsOf,
  VERSION,
  waitingLinesOf,
  type NumberedTask,
  type Posted,
  type ToMain,
  type ToWorker,
  type WorkerStart,
} from "./messages.ts";

const start = workerData as WorkerStart;
const { id, worker, count, words, addresses } = start;
const port = parentPort!;
const send = (message: ToMain) => port.postMessage({ edgeGateway: message } satisfies Posted);
const answer = ({ ask }: NumberedTask, refusal: string | null = null, count = 0) =>
  send({ type: "answer", ask, refusal, ...(count > 0 && { count }) });

const logLines = sentLines(words, waitingLinesOf(worker, count), (line) => send({ type: "log", line }));
/** Null: there is no audit log. */
let auditEvents: eventsCode.AuditEvents | null = null;
const accessLines = new LineBatch((lines) => send({ type: "access", lines }));
setInterval(
  entry("a beat", () => void Atomics.add(words, beatsOf(worker), 1)),
  BEAT_MS,
).unref();

/** What the threads share under the configuration that was received last. */
let { memory } = start.bundle;
let tls = start.tls === null ? null : asFiles(start.tls);
const follower = new Follower(received(start.bundle), new InFlight(start.inFlight).watched, () =>
  Atomics.load(words, VERSION),
);
let tail: Tail | null = null;
let isCreated = false;
answerForThread(
  threadLog(),
  (module) => isCreated && GatewayCore.internalsOf(gateway).metrics?.pluginFailed(module),
  (error) => fail(error, "stack"),
);
const gateway = await create().catch((error) => fail(error));
const internals = GatewayCore.internalsOf(gateway);
const { accessLog, configuration, features, listener, runtime } = internals;
const reports = workerReportsOf(internals);
if (tls !== null) listener.tls.useTicketKey(asBuffer(start.ticketKey));
if (start.issued !== null) {
  useCertificates(start.issued.certificates);
  for (const challenge of start.issued.challenges) setChallenge(challenge, "open");
}
runtime.failures!.send = (failures) => send({ type: "failures", failures });
isCreated = true;
process.on("exit", () => {
  accessLog.flush();
  accessLines.flush();
  auditEvents?.flush();
  if (reports !== null) report("counts");
});
send({ type: "compiled" });

let queue = Promise.resolve();
port.on("message", (message: ToWorker) => {
  // The steps of a reload may take long, and the main thread waits for reports.
  if (message.type === "report") {
    report(message.extent);
    return answer(message);
  }
  if (message.type === "audited") return auditEvents?.answered(message.isWritten);
  queue = queue.then(() => obey(message)).catch((error) => fail(error));
});

async function create(): Promise<GatewayCore> {
  const { bundle } = follower;
  const modules = freshFeatures();
  if (start.rights.length > 0) giveUp(start.rights);
  await modules.load(bundle.source, bundle.environment, (path) => bundle.files.get(path)!);
  for (const name of start.features) await modules.loadFeature(name);
  // The main thread compiles the same, and logs it.
  const log = threadLog(() => isCreated && !follower.isCompiling);
  const tracing =
    start.tracing === null ? null : { ...start.tracing, ...(start.tracing.ca && { ca: asBuffer(start.tracing.ca) }) };
  const options = {
    modules,
    environment: bundle.environment,
    log,
    tests: "skip" as const,
    acme: "checked" as const,
    asked: start.asked,
    areDurationsSent: start.areDurationsSent,
    ...(tracing && { tracing }),
    ...(start.audit && { audit: await auditOf(modules, start.audit) }),
    ...(start.adminCookie !== null && { adminCookie: start.adminCookie }),
    accessLog: (lines: string) => accessLines.add(lines),
  };
  const threads = { id, worker, count, memory: sharedMemory };
  return new GatewayCore(options, threads, follower);
}

async function auditOf({ onDemand }: LoadedFeatures, settings: AuditSettings): Promise<AuditTrail> {
  const code = (await loadCode(onDemand.workerAudit)) as typeof auditCode & typeof eventsCode;
  const { AuditEvents, GatewayAudit } = code;
  auditEvents = new AuditEvents((events, lost) => send({ type: "audit", events, lost }));
  return new GatewayAudit(settings, auditEvents);
}

function threadLog(isWritten = () => true): Log {
  const log: Log = createLog({ ...start.log, write: (line) => void (isWritten() && logLines.add(line, log)) });
  return log;
}

function sharedMemory(name: string): ArrayBufferLike {
  const found = memory.get(name);
  if (found === undefined) throw new Error(`the main thread has not asked for the memory "${name}"`);
  return found;
}

async function obey(message: Exclude<ToWorker, { readonly type: "report" | "audited" }>): Promise<void> {
  switch (message.type) {
    case "listen":
      return listen();
    case "prepare":
      return prepare(message);
    case "commit":
      return follower.catchUp(configuration);
    case "abandon":
      return follower.abandon(configuration);
    case "replace":
      memory = message.bundle.memory;
      await follower.prepare(configuration, received(message.bundle));
      return follower.catchUp(configuration);
    case "tls":
      tls = asFiles(message.files);
      return gateway.renewTls(tls);
    case "certificates":
      return useCertificates(message.certificates);
    case "challenge":
      setChallenge(message.challenge, message.is);
      return answer(message);
    case "ticketKey":
      return tls === null ? undefined : listener.tls.useTicketKey(asBuffer(message.key));
    case "setUpstream":
      return setUpstream(message);
    // Not awaited: a reload need not wait for it.
    case "purge":
      return void purged(message);
    case "announceStop":
      return gateway.announceStop();
    case "tail":
      return showTail(message.readers);
    // Not awaited, as the next: a further "close" may shorten the grace.
    case "stopAccepting":
      return void listener.stopAccepting(message.lingerMs).then(() => answer(message));
    case "close":
      void gateway.close(message.graceMs).then(end);
  }
}

async function listen(): Promise<void> {
  for (const { host, port, isSecure } of addresses)
    await gateway.listen({ host, port, ...(isSecure && { tls: tls! }) });
  send({ type: "listening" });
}

function useCertificates(certificates: readonly IssuedCertificate[]): void {
  features.serverTls.issuedIn(runtime).use(certificates.map(({ hosts, ...pair }) => ({ hosts, ...asPair(pair) })));
}

function setChallenge(challenge: Challenge, is: "open" | "over"): void {
  const issued = features.serverTls.issuedIn(runtime);
  const own = challenge.type === "http-01" ? challenge : { ...challenge, pair: asPair(challenge.pair) };
  if (is === "open") issued.present(own);
  else issued.remove(own);
}

async function showTail(readers: readonly TailReader[]): Promise<void> {
  try {
    const { Tail } = await loadCode(features.onDemand.tail);
    tail ??= new Tail(
      systemClock,
      accessLog,
      () => configuration.snapshot.global.accessLog,
      (batches) => send({ type: "tail", batches }),
    );
    tail.readers = readers;
  } catch (error) {
    threadLog().error("the live tail cannot be shown", { error: messageOf(error) });
  }
}

async function setUpstream(asked: Extract<ToWorker, { readonly type: "setUpstream" }>): Promise<void> {
  const { service, id } = asked;
  try {
    const { takeOut } = await loadCode(features.onDemand.takenOut);
    const upstreams = runtime.upstreamsOf(service);
    if (upstreams !== undefined) takeOut(upstreams.upstreamSet, asked, runtime.healthTools.changes);
  } catch (error) {
    threadLog().error("an upstream cannot be taken out", { service, upstream: id, error: messageOf(error) });
  }
  answer(asked);
}

async function purged(asked: Extract<ToWorker, { readonly type: "purge" }>): Promise<void> {
  let count = 0;
  try {
    const { purgeSteps } = await loadCode(features.onDemand.purge);
    count = await inSlices(purgeSteps(cacheStoresOf(runtime), asked.purge), paced());
  } catch (error) {
    threadLog().error("stored replies cannot be purged", { error: messageOf(error) });
  }
  answer(asked, null, count);
}

function report(extent: ReportExtent): void {
  send({ type: "report", report: reports!.take(extent) });
}

async function prepare(asked: Extract<ToWorker, { readonly type: "prepare" }>): Promise<void> {
  const { bundle } = asked;
  memory = bundle.memory;
  try {
    await follower.prepare(configuration, received(bundle));
    answer(asked);
  } catch (error) {
    answer(asked, messageOf(error));
  }
}

function end(outcome: "drained" | "cut"): void {
  send({ type: "closed", outcome });
  process.exit(0);
}

function fail(error: unknown, form: "message" | "stack" = "message"): never {
  send({ type: "failed", reason: messageOf(error, form) });
  process.exit(1);
}

function asFiles(files: TlsFiles): TlsFiles {
  const { cert, key, ca } = files;
  const pair = cert === null ? { cert, key } : asPair({ cert, key });
  return { ...files, ...pair, ca: ca === null ? null : asBuffer(ca) };
}

function asPair({ cert, key }: Pair): Pair {
  return { cert: asBuffer(cert), key: asBuffer(key) };
}

/**
 * Waits for the signal that ends the program, SIGTERM, or SIGINT from a keyboard, and drains the gateway.
 */
import { waitAtMost } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { takeOverSignals } from "./early_signals.ts";
import type { ExitCode } from "./failure.ts";
import type { Started } from "./start.ts";

/** Limit in milliseconds for work that may never end: a name lookup that hangs, output that is not read. */
export const LINGER_MS = 500;

/**
 * Resolves with 0 when `end`, called at the first signal, has finished. A second signal ends the process at once, with
 * 1: `cut` gets half a second for that.
 */
export function untilStopped(
  end: (signal: NodeJS.Signals) => Promise<"drained" | "cut" | void>,
  log: Log,
  cut: () => Promise<unknown> = async () => {},
): Promise<ExitCode> {
  return new Promise((resolve, reject) => {
    let state: "serving" | "ending" | "ending at once" = "serving";
    const stop = async (signal: NodeJS.Signals) => {
      if (state !== "serving") {
        state = "ending at once";
        log.warn(`${signal} again: ending at once`);
        await cut();
        process.exit(1);
      }
      state = "ending";
      const outcome = await end(signal);
      if (state !== "ending") return;
      if (outcome === "cut") log.warn("the grace period is over: requests still in flight were cut off");
      log.info("stopped");
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
      resolve(0);
    };
    const onSignal = (signal: NodeJS.Signals) => void stop(signal).catch(reject);
    // In this order: without any listener Node gives up what has arrived and was not delivered yet.
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
    takeOverSignals();
  });
}

/**
 * Drains a gateway: reports not ready, keeps serving while load balancers notice, stops accepting, and finishes the
 * requests in flight within the grace period.
 */
export async function drain(
  signal: NodeJS.Signals,
  started: Pick<Started, "gateway" | "admin" | "manager" | "probes" | "certificates" | "fleet">,
  settings: Settings,
  log: Log,
): Promise<"drained" | "cut"> {
  const { gateway, admin, manager, probes, certificates, fleet } = started;
  const left = fleet?.leave();
  // What is ordered is taken up by the next start.
  void certificates()?.close();
  if (settings.preStopDelayS > 0) {
    gateway.announceStop();
    log.info(`${signal}: not ready any more, still serving`, {
      in_flight: gateway.inFlight,
      delay_s: settings.preStopDelayS,
    });
    await new Promise((resolve) => setTimeout(resolve, settings.preStopDelayS * 1000));
  }
  const begunAt = performance.now();
  log.info(`${signal}: draining`, { in_flight: gateway.inFlight, grace_s: settings.shutdownGraceS });
  const outcome = await gateway.close(settings.shutdownGraceS * 1000);
  await admin?.close();
  await manager?.close(); // after the others, so that users can watch them drain
  await probes?.close(); // last: a supervisor has to be told "not ready" until the end
  // Before the exit is looked after: etcd has a second for it.
  await left;
  // Else Node cleans up, and waits without end, with a busy core, for writes of HTTP/2 sessions whose peer has broken
  // the protocol.
  process.once("beforeExit", () => process.exit());
  // The last lines may take a second to a collector.
  const lastMs = settings.logsExport === null ? LINGER_MS : 3 * LINGER_MS;
  exitBy(begunAt + settings.shutdownGraceS * 1000, gateway, log, lastMs);
  return outcome;
}

/** Ends the process if something keeps it that cannot be ended, a call of the system until the moment `endsAt`. */
function exitBy(endsAt: number, gateway: GatewayCore, log: Log, lookMs = LINGER_MS): void {
  const look = entry("the exit", () => {
    if (!isKept(gateway)) process.exit(0);
    if (performance.now() >= endsAt) killItself(log);
    exitBy(endsAt, gateway, log);
  });
  setTimeout(look, lookMs).unref();
}

/**
 * The second signal: cuts off what is in flight, so that it is logged and its costs are booked, and ends the workers.
 */
export async function endAtOnce({ gateway }: Pick<Started, "gateway">, log: Log): Promise<void> {
  await waitAtMost(gateway.close(0), LINGER_MS);
  await waitAtMost(
    GatewayCore.internalsOf(gateway).configuration.followers?.terminate() ?? Promise.resolve(),
    LINGER_MS,
  );
  if (isKept(gateway)) await new Promise((resolve) => setTimeout(resolve, LINGER_MS));
  if (isKept(gateway)) killItself(log);
}

/**
 * Whether `process.exit` would wait: for a worker, for a name look-up, or for a call for a file, such as a write to a
 * disk that hangs.
 */
function isKept(gateway: GatewayCore): boolean {
  const isCalling = process
    .getActiveResourcesInfo()
    .some((name) => name === "GetAddrInfoReqWrap" || name.startsWith("FSReq"));
  return isCalling || (GatewayCore.internalsOf(gateway).configuration.followers?.alive ?? 0) > 0;
}

function killItself(log: Log): void {
  log.error("the process is killed, since a call of a plugin, of the disk or a name look-up does not end");
  process.kill(process.pid, "SIGKILL");
}

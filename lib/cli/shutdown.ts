/**
 * Waits for the signal that ends the program, SIGTERM, or SIGINT from a keyboard, and drains the gateway.
 */
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import type { Settings } from "../config/settings.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { ExitCode } from "./failure.ts";

/** Limit in milliseconds for work that may never end: a name lookup that hangs, output that is not read. */
export const LINGER_MS = 500;

/** Resolves with 0 when `end`, called at the first signal, has finished. A second signal ends the process at once, with 1. */
export function untilStopped(end: (signal: NodeJS.Signals) => Promise<void>, log: Log): Promise<ExitCode> {
  return new Promise((resolve, reject) => {
    let isStopping = false;
    const stop = async (signal: NodeJS.Signals) => {
      if (isStopping) {
        log.warn(`${signal} again: ending at once`);
        process.exit(1);
      }
      isStopping = true;
      await end(signal);
      log.info("stopped");
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
      resolve(0);
    };
    const onSignal = (signal: NodeJS.Signals) => void stop(signal).catch(reject);
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
  });
}

interface Drained {
  readonly gateway: Gateway;
  readonly admin: { close(): Promise<unknown> } | null;
  readonly manager: { close(): Promise<unknown> } | null;
  readonly probes: { close(): Promise<unknown> } | null;
}

/**
 * Drains a gateway: reports not ready, keeps serving while load balancers notice, stops accepting, and finishes the requests in flight
 * within the grace period.
 */
export async function drain(signal: NodeJS.Signals, { gateway, admin, manager, probes }: Drained, settings: Settings, log: Log): Promise<void> {
  if (settings.preStopDelayS > 0) {
    gateway.announceStop();
    log.info(`${signal}: not ready any more, still serving`, { in_flight: gateway.inFlight, delay_s: settings.preStopDelayS });
    await new Promise((resolve) => setTimeout(resolve, settings.preStopDelayS * 1000));
  }
  log.info(`${signal}: draining`, { in_flight: gateway.inFlight, grace_s: settings.shutdownGraceS });
  const outcome = await gateway.close(settings.shutdownGraceS * 1000);
  await admin?.close();
  await manager?.close(); // after the others, so that users can watch them drain
  await probes?.close(); // last: a supervisor has to be told "not ready" until the end
  if (outcome === "cut") log.warn("the grace period is over: requests still in flight were cut off");
  setTimeout(entry("the exit", () => process.exit(0)), LINGER_MS).unref();
}

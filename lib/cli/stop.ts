/**
 * Waits for the signal that ends the program: SIGTERM, or SIGINT from a keyboard. What then ends, and in which order, is the verbs' affair.
 */
import type { Log } from "../base/log.ts";
import type { ExitCode } from "./failure.ts";

/** Resolves with 0 when `end`, begun by the first signal, is over. A second signal ends the process at once, with 1. */
export function untilStopped(end: (signal: NodeJS.Signals) => Promise<void>, log: Log): Promise<ExitCode> {
  return new Promise((resolve, reject) => {
    let stopping = false;
    const stop = async (signal: NodeJS.Signals) => {
      if (stopping) {
        log.warn(`${signal} again: ending at once`);
        process.exit(1);
      }
      stopping = true;
      await end(signal);
      log.info("stopped");
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
      resolve(0);
    };
    const onSignal = (signal: NodeJS.Signals) => void stop(signal).catch(reject);
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
  });
}

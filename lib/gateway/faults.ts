/**
 * Attributes faults that no request answers for, by their stacks, to a plugin module or to the gateway; logs and counts
 * them.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { ENTRY_FAULTS, type EntryFault } from "../base/event_loop.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";

/** Called with the name of a plugin module for each of its faults. */
type CountFault = (module: string) => void;

/** Answers for the entries of this thread (`base/event_loop.ts`), until the function returned is called. */
export function answerForEntries(log: Log, count: CountFault): () => void {
  const onFault = (message: unknown) => {
    const fault = message as EntryFault;
    const { error, entry, isAnswered } = fault;
    // There may be several gateways in a process.
    if (isAnswered) return;
    fault.isAnswered = true;
    const [thrower = "gateway"] = framesOf(error);
    if (thrower !== "gateway") logModule(thrower, error, log, count);
    else
      log.error("the gateway failed at an event: what the event belongs to was ended", {
        event: entry,
        error: messageOf(error, "stack"),
      });
  };
  subscribe(ENTRY_FAULTS.name, onFault);
  return () => void unsubscribe(ENTRY_FAULTS.name, onFault);
}

/**
 * The same for all of a program's thread, with its uncaught errors: one whose stack has a frame of a plugin module and
 * none of the gateway is that module's, is logged and counted, and ends nothing. `end` gets every other one. A
 * rejection that is not awaited has passed no frame below the thrower's, so the gateway's frames that called the module
 * do not count.
 */
export function answerForThread(log: Log, count: CountFault, end: (error: unknown) => void): () => void {
  const onUncaught = (error: unknown, origin: "uncaughtException" | "unhandledRejection") => {
    const frames = framesOf(error);
    const [module = "gateway"] = frames;
    if (module === "gateway" || (origin === "uncaughtException" && frames.includes("gateway"))) end(error);
    else logModule(module, error, log, count);
  };
  process.on("uncaughtException", onUncaught);
  const stop = answerForEntries(log, count);
  return () => {
    process.off("uncaughtException", onUncaught);
    stop();
  };
}

function logModule(module: string, error: unknown, log: Log, count: CountFault): void {
  log.error("a plugin module failed outside of a request", { module, error: messageOf(error, "stack") });
  count(module.slice(module.lastIndexOf("/") + 1));
}

/** Of each frame of a stack: the URL of a plugin module, or "gateway"; nothing for all others. */
function framesOf(error: unknown): readonly string[] {
  const frames = messageOf(error, "stack")
    .split("\n")
    .filter((line) => line.startsWith("    at "));
  return frames.flatMap((frame) => MODULE_FRAME.exec(frame)?.[1] ?? (frame.includes(OWN_FILES) ? "gateway" : []));
}

/**
 * See `evaluated` in `module_loader.ts`: modules are named by their path, the beginning of their digest and a number.
 */
const MODULE_FRAME = /(file:\/\/[^\s()]*)\?[0-9a-f]{12}-\d+:\d+:\d+\)?$/;
/** "file:///usr/lib/node_modules/edge-gateway/dist/lib/" */
const OWN_FILES = new URL("..", import.meta.url).href;

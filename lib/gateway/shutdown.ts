/**
 * Ends a gateway: announces the stop, drains what is in flight, cuts off the rest, and closes every part in turn.
 */
import type { Duplex } from "node:stream";
import { LONGEST_TIMER_MS, waitAtMost } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { answerForEntries } from "./faults.ts";
import type { GatewayInternals } from "./internals.ts";

/** How long `close` keeps idle connections open for a request that is already on its way. In milliseconds. */
const IDLE_LINGER_MS = 1_000;
/** The same for a `close` with this grace: at most half of it. */
export const lingerOf = (graceMs: number) => Math.min(IDLE_LINGER_MS, graceMs / 2);
/** Plugins that never answer, or never close what they hold, must not delay `close` for ever. In milliseconds. */
const MAX_CUTTING_MS = 1_000;

export class Shutdown {
  readonly #internals: GatewayInternals;
  /** Both ends of every upgraded connection: in a host's own server nothing else closes them. */
  readonly #tunnels = new Set<Duplex>();
  #closing: Promise<"drained" | "cut"> | null = null;
  #stopAnswering: (() => void) | null = null;
  /** Ends the grace of a `close` that has begun. */
  #cut = () => {};

  constructor(internals: GatewayInternals) {
    this.#internals = internals;
  }

  /** Throws when no more requests are accepted. */
  checkOpen(): void {
    const { state } = this.#internals.listening;
    if (state === "draining" || state === "closed") throw new Error("the gateway is being closed");
  }

  /** From now to its end the gateway answers for faults at the entries into its code. */
  answerForEntries(): void {
    this.#stopAnswering ??= answerForEntries(this.#internals.log, (module) =>
      this.#internals.metrics?.pluginFailed(module),
    );
  }

  /** To be closed at the end. */
  addTunnel(...ends: readonly Duplex[]): void {
    for (const end of ends) {
      this.#tunnels.add(end);
      end.once("close", () => this.#tunnels.delete(end));
    }
  }

  /** See `Gateway.announceStop`. */
  announce(): void {
    const { configuration, listener, listening } = this.#internals;
    if (listening.state !== "serving") return;
    listening.state = "stopping";
    listener.announceStop();
    configuration.followers?.announceStop();
  }

  /** See `Gateway.close`. */
  close(graceMs: number): Promise<"drained" | "cut"> {
    const { followers } = this.#internals.configuration;
    // The workers drain and cut; this thread has to outlive them.
    const following = followers?.close(graceMs) ?? Promise.resolve("drained");
    this.#closing ??= this.#close(lingerOf(graceMs), following);
    // A timer of its own, not the clock's: those let the process end, and it must not before the grace is over.
    const timer =
      followers === null
        ? setTimeout(
            entry("the end of the grace", () => this.#cut()),
            Math.min(graceMs, LONGEST_TIMER_MS),
          )
        : undefined;
    return this.#closing.finally(() => clearTimeout(timer));
  }

  async #close(lingerMs: number, following: Promise<"drained" | "cut">): Promise<"drained" | "cut"> {
    const { configuration, listener, listening, requests, runtime, accessLog, spans } = this.#internals;
    listening.state = "draining";
    const expired = new Promise<"cut">((resolve) => {
      this.#cut = () => resolve("cut");
    });
    const drained = Promise.all([following, listener.drain(lingerMs), requests.untilNone()]).then(
      ([outcome]) => outcome,
    );
    const outcome = await Promise.race([drained, expired]);
    listening.state = "closed";
    configuration.close();
    requests.close();
    listener.destroy();
    for (const end of this.#tunnels) end.destroy();
    // Two event loop turns later the disconnects are processed: those requests are logged as cancelled, not as upstream
    // failures.
    if (outcome === "cut") for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve));
    runtime.destroy();
    // Requests that were cut off end a moment later, and belong in the logs.
    if (outcome === "cut") await waitAtMost(requests.untilNone(), MAX_CUTTING_MS);
    // Together: each of them may wait for a collector for a second.
    const exported = Promise.all([
      spans === null ? undefined : waitAtMost(spans.close(), MAX_CUTTING_MS),
      this.#internals.reporting?.close(),
    ]);
    const logged = waitAtMost(accessLog.close(), MAX_CUTTING_MS);
    await waitAtMost(runtime.closePluginState(), MAX_CUTTING_MS);
    // A slow disk is waited for: what it does not get is lost.
    await runtime.state?.close();
    await logged;
    await exported;
    this.#internals.reports?.close();
    this.#stopAnswering?.();
    return outcome;
  }
}

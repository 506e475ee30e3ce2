/**
 * What workers report of upstreams to the main thread, which decides about their health: see `PublishedHealth`.
 */
import { entry } from "../base/event_loop.ts";
import type { UpstreamFailures } from "./contracts.ts";

/**
 * In the main thread: failures that a worker reports. `find` returns undefined for an upstream that is no longer
 * configured.
 */
export function addFailures(
  failures: readonly UpstreamFailures[],
  find: (service: string, id: string) => { readonly health: { countFailure(reason: string): void } } | undefined,
): void {
  for (const { service, upstream, count, reason } of failures) {
    const peer = find(service, upstream);
    for (let i = 0; i < count; i++) peer?.health.countFailure(reason);
  }
}

/**
 * Collects the failures of one turn of the event loop: an upstream that is down may fail thousands of requests in a
 * second.
 */
export class FailureReports {
  /** Sends them to the main thread. */
  send: (failures: readonly UpstreamFailures[]) => void = () => {};
  readonly #waiting = new Map<string, UpstreamFailures>();

  add(service: string, upstream: string, reason: string): void {
    if (this.#waiting.size === 0) setImmediate(entry("failures of upstreams", () => this.#flush()));
    const key = JSON.stringify([service, upstream]);
    const count = (this.#waiting.get(key)?.count ?? 0) + 1;
    this.#waiting.set(key, { service, upstream, count, reason });
  }

  #flush(): void {
    const failures = [...this.#waiting.values()];
    this.#waiting.clear();
    this.send(failures);
  }
}

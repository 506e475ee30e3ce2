/**
 * Figures of one caller, which nothing counts: they are made of the remembered requests when somebody asks. Event
 * streams are in their times, since a remembered request does not tell them from others.
 */
import { listDecisions, MAX_LOOKED } from "./decision_list.ts";
import { Recent } from "./metrics.ts";
import type { Metrics } from "./metrics_plan.ts";
import { figures, Sum, type Figures } from "./stats.ts";

const MINUTE_MS = 60_000;

type Remembered = Pick<Metrics, "decisions" | "inForce">;

/** Of the requests that ended since then, as far as one list looks back. */
export async function countsOfCaller(
  metrics: Remembered,
  caller: string,
  { since, stepMs }: { readonly since: number; readonly stepMs: number },
): Promise<{
  /** When the oldest request that was looked at ended, of whichever caller; null: there was none. */
  readonly since: number | null;
  /** Whether others have ended since then that were not looked at. */
  readonly isCut: boolean;
  /** By the number of the step since 1970. */
  readonly steps: ReadonlyMap<number, Recent>;
}> {
  const steps = new Map<number, Recent>();
  const question = { filter: { caller }, since, until: Infinity, before: null, limit: 1 };
  const list = await listDecisions(metrics, question, ({ time, status, code, ms }) => {
    const step = Math.floor(Date.parse(time) / stepMs);
    const recent = steps.get(step) ?? new Recent();
    steps.set(step, recent);
    recent.count(status !== null && status >= 500, code === "rate_limited", status === 101 ? null : ms, status);
  });
  const isCut = list !== null && list.looked >= MAX_LOOKED;
  return { since: list?.since == null ? null : Date.parse(list.since), isCut, steps };
}

/** Of the last minute, or since the start if that is later. `uptimeMs`: since the start. */
export async function minuteOfCaller(
  metrics: Remembered,
  caller: string,
  { now, uptimeMs }: { readonly now: number; readonly uptimeMs: number },
): Promise<Omit<Figures, "inFlight">> {
  const windowMs = Math.min(MINUTE_MS, Math.max(uptimeMs, 1_000));
  const { since, isCut, steps } = await countsOfCaller(metrics, caller, { since: now - windowMs, stepMs: Infinity });
  // With very many requests those that can be looked at are of less time.
  const lookedMs = isCut && since !== null ? Math.max(1, now - since) : windowMs;
  const { inFlight: _, ...rest } = figures(new Sum().include(steps.get(0) ?? new Recent(), 0), lookedMs / 1_000);
  return rest;
}

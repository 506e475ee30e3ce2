/**
 * Answers `GET /gateway/figures`: the history of all requests, or of those of a service, a route, an upstream or a
 * caller.
 */
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { compressed } from "../http/content_coding.ts";
import { problem, type Reply } from "../http/reply.ts";
import { countsOfCaller } from "../observe/caller_figures.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import { FIELDS, seriesKey, SHARES, SPANS, type FigureHistory, type SpanName } from "../report/figure_history.ts";
import type { Inbound } from "../server/inbound.ts";
import { json, queryOf } from "./replies.ts";
import { view, type InterfaceOptions } from "./views.ts";

export { FigureHistory } from "../report/figure_history.ts";

interface FiguresQuestion {
  readonly span: SpanName;
  readonly service?: string;
  readonly caller?: string;
  readonly what?: "route" | "upstream";
  readonly name?: string;
}

export async function figuresRequest(
  { call, target, headers }: Inbound,
  { gateway, refresh, clock }: Pick<InterfaceOptions, "gateway" | "refresh" | "clock">,
): Promise<Reply> {
  const question = readFiguresQuestion(target);
  if (typeof question === "string") return problem(call, "request_invalid", { detail: question });
  const history = await ReportedGateway.reportingOf(gateway as ReportedGateway).openHistory!();
  await refresh("counts");
  // Reading the statistics ends their steps that are over.
  gateway.recentStats("total");
  const { metrics } = GatewayCore.internalsOf(gateway as ReportedGateway);
  const found =
    question.caller === undefined
      ? figuresOf(history, question, metrics!.services)
      : await figuresOfCaller(history, question.span, question.caller, metrics!, clock.wall());
  return found === null
    ? problem(call, "route_not_found", { detail: "The configuration has no such service, route or upstream." })
    : compressed(json(200, found), headers);
}

/** A sentence if it asks for something impossible. */
export function readFiguresQuestion(target: string): FiguresQuestion | string {
  const query = queryOf(target);
  const [service, route, upstream, caller] = ["service", "route", "upstream", "caller"].map(
    (name) => query.get(name) ?? undefined,
  );
  const span = query.get("span") ?? "15m";
  if (!Object.hasOwn(SPANS, span)) return `"span" must be one of ${Object.keys(SPANS).join(", ")}.`;
  if (route !== undefined && upstream !== undefined) return 'Ask for a "route" or for an "upstream", not for both.';
  const [what, name] = route !== undefined ? (["route", route] as const) : (["upstream", upstream] as const);
  if (name !== undefined && service === undefined) return `"${what}" needs "service".`;
  if (caller !== undefined && (service ?? name) !== undefined) return 'Ask for a "caller" alone.';
  return {
    span: span as SpanName,
    ...(caller !== undefined && { caller }),
    ...(service !== undefined && { service }),
    ...(name !== undefined && { what, name }),
  };
}

/** Null: there is no such service, route or upstream, and was none. */
export function figuresOf(
  history: FigureHistory,
  { span, service, what, name }: FiguresQuestion,
  services: Metrics["services"],
) {
  const {
    since,
    ended: { [span]: last },
    isFull,
    reloads,
  } = history;
  const series = history.series.get(seriesKey(service, what, name));
  const known = service === undefined ? null : services.get(service);
  if (
    series === undefined &&
    known !== null &&
    (known === undefined || (name !== undefined && !known[`${what!}s`].has(name)))
  )
    return null;
  const { steps } = SPANS[span];
  const begin = series?.since ?? since;
  const recorded = series !== undefined || !isFull;
  return historyOf(span, { since: begin, recorded, reloads }, recorded ? last : -1, (step) => {
    const slot = series?.rings[span].slots.subarray((step % steps) * FIELDS, (step % steps) * FIELDS + FIELDS);
    return slot?.[0] === step ? slot.subarray(1) : [];
  });
}

/** Of the remembered requests: nothing else counts callers. */
async function figuresOfCaller(
  { reloads }: Pick<FigureHistory, "reloads">,
  span: SpanName,
  caller: string,
  metrics: Metrics,
  now: number,
) {
  const { stepMs, steps } = SPANS[span];
  const last = Math.floor(now / stepMs) - 1;
  const counts = await countsOfCaller(metrics, caller, { since: (last - steps + 1) * stepMs, stepMs });
  return historyOf(span, { since: counts.since, recorded: true, reloads }, last, (step) => {
    const recent = counts.steps.get(step);
    if (recent === undefined) return [];
    return [
      recent.requests,
      recent.errors,
      recent.limited,
      ...SHARES.map((share) => (recent.quantile(share) ?? 0) * 1_000),
    ];
  });
}

/** `valuesOf`: those of a step as a slot of the history has them behind its number. */
function historyOf(
  span: SpanName,
  facts: { readonly since: number | null; readonly recorded: boolean; readonly reloads: FigureHistory["reloads"] },
  last: number,
  valuesOf: (step: number) => Iterable<number>,
) {
  const { stepMs, steps } = SPANS[span];
  const points = [];
  const first = Math.max(Math.floor((facts.since ?? Infinity) / stepMs), last - steps + 1);
  for (let step = first; step <= last; step++) {
    const [requests = 0, errors = 0, limited = 0, ...times] = valuesOf(step);
    const [p50Ms, p95Ms, p99Ms] = [0, 1, 2].map((place) => (times[place] ?? 0) / 1_000 || null);
    points.push({ at: step * stepMs, requests, errors, limited, p50Ms, p95Ms, p99Ms });
  }
  return view({ stepS: stepMs / 1000, ...facts, points });
}

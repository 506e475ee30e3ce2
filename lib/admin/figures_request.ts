/**
 * Answers `GET /gateway/figures`: the history of all requests, or of those of a service, a route or an upstream.
 */
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { compressed } from "../http/content_coding.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Metrics } from "../observe/metrics_plan.ts";
import { FIELDS, seriesKey, SPANS, type FigureHistory, type SpanName } from "../report/figure_history.ts";
import type { Inbound } from "../server/inbound.ts";
import { json, queryOf } from "./replies.ts";
import { view, type InterfaceOptions } from "./views.ts";

export { FigureHistory } from "../report/figure_history.ts";

interface FiguresQuestion {
  readonly span: SpanName;
  readonly service?: string;
  readonly what?: "route" | "upstream";
  readonly name?: string;
}

export async function figuresRequest(
  { call, target, headers }: Inbound,
  { gateway, refresh }: Pick<InterfaceOptions, "gateway" | "refresh">,
): Promise<Reply> {
  const question = readFiguresQuestion(target);
  if (typeof question === "string") return problem(call, "request_invalid", { detail: question });
  const history = await ReportedGateway.reportingOf(gateway as ReportedGateway).openHistory!();
  await refresh("counts");
  // Reading the statistics ends their steps that are over.
  gateway.recentStats("total");
  const { metrics } = GatewayCore.internalsOf(gateway as ReportedGateway);
  const found = figuresOf(history, question, metrics!.services);
  return found === null
    ? problem(call, "route_not_found", { detail: "The configuration has no such service, route or upstream." })
    : compressed(json(200, found), headers);
}

/** A sentence if it asks for something impossible. */
export function readFiguresQuestion(target: string): FiguresQuestion | string {
  const query = queryOf(target);
  const [service, route, upstream] = ["service", "route", "upstream"].map((name) => query.get(name) ?? undefined);
  const span = query.get("span") ?? "15m";
  if (!Object.hasOwn(SPANS, span)) return `"span" must be one of ${Object.keys(SPANS).join(", ")}.`;
  if (route !== undefined && upstream !== undefined) return 'Ask for a "route" or for an "upstream", not for both.';
  const [what, name] = route !== undefined ? (["route", route] as const) : (["upstream", upstream] as const);
  if (name !== undefined && service === undefined) return `"${what}" needs "service".`;
  return {
    span: span as SpanName,
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
  const { stepMs, steps } = SPANS[span];
  const begin = series?.since ?? since;
  const recorded = series !== undefined || !isFull;
  const points = [];
  if (begin !== null && recorded) {
    for (let step = Math.max(Math.floor(begin / stepMs), last - steps + 1); step <= last; step++) {
      const slot = series?.rings[span].slots.subarray((step % steps) * FIELDS, (step % steps) * FIELDS + FIELDS);
      const [requests = 0, errors = 0, limited = 0, ...times] = slot?.[0] === step ? slot.subarray(1) : [];
      const [p50Ms, p95Ms, p99Ms] = [0, 1, 2].map((place) => (times[place] ?? 0) / 1_000 || null);
      points.push({ at: step * stepMs, requests, errors, limited, p50Ms, p95Ms, p99Ms });
    }
  }
  return view({ stepS: stepMs / 1000, since: begin, recorded, points, reloads });
}

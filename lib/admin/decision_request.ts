/**
 * Answers `GET /gateway/requests`, the remembered requests that fit a query, and `GET /gateway/requests/{id}`: what
 * became of one of them. Its id is percent-encoded.
 */
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { timeOf } from "../config/validity_fields.ts";
import { compressed } from "../http/content_coding.ts";
import { problem, type Reply } from "../http/reply.ts";
import { listDecisions, type ListQuestion } from "../observe/decision_list.ts";
import { readRequestFilter } from "../observe/request_filter.ts";
import type { Inbound } from "../server/inbound.ts";
import { askedOf, json, queryOf } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 500;

export async function decisionsRequest(
  { call, target, headers }: Inbound,
  { gateway }: Pick<InterfaceOptions, "gateway">,
): Promise<Reply> {
  const question = readListQuestion(target);
  if (typeof question === "string") return problem(call, "request_invalid", { detail: question });
  const { metrics } = GatewayCore.internalsOf(gateway as ReportedGateway);
  const list = await listDecisions(metrics!, question);
  if (list !== null) return compressed(json(200, list), headers);
  const detail = `The request of "before" is not remembered any more, nor is any before it. Begin again without it.`;
  return problem(call, "route_not_found", { detail, members: { before: question.before } });
}

/** A sentence if it asks for something impossible. */
function readListQuestion(target: string): ListQuestion | string {
  const query = queryOf(target);
  const filter = readRequestFilter(query, ["since", "until", "before", "limit"]);
  if (typeof filter === "string") return filter;
  const limit = query.get("limit") ?? String(DEFAULT_LIMIT);
  if (!/^[1-9]\d{0,2}$/.test(limit) || Number(limit) > MAX_LIMIT)
    return `"limit" must be a whole number from 1 to ${MAX_LIMIT}.`;
  const [since, until] = [timeIn(query, "since", -Infinity), timeIn(query, "until", Infinity)];
  if (since === null || until === null)
    return '"since" and "until" must be times such as 2027-01-31T12:00:00Z (RFC 3339).';
  return { filter, since, until, before: query.get("before"), limit: Number(limit) };
}

/** In milliseconds since 1970; null if it is no time. */
function timeIn(query: URLSearchParams, name: string, absent: number): number | null {
  const text = query.get(name);
  return text === null ? absent : timeOf(text);
}

export async function decisionRequest(
  prefix: string,
  inbound: Inbound,
  { gateway }: Pick<InterfaceOptions, "gateway">,
): Promise<Reply> {
  const id = decoded((askedOf(inbound) as { readonly path: string }).path.slice(prefix.length));
  const decision = await gateway.decision(id);
  if (decision !== null) return json(200, decision);
  const detail = "No request with this id is remembered: it may be older than those that global.decisions keeps.";
  // The id tells this reply from that to an unknown path, which is what older versions give.
  return problem(inbound.call, "route_not_found", { detail, members: { id } });
}

/** "", which is no id, if it is not percent-encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

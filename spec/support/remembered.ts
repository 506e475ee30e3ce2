/** Decisions in memory, and requests that end: for specs of what becomes of them. */
import { pluginPath } from "../../lib/config/plugin_place.ts";
import { Call, type Notes } from "../../lib/http/exchange.ts";
import type { RequestFacts } from "../../lib/http/request_facts.ts";
import { findDecision, followDecisions } from "../../lib/observe/decision_reader.ts";
import { Decisions } from "../../lib/observe/decisions.ts";
import { Metrics } from "../../lib/observe/metrics_plan.ts";
import { manualClock } from "./clock.ts";
import { requestFacts } from "./request_facts.ts";

export const DIGEST = "0123456789ab";
export const SERVICE = { name: "shop", upstreams: [{ id: "a" }, { id: "b" }], routes: [{ name: "items" }] };

const scope = (name: string, id: string | undefined, nth = 0) => {
  const key = JSON.stringify(["route", "shop", "items", name, id ?? nth]);
  return { key, path: pluginPath({ service: "shop", route: "items" }, id ?? name, nth) };
};
export const KEYS = scope("key_auth", "1");
export const CACHE = scope("response_cache", undefined);
export const LIMIT = scope("rate_limit", undefined, 1);

/** `count`: as `global.decisions`. */
export function remembering(count: number | undefined = 100, memory = new Map<string, SharedArrayBuffer>()) {
  const clock = manualClock();
  const metrics = new Metrics(new Decisions(clock));
  const shared = (name: string, bytes: number) => {
    if (!memory.has(name)) memory.set(name, new SharedArrayBuffer(bytes));
    return memory.get(name)!;
  };
  const apply = (kept?: number) => {
    const plan = metrics.plan(kept, shared, new Set([KEYS.key, CACHE.key, LIMIT.key]));
    plan.service(SERVICE);
    plan.apply();
  };
  const reload = (kept?: number) => {
    const follow = followDecisions(metrics, clock);
    apply(kept);
    return follow();
  };
  apply(count);
  const end = (id: string, facts: Partial<RequestFacts> = {}, notes: Partial<Notes> = {}, isAborted = false) => {
    const call = new Call({
      id,
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: clock.now() - 5,
      inform: () => {},
    });
    Object.assign(call.notes, { status: 200, digest: DIGEST, ...notes });
    if (isAborted) call.abort();
    metrics.decisions!.add(requestFacts(call, facts), clock.now());
  };
  const find = (id: string) => findDecision(metrics, id);
  return { metrics, clock, memory, reload, end, find };
}

/** `from`: by the clock. */
export const tried = (
  upstream: string,
  status: number | null,
  ms: number,
  before: Notes["tried"] = null,
  from = 0,
) => ({
  upstream,
  status,
  from,
  ms,
  before,
});

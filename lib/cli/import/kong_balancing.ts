/**
 * Imports how an upstream of Kong distributes requests over its targets.
 */
import { TOKEN } from "../../base/http_grammar.ts";
import type { SourceValue } from "./source_value.ts";

/** The settings of a service. `isWeighted`: its targets have different weights. */
export function balancing(upstream: SourceValue, isWeighted: boolean): Readonly<Record<string, unknown>> {
  const algorithm = upstream.ignore("slots").text("algorithm") ?? "round-robin";
  const inTurn = { load_balancing_strategy: isWeighted ? "weighted" : "round_robin" };
  if (algorithm === "least-connections") return { load_balancing_strategy: "least_connections" };
  if (algorithm === "consistent-hashing") return hashing(upstream) ?? inTurn;
  if (algorithm === "sticky-sessions") return { ...inTurn, ...sticky(upstream) };
  if (algorithm !== "round-robin")
    upstream
      .get("algorithm")
      .note(
        `"${algorithm}" is not carried over: the service has load_balancing_strategy ` +
          `"${inTurn.load_balancing_strategy}"`,
      );
  return inTurn;
}

/** Undefined if there is no counterpart, which is noted. */
function hashing(upstream: SourceValue): Readonly<Record<string, unknown>> | undefined {
  const on = upstream.text("hash_on") ?? "none";
  const fallback = upstream
    .ignore("hash_fallback_header", "hash_fallback_query_arg", "hash_fallback_uri_capture")
    .get("hash_fallback");
  if ((fallback.text() ?? "none") !== "none")
    fallback.note("is not carried over: requests without the value go to each upstream in turn");
  if (on === "ip") return { load_balancing_strategy: "ip_hash" };
  if (on === "consumer") return hashOn("credential");
  if (on === "header") return hashOn(named(upstream, "header"));
  if (on === "cookie") return hashOn(cookie(upstream));
  const remedy = on === "uri_capture" ? ": use a placeholder in the path of the route, and hash on param:<name>" : "";
  upstream
    .ignore("hash_on_query_arg", "hash_on_uri_capture")
    .get("hash_on")
    .note(`"${on}" is not carried over: requests go to each upstream in turn${remedy}`);
  return undefined;
}

function hashOn(text: string | undefined): Readonly<Record<string, unknown>> | undefined {
  return text === undefined ? undefined : { load_balancing_strategy: "hash", hash_on: text };
}

function cookie(upstream: SourceValue): string | undefined {
  const text = named(upstream.ignore("hash_on_cookie_path"), "cookie");
  if (text !== undefined)
    upstream
      .get("hash_on_cookie")
      .note(
        "Kong sets this cookie where a client has none: here the upstream has to, " +
          'or use "sticky" of the service instead',
      );
  return text;
}

/** "header:X-Tenant"; undefined if the name is missing or none. */
function named(upstream: SourceValue, kind: "header" | "cookie"): string | undefined {
  const place = upstream.get(`hash_on_${kind}`);
  const name = place.text() ?? "";
  if (TOKEN.test(name)) return `${kind}:${name}`;
  place.note(`is not the name of a ${kind}: requests go to each upstream in turn`);
  return undefined;
}

function sticky(upstream: SourceValue): object {
  const place = upstream
    .ignore("sticky_sessions_cookie_path", "hash_on", "hash_fallback")
    .get("sticky_sessions_cookie");
  const name = place.text() ?? "";
  if (TOKEN.test(name) && name.length <= 200 && !/^__Host-/i.test(name)) return { sticky: { cookie: name } };
  place.note('is no name that the cookie can have: it is "route"');
  return { sticky: {} };
}

/**
 * The listener for probes and scrapers: `/healthz`, `/readyz`, `/metrics` and `/jwks.json` on a port of its own,
 * without a login.
 */
import type { Readable } from "node:stream";
import { allowedHosts, HOST_NOT_ALLOWED } from "../operator/allowed_hosts.ts";
import { hasHeader } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { createOperatorServer, type OperatorServer } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import { askedOf, hasMetricsToken, json, METRICS_TYPE, NO_STORE, readiness } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

/** /metrics requires the token if there is one, else one of the host names. */
export interface ProbesOptions extends Pick<InterfaceOptions, "metricsToken" | "hosts" | "clock" | "log"> {
  /** Whether new requests should come here. */
  readonly ready: () => boolean;
  /** All metrics in Prometheus' text format. */
  readonly metrics: () => Readable | Promise<Readable>;
  /** The public keys of plugins that sign tokens (RFC 7517); none: there is no such plugin. */
  readonly jwks?: () => readonly object[];
}

export function createProbes({
  ready,
  metrics,
  jwks = () => [],
  metricsToken,
  hosts,
  clock,
  log,
}: ProbesOptions): OperatorServer {
  const isKnownHost = allowedHosts(hosts);
  const answers: Readonly<Record<string, (inbound: Inbound, authority: string) => Reply | Promise<Reply>>> = {
    "/healthz": () => ALIVE,
    "/readyz": () => readiness(ready()),
    "/metrics": async ({ call, headers }, authority) => {
      // A page in a browser of this machine has no token, but could read without one what a name of its own leads to
      // (DNS rebinding).
      if (metricsToken === null && !isKnownHost(authority))
        return problem(call, "misdirected", { detail: HOST_NOT_ALLOWED });
      if (metricsToken === null || hasMetricsToken(headers, metricsToken))
        return { status: 200, headers: ["Content-Type", METRICS_TYPE], body: await metrics() };
      return problem(call, "unauthenticated", { detail: "Send METRICS_TOKEN as a bearer token.", headers: CHALLENGE });
    },
  };
  const answer = (inbound: Inbound): Reply | Promise<Reply> => {
    const { call, method } = inbound;
    const asked = askedOf(inbound);
    if ("status" in asked) return asked;
    const { path, authority } = asked;
    const keys = path === "/jwks.json" ? jwks() : [];
    // No property of Object.prototype starts with a slash.
    const found = keys.length > 0 ? () => json(200, { keys }, KEPT_A_WHILE) : answers[path];
    if (found === undefined)
      return problem(call, "route_not_found", {
        detail: "This port has /healthz, /readyz and /metrics, and /jwks.json where a plugin signs tokens.",
      });
    return method === "GET" || method === "HEAD"
      ? found(inbound, authority)
      : problem(call, "method_not_allowed", {
          detail: "This path accepts GET, HEAD.",
          headers: ["Allow", "GET, HEAD"],
        });
  };
  const serve = async (inbound: Inbound): Promise<Reply> => {
    const reply = await answer(inbound);
    return hasHeader(reply.headers, "cache-control") ? reply : { ...reply, headers: [...NO_STORE, ...reply.headers] };
  };
  return createOperatorServer({ clock, log, tls: null, serve, endStreams() {}, maxBodyBytes: 0 });
}

/** A new key is published before it signs: see `docs/plugins/identity_token.md`. */
const KEPT_A_WHILE = ["Cache-Control", "public, max-age=300", "X-Content-Type-Options", "nosniff"];
const ALIVE = json(200, { status: "ok" });
const CHALLENGE = ["WWW-Authenticate", 'Bearer realm="edge-gateway metrics"'];

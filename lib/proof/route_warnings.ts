/**
 * Writes the warnings about routes: those that get no requests, and those whose guards a request can pass by.
 */
import type { BypassReason, Taker } from "../route/overlaps.ts";
import type { SampleRequest } from "../route/sample_requests.ts";
import { describePlace } from "../gateway/plugin_error.ts";
import type { ConfigWarning } from "../gateway/status.ts";
import { IDEMPOTENT } from "../base/http_grammar.ts";
import type { RouteProof, Samples } from "./proven_routes.ts";
import { exampleOf, type WrittenRoute } from "./written.ts";

/** How many other routes the warning about an unreachable route names. */
const MAX_NAMED = 3;

export function ofRoutes({ unreachable, bypasses }: RouteProof): readonly ConfigWarning[] {
  return [
    ...unreachable.map(({ target, takers, request }) => {
      const others =
        takers.slice(0, MAX_NAMED).map(nameOf).join(", ") + (takers.length > MAX_NAMED ? " and others" : "");
      const together = takers.some(({ route }) => route.match !== undefined)
        ? ", together with the other routes of its path,"
        : "";
      const message =
        `No request reaches ${nameOf(target)}: ${others}${together} ${takers.length === 1 ? "takes" : "take"} ` +
        `all that its path matches.`;
      return warning(
        "route_unreachable",
        target,
        message,
        request,
        "Remove the route, or give it a path, methods, hosts or conditions (match) that no other route takes",
      );
    }),
    ...bypasses.flatMap(({ target, takers }) =>
      takers.map((taker) => {
        const { reason, request } = taker;
        const begin =
          reason === "upstream"
            ? `What ${nameOf(target)} leads to can be reached without its guards`
            : `Requests that match the path of ${nameOf(target)} can avoid its guards`;
        return warning(
          "guard_bypassed",
          target,
          `${begin}: ${phrase(target, taker)}.`,
          request,
          "Give the other route the same guards, or refuse such requests there with request_termination",
          bypassPath(target, taker.target),
        );
      }),
    ),
  ];
}

/**
 * Routes whose methods are not sent again once an upstream has answered (RFC 9110 §9.2.2, or `retries.methods`), below
 * `retries.on` with statuses.
 */
export function ofRetries(routes: readonly WrittenRoute[], samples: Samples): readonly ConfigWarning[] {
  return routes.flatMap((each) => {
    if (each.service.retries === undefined) return [];
    const { methods } = each.route;
    const { attempts = 0, on = [], methods: repeated = [...IDEMPOTENT] } = each.service.retries;
    const statuses = on.filter((failure) => typeof failure === "number");
    if (
      attempts === 0 ||
      statuses.length === 0 ||
      methods.length === 0 ||
      methods.some((method) => repeated.includes(method))
    )
      return [];
    const message =
      `${statuses.join(", ")} in "retries.on" of service "${each.service.name}" never applies to ${nameOf(each)}: ` +
      `${methods.join(", ")} might be done twice, so such a request is not sent again after a response.`;
    const remedy =
      'Leave the statuses out, give the route a service of its own, or name its methods in "retries.methods" ' +
      "if sending them twice does no harm";
    return warning("retries_unused", each, message, samples.get(each) ?? null, remedy);
  });
}

/** The path of a warning that a route bypasses the guards of another one. */
export function bypassPath(guarded: WrittenRoute, taker: WrittenRoute): string {
  return `${guarded.path} by ${taker.path}`;
}

function phrase(target: WrittenRoute, taker: Taker<WrittenRoute>): string {
  const { reason, request } = taker;
  const [name, guards] = [nameOf(taker.target), missing(target, taker)];
  if (reason === "upstream") return `${name} leads to the same path of the same upstream without ${guards}`;
  if (request === null)
    return (
      `${name} may take some without ${guards} (${REASONS[reason]}; ` +
      `there are too many ways to spell them to try them all)`
    );
  return `${name} takes some without ${guards} (${REASONS[reason]})`;
}

const REASONS: Readonly<Record<Exclude<BypassReason, "upstream">, string>> = {
  method: "those with another method",
  base_path: "its base_path is longer",
  match: "those that other headers, cookies or another query select",
  specificity: "its path is more specific",
  host: "those for other hosts",
  "%2F": 'those with %2F, which a backend may read as "/"',
};

/** The guards that the other route lacks, by their kinds. */
function missing({ plugins }: WrittenRoute, { target }: Taker<WrittenRoute>): string {
  const names = plugins.flatMap(({ kind, guard }) => {
    if (guard === null || target.guards.has(guard)) return [];
    const hasOther = target.plugins.some((other) => other.guard !== null && other.kind.name === kind.name);
    return [hasOther ? `the same ${kind.name}` : kind.name];
  });
  return [...new Set(names)].join(" and ");
}

function warning(
  code: "route_unreachable" | "guard_bypassed" | "retries_unused",
  { service, route, path: own, at }: WrittenRoute,
  message: string,
  request: SampleRequest | null,
  remedy: string,
  path = own,
) {
  const example = request === null ? null : exampleOf(request);
  const accepted = `${remedy}; if it is intended, add "${code}:${path}" to global.accept_warnings.`;
  return {
    code,
    path,
    message,
    example,
    remedy: accepted,
    service: service.name,
    route: route.name,
    at: [...at, "path"],
  };
}

function nameOf({ service, route }: WrittenRoute): string {
  return describePlace({ service: service.name, route: route.name });
}

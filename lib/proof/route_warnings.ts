/**
 * Writes the warnings about routes: those that get no requests, and those whose guards a request can pass by.
 */
import { MAX_TAKERS, type BypassReason, type Proof, type Taker } from "../route/overlaps.ts";
import type { SampleRequest } from "../route/sample_requests.ts";
import { describePlace } from "../gateway/plugin_error.ts";
import type { ConfigWarning } from "../gateway/status.ts";
import { exampleOf, type WrittenRoute } from "./written.ts";

/** How many other routes one warning names. */
const MAX_NAMED = 3;

export function ofRoutes({ unreachable, bypasses }: Proof<WrittenRoute>): readonly ConfigWarning[] {
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
    ...bypasses.map(({ target, takers }) => {
      const beside = takers.filter(({ reason }) => reason === "upstream");
      const within = takers.filter(({ reason }) => reason !== "upstream");
      const isMore = takers.length === MAX_TAKERS;
      const message = [
        ...sentence(
          `Requests that match the path of ${nameOf(target)} can avoid its guards`,
          within.map((taker) => phrase(target, taker)),
          isMore && beside.length === 0,
        ),
        ...sentence(
          `What ${nameOf(target)} leads to can be reached without its guards`,
          beside.map((taker) => phrase(target, taker)),
          isMore,
        ),
      ].join(" ");
      const request = takers.find((taker) => taker.request !== null)?.request ?? null;
      return warning(
        "guard_bypassed",
        target,
        message,
        request,
        "Give the other route the same guards, or refuse such requests there with request_termination",
      );
    }),
  ];
}

/** None without phrases. "isMore": there may be further ones. */
function sentence(begin: string, phrases: readonly string[], isMore: boolean): string[] {
  const more = phrases.length - MAX_NAMED;
  const others =
    more > 0 ? [`${isMore ? "at least " : ""}${more} more ${more === 1 ? "route does" : "routes do"} the same`] : [];
  return phrases.length === 0 ? [] : [`${begin}: ${[...phrases.slice(0, MAX_NAMED), ...others].join(", ")}.`];
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
  code: "route_unreachable" | "guard_bypassed",
  { service, route, path, at }: WrittenRoute,
  message: string,
  request: SampleRequest | null,
  remedy: string,
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

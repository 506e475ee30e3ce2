/**
 * What a rule of Kubernetes does with its requests: the settings and plugins of the service that it becomes.
 */
import type { Path } from "../../config/json.ts";
import { DISCARDED, type Draft, type DraftPlugin } from "./draft.ts";
import type { ServiceBackend } from "./kube_objects.ts";
import type { SourceValue } from "./source_value.ts";

/** The path that is forwarded, or in a location: another one, or `to` in place of the first `segments`. */
export type Rewrite = { readonly full: string } | { readonly segments: number; readonly to: string };

export interface Redirect {
  readonly status: number;
  /** Such as "https://example.com:8443"; "": of the request. */
  readonly origin: string;
  readonly rewrite?: Rewrite | undefined;
  /** The whole target, without the query of the request, in place of both. */
  readonly location?: string;
}

export interface RuleTarget {
  readonly at: Path;
  /** Of the service. */
  readonly name: string;
  readonly settings: Readonly<Record<string, unknown>>;
  /** Of its routes. */
  readonly timeouts?: object | undefined;
  readonly plugins: readonly DraftPlugin[];
  /** Why its requests get 503. */
  readonly closed?: string | undefined;
  readonly rewrite?: Rewrite | undefined;
  readonly redirect?: Redirect | undefined;
  /** It stands for a regular expression. */
  readonly isRegex?: boolean;
  /** Its last segment may go on in the source: "/a" is also "/ab". */
  readonly goesOn?: boolean;
}

export const NO_UPSTREAM = { protocol: "http", upstreams: [DISCARDED] };

export interface Weighted {
  readonly place: SourceValue;
  /** Or why it is none. */
  readonly backend: ServiceBackend | string;
  readonly weight: number;
  readonly group?: string;
}

export interface Upstreams {
  readonly settings: Readonly<Record<string, unknown>>;
  readonly plugins: readonly DraftPlugin[];
  readonly closed?: string;
}

const MAX_WEIGHT = 65_535;

/** The share of backends that are none is answered with 503, as the rule is if all are. */
export function upstreamsOf(backends: readonly Weighted[], draft: Draft): Upstreams {
  const first = backends.find(({ backend, weight }) => typeof backend !== "string" && weight > 0)?.backend;
  const protocol = typeof first === "object" ? first.protocol : "http";
  const why = ({ backend }: Weighted) => {
    if (typeof backend === "string") return backend;
    return backend.protocol === protocol ? undefined : `it speaks ${backend.protocol}, and another one ${protocol}`;
  };
  const total = backends.reduce((sum, { weight }) => sum + weight, 0);
  if (backends.length === 0) return { settings: NO_UPSTREAM, plugins: [], closed: "the rule names no backend" };
  if (total === 0) return { settings: NO_UPSTREAM, plugins: [], closed: "the weights of its backends are 0" };
  const lost = backends.filter((each) => why(each) !== undefined && each.weight > 0);
  if (typeof first !== "object")
    return { settings: NO_UPSTREAM, plugins: [], closed: `it has no backend: ${why(lost[0]!)}` };
  const percent = Math.round((lost.reduce((sum, { weight }) => sum + weight, 0) / total) * 10_000) / 100;
  for (const each of lost)
    draft.notes.addClosed(each.place.at, `${why(each)}: its share of the requests gets 503 (fault) until you mend it`);
  const upstreams = new Map<string, { host: string; port: number; group?: string; weight: number }>();
  const largest = Math.max(...backends.map(({ weight }) => weight));
  for (const { backend, weight, group } of backends.filter((each) => why(each) === undefined)) {
    const { host, port } = backend as ServiceBackend;
    const key = `${host}:${port} ${group}`;
    const scaled = largest <= MAX_WEIGHT ? weight : Math.ceil((weight * MAX_WEIGHT) / largest);
    const sum = Math.min((upstreams.get(key)?.weight ?? 0) + scaled, MAX_WEIGHT);
    upstreams.set(key, { host, port, ...(group === undefined ? {} : { group }), weight: sum });
  }
  const list = [...upstreams.values()];
  const isWeighted = new Set(list.map(({ weight }) => weight)).size > 1;
  const plain = list.map(({ weight, ...upstream }) => (isWeighted ? { ...upstream, weight } : upstream));
  return {
    settings: { protocol, ...(isWeighted ? { load_balancing_strategy: "weighted" } : {}), upstreams: plain },
    plugins: percent === 0 ? [] : [draft.from(lost[0]!.place.at, { name: "fault", config: { percent, status: 503 } })],
  };
}

/** A guard of the source that no route has here. */
export function unknownGuard(name: string): DraftPlugin {
  return { name: "forward_auth", config: { instead_of: name } };
}

/** The segments of a path, without a slash at its end. */
export function segmentsOf(path: string): string[] {
  return path.split("/").filter((segment) => segment !== "");
}

/** `undefined` and empty lists are left out. */
export function filled(made: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const isEmpty = (value: unknown) =>
    value === undefined || (Object(value) === value && Object.keys(value as object).length === 0);
  return Object.fromEntries(Object.entries(made).filter(([, value]) => !isEmpty(value)));
}

/**
 * The endpoints that an SRV record names for an upstream of a service.
 */
import type { UpstreamEndpoint } from "./upstream_set.ts";
import type { RecordTarget } from "./contracts.ts";

interface RecordUpstream {
  readonly id: string;
  readonly group?: string;
  readonly backup?: boolean;
  readonly requestHeaders?: Readonly<Record<string, string>>;
}

/** Of one answer to the look-up of a record; further ones are dropped. */
export const MAX_TARGETS = 1_000;

/** Beside targets that have a weight: "a very small chance of being selected" (RFC 2782). */
const SMALL_WEIGHT = 0.01;

/**
 * Targets of the best priority are of rank 0, those of the next one of rank 1, and so on; one more where the upstream
 * is a backup. Weights hold among targets of one priority.
 */
export function recordEndpoints(
  upstream: RecordUpstream,
  targets: readonly RecordTarget[],
): readonly UpstreamEndpoint[] {
  const { id, backup = false, ...common } = upstream;
  const weighed = new Set(targets.flatMap(({ priority, weight }) => (weight > 0 ? priority : [])));
  let rank = backup ? 1 : 0;
  return targets.map(({ host, port, priority, weight }, i) => {
    if (i > 0 && targets[i - 1]!.priority !== priority) rank++;
    const name = host.includes(":") ? `[${host}]` : host;
    const share = weight > 0 ? weight : weighed.has(priority) ? SMALL_WEIGHT : 1;
    return { ...common, id: `${id}/${name}:${port}`, host, port, weight: share, rank };
  });
}

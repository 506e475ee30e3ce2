/**
 * The endpoints of an upstream whose servers are others with time: the targets of an SRV record, or the addresses of a
 * host name.
 */
import type { UpstreamEndpoint } from "./upstream_set.ts";
import type { Address, HostName, RecordTarget } from "./contracts.ts";

interface RecordUpstream {
  readonly id: string;
  readonly group?: string;
  readonly backup?: boolean;
  readonly requestHeaders?: Readonly<Record<string, string>>;
}

interface NamedUpstream extends RecordUpstream {
  readonly host: string;
  readonly port: number;
  readonly weight: number;
}

/** Of one answer to the look-up of a record or a name; further ones are dropped. */
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
    return { ...common, id: `${id}/${name}:${port}`, upstream: id, host, port, weight: share, rank };
  });
}

/**
 * One for each address, all with the same part of the weight. A name that has never had several at a time is one
 * endpoint under the upstream's own id, whose connections follow it to another address: so is one that has not been
 * looked up yet. The address of that one has its sticky sessions later.
 */
export function addressEndpoints(
  upstream: NamedUpstream,
  { addresses, hasHadSeveral, loneAddress }: Pick<HostName, "addresses" | "hasHadSeveral" | "loneAddress">,
): readonly UpstreamEndpoint[] {
  const { id, weight, backup = false, ...common } = upstream;
  const rank = backup ? 1 : 0;
  if (!hasHadSeveral || addresses.length === 0) return [{ ...common, id, weight, rank }];
  const share = exactly(weight / addresses.length);
  return inOrder(addresses).map((address) => {
    const host = address.address.includes(":") ? `[${address.address}]` : address.address;
    return {
      ...common,
      id: `${id}/${host}:${common.port}`,
      upstream: id,
      address,
      weight: share,
      rank,
      ...(address.address === loneAddress?.address && { formerId: id }),
    };
  });
}

/**
 * The nearest number whose sums are exact in floating point: with thirds, upstreams of equal weight would not be used
 * in turn, as their turns would not return to 0.
 */
export function exactly(weight: number): number {
  return Math.round(weight * PARTS) / PARTS;
}

const PARTS = 2 ** 26;

/** IPv4 first. Answers have them in any order. */
export function inOrder(addresses: readonly Address[]): readonly Address[] {
  return [...addresses].sort((a, b) => a.family - b.family || (a.address < b.address ? -1 : 1));
}

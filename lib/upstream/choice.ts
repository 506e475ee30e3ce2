/**
 * The choice among the upstreams of a service: of those that can be used, by its strategy; and of another one after a try that has sent nothing.
 */
import { Fault } from "../base/errors.ts";
import { LEAST_TRY_MS, tryPeer, upstreamFaultReply, type AttemptsOptions, type Tries } from "./attempts.ts";
import type { Balancer } from "./balance.ts";
import { isUnopened } from "./faults.ts";
import { isUntouched } from "./upstream_request.ts";
import { usableOf, type Peer, type Picker, type UpstreamSet } from "./upstream_set.ts";

/** Chooses by `balancer` among `peers`, upstreams of one snapshot; `choosable` says which of them can be used now. */
export function pickerAmong(upstreamSet: UpstreamSet, peers: readonly Peer[], balancer: Balancer, choosable = usableOf): Picker {
  let usable: readonly Peer[] = [];
  let version = -1;
  return {
    pick: (exchange, tried) => {
      const latest = upstreamSet.version;
      if (version !== latest) {
        version = latest;
        usable = choosable(peers);
      }
      const left = tried.length === 0 ? usable : usable.filter((peer) => !tried.includes(peer));
      return left.length === 1 ? left[0]! : balancer.pick(left, exchange);
    },
  };
}

/** A try that sent nothing is followed at once by one at another upstream, each of them once; `tried` have been before. */
export function elsewhere(options: AttemptsOptions, tried: readonly Peer[] = []): Tries["failed"] {
  const { picker, forwarding, meter, log } = options;
  return (exchange, error, peer, endsAt) => {
    const now = forwarding.clock.now();
    const isOver = exchange.call.aborted || now > endsAt - LEAST_TRY_MS;
    const mayFollow = !isOver && error instanceof Fault && isUnopened(error) && (exchange.body === null || isUntouched(exchange.body));
    const all = [...tried, peer];
    const next = mayFollow ? picker.pick(exchange, all) : null;
    if (next === null) return upstreamFaultReply(exchange, error, log);
    meter?.retried();
    return tryPeer({ ...options, failed: elsewhere(options, all) }, exchange, next, now, endsAt);
  };
}

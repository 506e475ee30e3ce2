/**
 * Makes the counters of `global.counters`, which survive reloads while their settings stay the same.
 */
import { hash } from "node:crypto";
import { Egress, type Destination, type EgressProxy } from "../base/egress.ts";
import type { Config } from "../config/model.ts";
import type { GatewayCounters } from "../store/counters.ts";
import { memoryCounters } from "../store/memory.ts";
import { RedisCounters, SharedState, type RedisSettings } from "../store/redis.ts";
import { connect, readyEvent } from "../upstream/connect.ts";
import { UpstreamTls } from "../upstream/tls.ts";
import type { CompileTools } from "./compile_types.ts";
import type { InUse } from "./runtime.ts";

type CountersConfig = NonNullable<Config["global"]["counters"]>;

/** The counters that a configuration shares with other gateways. Nothing is connected before `start`. */
export function sharedCounters(
  config: CountersConfig,
  inUse: InUse,
  { runtime, log }: CompileTools,
  proxy: EgressProxy | null,
): GatewayCounters {
  const settings = settingsOf(config);
  const destinations = destinationsOfCounters(config);
  const egress = new Egress(destinations, proxy && (() => proxy));
  const ways = destinations.map((to) => egress.proxyTo(to)?.identity);
  const tls = [config.url].flat()[0]!.secure ? new UpstreamTls({ ...config.tls, verify: true }) : null;
  const { clock, countersErrors: errors, writeBatch, threads } = runtime;
  const local = runtime.counters(memoryCounters);
  // Compared by digest: it has the password, and the contents of files.
  const digest = hash("sha256", JSON.stringify([settings, tls?.identity, ways]));
  // Also for counters that are kept: a worker that starts later needs the memory.
  const shared = new SharedState({
    ...threads,
    memory: (name, bytes) => runtime.memory(`${name} ${digest}`, bytes, inUse),
  });
  const make = () =>
    new RedisCounters(settings, {
      clock,
      log,
      local,
      errors,
      writeBatch,
      random: Math.random,
      shared,
      connect(server) {
        const socket = connect(
          { ...server, dial: egress.dialer({ ...server, why: "redis" }) },
          tls === null ? null : tls.options(server.host),
          undefined,
        );
        return { socket, ready: readyEvent(socket) };
      },
    });
  return runtime.keep("counters", digest, make, inUse);
}

function settingsOf({ url, timeoutMs, onError, prefix }: CountersConfig): RedisSettings {
  const urls = [url].flat();
  const { user, password, database } = urls[0]!;
  const credentials = password === null ? null : { user, password };
  return {
    servers: urls.map(({ host, port }) => ({ host, port })),
    isCluster: Array.isArray(url),
    credentials,
    database,
    timeoutMs,
    onError,
    prefix,
  };
}

/** A Cluster names its other servers itself: they may have any host, and one of the ports that are configured. */
export function destinationsOfCounters(counters: CountersConfig): readonly Destination[] {
  const named = [counters.url].flat().map(({ host, port }) => ({ host, port, why: "redis" }));
  return Array.isArray(counters.url)
    ? [...named, ...named.map(({ port }) => ({ host: "*", port, why: "redis" }))]
    : named;
}

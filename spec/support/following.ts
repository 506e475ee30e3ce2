/**
 * The gateway of a main thread and those of its workers, in one thread: what lib/cluster does by message is done by
 * calls.
 */
import { writeFileSync } from "node:fs";
import { onTestFinished } from "vitest";
import type { Threads } from "../../lib/base/threads.ts";
import { Follower } from "../../lib/cluster/follower.ts";
import { received, type Bundle, type Followers } from "../../lib/gateway/bundle.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { CompleteOptions } from "../../lib/gateway/options.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { takeOut } from "../../lib/upstream/taken_out.ts";
import { withAllFeatures } from "../../lib/features/all.ts";

export interface Together {
  readonly main: Gateway;
  readonly workers: readonly Gateway[];
  /** Ports of the workers. */
  readonly ports: readonly number[];
  /** What the main thread has asked of the workers, in order. */
  readonly events: string[];
  /** Makes the next preparation wait until it is called. */
  hold(): () => void;
}

export interface TogetherOptions extends GatewayOptions, Pick<CompleteOptions, "acme"> {
  /** For worker 0, 1, …; default: nothing, twice. */
  readonly ofWorkers?: readonly Partial<GatewayOptions>[];
}

/** A bundle as another thread gets it. */
export function sent({ memory, ...bundle }: Bundle): Bundle {
  return received({ ...structuredClone({ ...bundle, memory: new Map() }), memory });
}

/**
 * All end with the test. The workers listen; a worker notices by itself, at its next request, that a reload was
 * committed.
 */
export async function together({ ofWorkers = [{}, {}], ...options }: TogetherOptions): Promise<Together> {
  const count = ofWorkers.length;
  const main = new Gateway(
    { ...options, modules: withAllFeatures(options.modules) },
    { id: 1, worker: -1, count, memory: (_name, bytes) => new SharedArrayBuffer(bytes) },
  );
  const { configuration } = Gateway.internalsOf(main);
  const events: string[] = [];
  let committed = configuration.bundle.version;
  let { memory } = configuration.bundle;
  let held = Promise.resolve();
  const each = ofWorkers.map((own, worker) => {
    const threads: Threads = { id: 2 + worker, worker, count, memory: (name) => memory.get(name)! };
    const { config: _config, configFile: _file, ...others } = options;
    const follower = new Follower(
      sent(configuration.bundle),
      (handler) => handler,
      () => committed,
    );
    const gateway = new Gateway(
      { ...others, ...own, tests: "skip", modules: withAllFeatures(own.modules) },
      threads,
      follower,
    );
    return { gateway, follower, configuration: Gateway.internalsOf(gateway).configuration };
  });
  const followers: Followers = {
    ...{ configured: count, serving: count, restarts: 0, alive: 0, terminate: async () => {}, collect: async () => {} },
    async prepare(bundle) {
      events.push("prepare");
      await held;
      memory = bundle.memory;
      // A worker does one thing after the other: it is not asked for the next before it has prepared this.
      const prepared = each.map((worker) => worker.follower.prepare(worker.configuration, sent(bundle)));
      await Promise.allSettled(prepared);
      await Promise.all(prepared);
    },
    commit(bundle) {
      events.push("commit");
      committed = bundle.version;
    },
    abandon() {
      events.push("abandon");
      for (const worker of each) worker.follower.abandon(worker.configuration);
    },
    renewTls: () => void events.push("renewTls"),
    useCertificates: () => void events.push("useCertificates"),
    setChallenge: async () => void events.push("setChallenge"),
    purge: () => Promise.resolve(0),
    async setUpstream({ service, id, state }) {
      for (const worker of each) {
        const { runtime } = Gateway.internalsOf(worker.gateway);
        const upstreams = runtime.upstreamsOf(service);
        if (upstreams !== undefined) takeOut(upstreams.upstreamSet, { id, state }, runtime.healthTools.changes);
      }
    },
    announceStop: () => void events.push("announceStop"),
    async close() {
      events.push("close");
      return "drained";
    },
  };
  configuration.followers = followers;
  const workers = each.map(({ gateway }) => gateway);
  onTestFinished(async () => void (await Promise.all([main, ...workers].map((gateway) => gateway.close(0)))));
  const ports: number[] = [];
  for (const worker of workers) ports.push((await worker.listen({ port: 0 })).port);
  const hold = () => {
    let open = () => {};
    held = new Promise((resolve) => (open = resolve));
    return open;
  };
  return { main, workers, ports, events, hold };
}

/** Replaces a file's content in place. */
export function rewrite(path: string, content: unknown): void {
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
}

import { onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { CompleteOptions } from "../../lib/gateway/options.ts";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import type { ManualClock } from "./clock.ts";

/**
 * Gateways as the threads of one program have them: each compiles the same configuration, with the memory that the main
 * one has made.
 */
export function program(clock: ManualClock, source: object, plugins: readonly AnyPlugin[]) {
  const made = new Map<string, SharedArrayBuffer>();
  const errors: unknown[] = [];
  let most = Infinity;
  const log = { ...silentLog, error: (_message: string, fields: unknown) => void errors.push(fields) };
  const options = (value: object): CompleteOptions => ({
    config: value as never,
    plugins,
    modules: withAllFeatures(),
    clock,
    log,
  });
  const main = new Gateway(options(source), {
    ...{ id: 1, worker: -1, count: 2 },
    memory(name, bytes) {
      if (bytes > most) throw new RangeError("Array buffer allocation failed");
      made.set(name, new SharedArrayBuffer(bytes));
      return made.get(name)!;
    },
  });
  const given = (name: string) => {
    const memory = Gateway.internalsOf(main).configuration.bundle.memory.get(name);
    if (memory === undefined) throw new Error(`no memory ${name}`);
    return memory;
  };
  let lastId = 1;
  /** A worker that starts now. */
  const worker = (value = source) => {
    const gateway = new Gateway(options(value), { id: ++lastId, worker: lastId % 2, count: 2, memory: given });
    onTestFinished(async () => void (await gateway.close(0)));
    return gateway;
  };
  onTestFinished(async () => void (await main.close(0)));
  /** From now on the system gives no more bytes at once. */
  const limitMemory = (bytes: number) => void (most = bytes);
  return { main, worker, made, errors, limitMemory };
}

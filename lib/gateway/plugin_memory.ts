/**
 * The memory for plugins that workers share.
 */
import { messageOf } from "../base/errors.ts";
import type { GiveMemory } from "../store/counters.ts";
import type { PluginContext } from "./compile_types.ts";

/** See `Tools.shared`; `key`: of the instance. */
export function sharedBy(key: string, what: string, bytes: number, context: PluginContext): ArrayBufferLike {
  const memory = memoryOf(`memory "${what}"`, context)(`plugin ${JSON.stringify([key, what])}`, bytes, undefined);
  if (memory.byteLength === bytes) return memory;
  throw new Error(
    `the memory "${what}" has ${memory.byteLength} bytes, not ${bytes}: use another name for another size`,
  );
}

export function memoryOf(purpose: string, { runtime, inUse }: PluginContext): GiveMemory {
  return (name, bytes, known) => {
    try {
      return runtime.memory(name, bytes, inUse, known);
    } catch (error) {
      if (runtime.threads.worker < 0) {
        const reason =
          `the system gives no ${Math.ceil(bytes / 1e6)} MB of memory for the ` + `${purpose}: ${messageOf(error)}`;
        throw new Error(
          `${reason}; lower "max_callers" of rate limits, or raise the limit of the address space (ulimit -v)`,
          { cause: error },
        );
      }
      const remedy = 'ask for it in "create", with the same keys and options in every thread';
      throw new Error(`the ${purpose} is not known to the main thread: ${remedy}`, { cause: error });
    }
  };
}

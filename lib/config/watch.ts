/**
 * Tells when a file's content has been exchanged: rename-saves, writes in place, symlink swaps (Kubernetes mounts).
 * Reading and judging the new content is left to the callers.
 */
import { realpathSync, statSync, watch, type FSWatcher } from "node:fs";
import { basename, dirname } from "node:path";
import { systemClock, type Clock, type Timer } from "../base/clock.ts";

export interface WatchOptions {
  /** Called after the file has changed and then rested. */
  readonly onChange: () => void;
  /** How long a changed file has to rest, in milliseconds: saving often takes several steps. Default 100. */
  readonly debounceMs?: number;
  /** How often to look without being told, in milliseconds. Default 1500. */
  readonly pollMs?: number;
  readonly clock?: Clock;
}

/**
 * Watches the folder, not the file: a rename-save leaves a watched file behind, and Kubernetes swaps the `..data` link beside it.
 * Network and container file systems may tell nothing, nor does a link's far end, so the file is also looked at now and then.
 * A file that is away for a moment is no change; what stands there afterwards may be. Neither watcher keeps the process alive.
 */
export function watchFile(path: string, options: WatchOptions): { close(): void } {
  const { onChange, debounceMs = 100, pollMs = 1500, clock = systemClock } = options;
  let known = signature(path);
  let settling: Timer | null = null;
  let watcher: FSWatcher | null = null;

  const settle = () => {
    settling?.cancel();
    settling = clock.after(debounceMs, () => {
      settling = null;
      const current = signature(path);
      if (current === null || current === known) return;
      known = current;
      onChange();
    });
  };

  const listen = () => {
    const name = basename(path);
    try {
      watcher = watch(dirname(path), { persistent: false }, (_event, changed) => {
        // Other files in a busy folder must not keep the pause from ending.
        if (changed === null || changed === name || changed === "..data") settle();
      });
      watcher.on("error", deafen); // the folder went away; the next poll tries again
    } catch {
      watcher = null;
    }
  };

  const deafen = () => {
    watcher?.close();
    watcher = null;
  };

  const poll = () => {
    polling.restart();
    if (watcher === null) listen();
    const current = signature(path);
    if (settling === null && current !== null && current !== known) settle();
  };

  listen();
  const polling = clock.after(pollMs, poll);
  return {
    close() {
      polling.cancel();
      settling?.cancel();
      deafen();
    },
  };
}

/** Differs whenever another file, or other content, stands at the end of the path's links; null while there is none. */
function signature(path: string): string | null {
  try {
    const real = realpathSync(path);
    const { dev, ino, size, mtimeNs } = statSync(real, { bigint: true });
    return `${real}:${dev}:${ino}:${size}:${mtimeNs}`;
  } catch {
    return null;
  }
}

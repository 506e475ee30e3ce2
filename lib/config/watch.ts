/**
 * Reports when the content of a file changes: by a rename-save, a write in place, or a symlink swap (Kubernetes
 * mounts).
 */
import { stat, statSync, watch, type BigIntStats, type FSWatcher } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { systemClock, type Clock, type Timer } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";

/** Finds the `signature` of a file, at once or later. */
type Look = (path: string, found: (signature: string | null) => void) => void;

export interface WatchOptions {
  /** Called after the file has changed and then stayed the same for 100 ms: saving often takes several steps. */
  readonly onChange: () => void;
  /** A change from this moment on counts, in milliseconds since 1970. Default: one from now on. */
  readonly since?: number | undefined;
  readonly clock?: Clock;
  /** Default: `lookBeside`. */
  readonly look?: Look;
}

const SETTLED_MS = 100;
const POLL_MS = 1500;

/**
 * Watches the folder, not the file: a rename-save replaces the watched file, and Kubernetes swaps the `..data` link
 * next to it.
 * Network and container file systems and link targets may send no events, so the file is polled too.
 * A file that disappears briefly has not changed; its replacement may differ. The watch does not keep the process
 * alive. A look at a file system that hangs holds up nothing else; there is one look at a time.
 */
export function watchFile(
  path: string,
  { onChange, clock = systemClock, since = Infinity, look = lookBeside }: WatchOptions,
) {
  let known = changedAt(path) >= since ? null : signature(path);
  let settling: Timer | null = null;
  let watcher: FSWatcher | null = null;
  let state: "idle" | "looking" | "closed" = "idle";

  const lookFor = (seen: (current: string) => void) => {
    if (state !== "idle") return;
    state = "looking";
    look(path, (current) => {
      if (state === "closed") return;
      state = "idle";
      if (current !== null && current !== known) seen(current);
    });
  };
  const settle = () => {
    settling?.cancel();
    settling = clock.after(SETTLED_MS, () => {
      settling = null;
      lookFor((current) => {
        known = current;
        onChange();
      });
    });
  };
  const stopListening = () => {
    watcher?.close();
    watcher = null;
  };
  const listen = () => {
    try {
      watcher = watch(dirname(path), { persistent: false }, (_event, changed) => {
        // Events of other files in the folder must not restart the wait.
        if (changed === null || changed === basename(path) || changed === "..data") settle();
      });
      watcher.on("error", stopListening); // the folder was removed; the next poll tries again
    } catch {
      watcher = null;
    }
  };
  const polling = clock.after(POLL_MS, () => {
    polling.restart();
    if (watcher === null) listen();
    if (settling === null) lookFor(settle);
  });

  listen();
  if (known === null) settle();
  return {
    /** A file with this signature is no change. */
    expect: (next: string) => void (known = next),
    close() {
      state = "closed";
      polling.cancel();
      settling?.cancel();
      stopListening();
    },
  };
}

/** In milliseconds since 1970; -Infinity where it cannot be known. */
function changedAt(path: string): number {
  try {
    return statSync(path).ctimeMs;
  } catch {
    return -Infinity;
  }
}

/**
 * Changes with the file that the path leads to, with its content, and with who may read it; null while there is no
 * file.
 */
export function signature(path: string): string | null {
  try {
    return signatureOf(statSync(path, { bigint: true }));
  } catch {
    return null;
  }
}

function signatureOf({ dev, ino, size, mtimeNs, mode, uid, gid }: BigIntStats): string {
  return `${dev}:${ino}:${size}:${mtimeNs}:${mode}:${uid}:${gid}`;
}

/** By a thread of Node's: a network file system that hangs would stop the event loop. */
const lookBeside: Look = (path, found) => {
  const seen = (error: Error | null, stats: BigIntStats) => found(error === null ? signatureOf(stats) : null);
  stat(path, { bigint: true }, entry("a look at a file", seen));
};

/**
 * Watches a set of files, which `follow` replaces: a file in both sets is watched without a gap. `since`: see
 * `WatchOptions`, for new ones.
 */
export function watchFiles(onChange: () => void) {
  const watchers = new Map<string, ReturnType<typeof watchFile>>();
  const follow = (paths: readonly string[], since?: number) => {
    const wanted = new Set(paths.map((path) => resolve(path)));
    for (const [path, watcher] of watchers) {
      if (wanted.has(path)) continue;
      watcher.close();
      watchers.delete(path);
    }
    for (const path of wanted) if (!watchers.has(path)) watchers.set(path, watchFile(path, { onChange, since }));
  };
  const expect = (path: string, signature: string) => watchers.get(path)?.expect(signature);
  return { follow, expect, close: () => follow([]) };
}

/**
 * Opens the folder of the setting STATE_DIR.
 */
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { StateFolder, StateProblem } from "../base/state_folder.ts";
import type { Kept, Seen } from "../gateway/features.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { QuotaFile } from "../store/quota_file.ts";
import { Failure } from "./failure.ts";
import type { TakenOut } from "../upstream/taken_out.ts";
import { KeptFile, readKeptFile, SEEN, TAKEN_OUT } from "./kept_files.ts";

interface State {
  readonly state: QuotaFile;
  readonly seen: Kept<Seen>;
  readonly takenOut: Kept<readonly TakenOut[]>;
}

/** Throws a `Failure` where another process holds the folder, or a file in it is damaged. */
export async function openState(path: string, log: Log): Promise<State> {
  return inState(path, async () => {
    const folder = await StateFolder.open(path);
    readSeen(folder.path);
    readKeptFile(folder.path, TAKEN_OUT);
    return {
      state: new QuotaFile(folder, systemClock, log),
      seen: new KeptFile(folder, SEEN, log),
      takenOut: new KeptFile(folder, TAKEN_OUT, log),
    };
  });
}

/** `folder`: of a gateway that may be running. Throws as `readKeptFile` does. */
export function readSeen(folder: string): Seen {
  return readKeptFile(folder, SEEN);
}

/** Before the gateway serves: upstreams that were taken out when the program ended stay out. */
export async function restoreTakenOut(gateway: GatewayCore, kept: State["takenOut"]): Promise<void> {
  const known = kept.read();
  if (known.length === 0) return;
  const internals = GatewayCore.internalsOf(gateway);
  const { takenOutOf } = await loadCode(internals.features.onDemand.takenOut);
  takenOutOf(internals).restore(known);
}

/** Throws a `Failure` for what is wrong with the folder. */
export async function inState<T>(path: string, act: () => T): Promise<Awaited<T>> {
  try {
    return await act();
  } catch (error) {
    throw new Failure(
      `STATE_DIR (--state-dir): ` +
        `${error instanceof StateProblem ? error.message : `${path} cannot be used: ${messageOf(error)}`}`,
      2,
    );
  }
}

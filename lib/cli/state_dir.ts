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
import type { GatewayInternals as Internals } from "../gateway/internals.ts";
import type { StateKeeper } from "../gateway/runtime.ts";
import type { DecisionFile } from "../observe/decision_file.ts";
import { removeDecisions } from "../observe/removed_decisions.ts";
import { QuotaFile } from "../store/quota_file.ts";
import { Failure } from "./failure.ts";
import type { TakenOut } from "../upstream/taken_out.ts";
import type { KeptSessions } from "../admin/views.ts";
import type { KeptCertificates } from "./kept_certificates.ts";
import type { ShareCertificates } from "./shared_certificates.ts";
import { KeptFile, readKeptFile, SEEN, SESSIONS, TAKEN_OUT } from "./kept_files.ts";

type LoadKeptCertificates = () => Promise<{ readonly KeptCertificates: typeof KeptCertificates }>;
type LoadDecisionFile = () => Promise<{ readonly DecisionFile: typeof DecisionFile }>;

/** The folder of `global.acme` in it. */
const CERTIFICATES = "acme";

/** What is kept in the folder, each in a file of its own. */
class State implements StateKeeper {
  readonly folder: StateFolder;
  readonly quotas: QuotaFile;
  /** Null: no request has been remembered. */
  decisions: DecisionFile | null = null;
  /** Of `global.acme`; null: no configuration has had it. */
  certificates: KeptCertificates | null = null;

  constructor(folder: StateFolder, log: Log) {
    this.folder = folder;
    this.quotas = new QuotaFile(folder, systemClock, log);
  }

  get failures(): number {
    return this.folder.failures;
  }

  /** Why certificates of `global.acme` cannot be kept; undefined: they can. Makes their folder. */
  certificatesProblem(): string | undefined {
    try {
      this.folder.inner(CERTIFICATES);
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  }

  /** Another process may hold the folder afterwards. */
  async close(): Promise<void> {
    await this.quotas.close();
    await this.decisions?.close();
    await this.certificates?.close();
    await this.folder.close();
  }
}

interface OpenState {
  readonly state: State;
  readonly seen: Kept<Seen>;
  readonly takenOut: Kept<readonly TakenOut[]>;
  readonly sessions: Kept<KeptSessions>;
}

/** Throws a `Failure` where another process holds the folder, or a file in it is damaged. */
export async function openState(path: string, log: Log): Promise<OpenState> {
  return inState(path, async () => {
    const folder = await StateFolder.open(path);
    readSeen(folder.path);
    readKeptFile(folder.path, TAKEN_OUT);
    readKeptFile(folder.path, SESSIONS);
    return {
      state: new State(folder, log),
      seen: new KeptFile(folder, SEEN, log),
      takenOut: new KeptFile(folder, TAKEN_OUT, log),
      sessions: new KeptFile(folder, SESSIONS, log),
    };
  });
}

/** `folder`: of a gateway that may be running. Throws as `readKeptFile` does. */
export function readSeen(folder: string): Seen {
  return readKeptFile(folder, SEEN);
}

/**
 * Before the gateway serves: upstreams that were taken out when the program ended stay out, what became of requests
 * stays known where it is remembered, and the files of `global.acme` can be used. Throws a `Failure` where they cannot.
 * `share`: null: certificates are of this gateway alone.
 */
export async function restoreState(
  gateway: GatewayCore,
  { state, takenOut }: OpenState,
  load: { readonly decisionFile: LoadDecisionFile; readonly acme: LoadKeptCertificates },
  share: ShareCertificates | null,
): Promise<void> {
  const internals = GatewayCore.internalsOf(gateway);
  await restoreTakenOut(internals, takenOut);
  await keepDecisions(internals, state, load.decisionFile);
  await keepCertificates(internals, state, load.acme, share);
}

/** A reload may be the first to have `global.acme`. */
async function keepCertificates(
  internals: Internals,
  state: State,
  load: LoadKeptCertificates,
  share: ShareCertificates | null,
): Promise<void> {
  const { configuration, log } = internals;
  const { folder } = state;
  const open = async () => {
    const { KeptCertificates } = await loadCode(load);
    state.certificates ??= new KeptCertificates(internals, folder.inner(CERTIFICATES), share);
    return state.certificates;
  };
  if (configuration.snapshot.global.acme !== undefined) await inState(folder.path, open);
  const { onReplaced } = configuration;
  configuration.onReplaced = (before, next) => {
    onReplaced(before, next);
    if (state.certificates !== null) state.certificates.follow();
    else if (next.global.acme !== undefined)
      open()
        .then((certificates) => certificates.start())
        .catch((error: unknown) =>
          log.error("certificates of global.acme cannot be kept", { folder: folder.path, error: messageOf(error) }),
        );
  };
}

async function restoreTakenOut(internals: Internals, kept: OpenState["takenOut"]): Promise<void> {
  const known = kept.read();
  if (known.length === 0) return;
  const { takenOutOf } = await loadCode(internals.features.onDemand.takenOut);
  takenOutOf(internals).restore(known);
}

/** Nothing is loaded before a request is to be remembered, and what is left of another time is removed. */
async function keepDecisions({ metrics, clock, log }: Internals, state: State, load: LoadDecisionFile) {
  const { folder } = state;
  const decisions = metrics?.decisions ?? null;
  if (!decisions?.ring)
    await removeDecisions(folder).catch((error: unknown) =>
      log.error("decisions of the previous run cannot be removed", { folder: folder.path, error: messageOf(error) }),
    );
  if (metrics === null || decisions === null) return;
  const begin = async () => {
    decisions.onFirstRing = null;
    const { DecisionFile } = await loadCode(load);
    const file = new DecisionFile({ folder, metrics, decisions, clock, log });
    decisions.kept = file;
    state.decisions = file;
  };
  if (decisions.ring !== null) return begin();
  decisions.onFirstRing = () =>
    void begin().catch((error: unknown) =>
      log.error("decisions cannot be written, and are kept in memory only", { error: messageOf(error) }),
    );
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

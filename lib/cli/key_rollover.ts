/**
 * `edge-gateway acme rollover`: replaces the key of the account that certificates are ordered with, while the gateway
 * is stopped.
 */
import { keepCertificates } from "../acme/keeper.ts";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { StateFolder, StateProblem } from "../base/state_folder.ts";
import type { RunCommand } from "./arguments.ts";
import { configOf, openCandidate } from "./config_file.ts";
import { Failure } from "./failure.ts";
import { acmeSettings } from "./kept_certificates.ts";
import { openLog, settingsOf } from "./on_demand.ts";
import { inState } from "./state_dir.ts";

/** 0: the key is replaced. 1: the directory cannot be asked, or has refused. 2: it cannot be asked for. */
export const rollover: RunCommand = async ({ operands: [action], flags }) => {
  if (action !== "rollover")
    throw new Failure("acme replaces the key of an account: edge-gateway acme rollover --config gw.json", 2);
  const settings = await settingsOf(flags, process.env, {});
  const { configPath, stateDir } = settings;
  if (stateDir === null) throw new Failure("STATE_DIR (--state-dir) is not set, where the account's key is", 2);
  if (settings.acmeFleetKey !== null)
    throw new Failure(
      "the account is that of a fleet (ACME_FLEET_KEY_FILE): ask the gateway that orders, with " +
        "POST /gateway/acme/rollover",
      2,
    );
  const candidate = await openCandidate(await configOf(settings));
  const { snapshot } = candidate.configuration;
  const { acme: configured } = snapshot.global;
  try {
    if (configured === undefined) throw new Failure(`${configPath} does not have global.acme`, 2);
    const folder = await inState(stateDir, () => held(stateDir));
    try {
      const files = await inState(stateDir, () => folder.inner("acme"));
      const keeper = keepCertificates(acmeSettings(configured), {
        files,
        clock: systemClock,
        log: await openLog(settings),
        answers: { present: async () => {}, remove: async () => {} },
        present() {},
        proxy: () => snapshot.egressProxy,
      });
      try {
        await keeper.rollover();
      } catch (error) {
        throw new Failure(`the replacement has failed: ${messageOf(error)}`, 1);
      } finally {
        await keeper.close();
      }
    } finally {
      await folder.close();
    }
    process.stdout.write(`the account at ${configured.directory} has a new key\n`);
    return 0;
  } finally {
    await candidate.close();
  }
};

async function held(path: string): Promise<StateFolder> {
  try {
    return await StateFolder.open(path);
  } catch (error) {
    if (!(error instanceof StateProblem) || !error.isHeld) throw error;
    throw new StateProblem(`a gateway uses ${path}: ask it with POST /gateway/acme/rollover, or stop it first`);
  }
}

/**
 * The thread of one dry run: reads what it is given, and answers with plain data.
 */
import { parentPort, workerData } from "node:worker_threads";
import { giveUp } from "../base/rights.ts";
import { asBuffer, received } from "../gateway/bundle.ts";
import { dryRun, type DryRunInput } from "../proof/dry_run.ts";
import { freshFeatures } from "./load.ts";

const given = workerData as DryRunInput;
const { text, inForce } = given;
const modules = freshFeatures();
if (given.rights.length > 0) giveUp(given.rights);
parentPort!.postMessage(
  await dryRun({ ...given, text: text === null ? null : asBuffer(text), inForce: received(inForce) }, { modules }),
);

/**
 * The thread of one dry run: reads what it is given, and answers with plain data.
 */
import { parentPort, workerData } from "node:worker_threads";
import { asBuffer } from "../gateway/bundle.ts";
import { dryRun, type DryRunInput } from "../proof/dry_run.ts";
import { freshModules } from "./load.ts";

const given = workerData as DryRunInput;
const { text, inForce } = given;
const { source } = inForce;
const files = new Map(Array.from(inForce.files, ([path, content]) => [path, asBuffer(content)]));
const own = "text" in source && typeof source.text !== "string" ? { ...source, text: asBuffer(source.text) } : source;
const modules = freshModules();
parentPort!.postMessage(await dryRun({ ...given, text: text === null ? null : asBuffer(text), inForce: { ...inForce, source: own, files } }, { modules }));

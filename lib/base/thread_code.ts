/**
 * The first module of each thread: has the imports of all others checked against the sums of the program's start.
 */
import { workerData } from "node:worker_threads";
import { holdThread, type ThreadCheck } from "./own_code.ts";

const { sums, program } = workerData as ThreadCheck;
holdThread(sums);
await import(program);

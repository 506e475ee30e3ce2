/**
 * The first module of each thread: has the imports of all others checked against the sums of the program's start.
 */
import { workerData } from "node:worker_threads";
import { holdThread, type Sums } from "./own_code.ts";

holdThread((workerData as { readonly sums: Sums }).sums);

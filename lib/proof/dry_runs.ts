/**
 * Runs dry runs beside the traffic: in a thread, one at a time, within limits of time and memory.
 */
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { Worker, type WorkerOptions } from "node:worker_threads";
import { Fault, messageOf, missingPermission } from "../base/errors.ts";
import { entry } from "../base/event_loop.ts";
import { asReplaced, checkedThread } from "../base/own_code.ts";
import { rightsOfThreads } from "../base/rights.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import type { ReadableSource, SourceText } from "../config/text_source.ts";
import type { Configuration } from "../gateway/configuration.ts";
import type { AcmeMeans } from "../gateway/features.ts";
import type * as dryRunCode from "./dry_run.ts";
import type { DryRun, DryRunInput } from "./dry_run.ts";
import type { RecentRequests } from "../gateway/recent_requests.ts";

/** `features/dry_run_thread.js`. Null: the sources, as specs run them; Node cannot run them in a thread. */
const ENTRY = import.meta.url.endsWith(".ts") ? null : new URL("../features/dry_run_thread.js", import.meta.url);

const MAX_WAITING = 4;
const MAX_ENDING_MS = 1000;

/** Of one dry run. */
export interface DryRunLimits {
  readonly ms: number;
  readonly megabytes: number;
}

const LIMITS: DryRunLimits = { ms: 30_000, megabytes: 512 };

/** Of one gateway. */
export class DryRuns {
  readonly #queue = createTaskQueue(1, MAX_WAITING);
  readonly #configuration: Configuration;
  readonly #limits: DryRunLimits;

  constructor(configuration: Configuration, limits = LIMITS) {
    this.#configuration = configuration;
    this.#limits = limits;
  }

  /**
   * `text` is a whole configuration; null: the gateway's own source, read again. Rejects with a `Fault`, code
   * "overloaded", whose message may be shown.
   */
  async run(text: Buffer | null, recent: RecentRequests | null): Promise<DryRun> {
    if (!this.#queue.room) throw new Fault("overloaded", `${MAX_WAITING} dry runs are waiting already.`);
    return this.#queue.take(async () => {
      const { plugins = [], modules } = this.#configuration.options;
      const { textSource } = this.#configuration.reader;
      const received = text !== null || textSource === null ? null : await receivedFrom(textSource);
      const input = { ...inputOf(this.#configuration, text, recent), received };
      // Functions of a host cannot go to another thread.
      if (ENTRY !== null && plugins.length === 0) return this.#inThread(input, ENTRY);
      const { dryRun } = (await modules.onDemand.dryRun()) as typeof dryRunCode;
      return dryRun(input, { plugins, modules });
    });
  }

  async #inThread(input: DryRunInput, program: URL): Promise<DryRun> {
    const closed = this.#configuration.closing.signal;
    // Modules in force may read the environment. Where there are none, nothing in the thread has a variable.
    const hasModules = input.text === null || (input.inForce.files.size > 0 && usesModules(input));
    const { ms, megabytes } = this.#limits;
    // Together with the stack.
    const resourceLimits = {
      maxOldGenerationSizeMb: megabytes * 0.9,
      maxYoungGenerationSizeMb: megabytes * 0.09,
      stackSizeMb: 4,
    };
    const { first, held } = checkedThread(program);
    const worker = threadFor(first, {
      workerData: { ...input, ...held },
      name: "dry run",
      resourceLimits,
      ...(!hasModules && { env: {} }),
    });
    // AbortSignal.any() of Node 20 loses the signal of a timeout to the garbage collector: a dry run could go on for
    // ever, and with it the queue.
    const over = new AbortController();
    const stop = () => over.abort();
    const timer = setTimeout(entry("the end of a dry run", stop), ms);
    closed.addEventListener("abort", stop);
    if (closed.aborted) stop();
    try {
      const [result] = (await Promise.race([once(worker, "message", { signal: over.signal }), ended(worker)])) as [
        DryRun,
      ];
      return result;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (closed.aborted) throw new Fault("overloaded", "The gateway has been closed.");
      if (code === "ABORT_ERR")
        throw new Fault("overloaded", `The dry run needs more than ${ms / 1000} seconds. ${ELSEWHERE}`);
      if (code === "ERR_WORKER_OUT_OF_MEMORY")
        throw new Fault("overloaded", `The dry run needs more than ${megabytes} MB. ${ELSEWHERE}`);
      throw asReplaced(error) ?? error;
    } finally {
      clearTimeout(timer);
      closed.removeEventListener("abort", stop);
      // A thread within a call of the system ends only with it.
      await Promise.race([worker.terminate(), wait(MAX_ENDING_MS, undefined, { ref: false })]);
    }
  }
}

function inputOf(
  { options, reader: { https }, snapshot, validity, inForce: { source } }: Configuration,
  text: Buffer | null,
  recent: RecentRequests | null,
): Omit<DryRunInput, "received"> {
  const { acme, config, configFile, configKeyFile, kinds, tests, environment = process.env } = options;
  const own = {
    ...(config && { config }),
    ...(configFile && { configFile }),
    ...(configKeyFile && { configKeyFile }),
    ...(kinds && { kinds }),
    ...(https && { https }),
    ...(acme && { acme: withoutFunctions(acme) }),
    ...(tests && { tests }),
  };
  const rights = rightsOfThreads();
  const files = new Map(snapshot.files.map(({ path, content }) => [path, content]));
  return {
    text,
    options: own,
    environment: text === null ? { ...environment } : null,
    inForce: { source, files, formed: snapshot.formed },
    recent: recent?.list() ?? [],
    rights,
    seen: validity?.seen ?? null,
  };
}

/** For another thread, which takes data alone. */
function withoutFunctions(acme: AcmeMeans): AcmeMeans {
  return acme === "checked" ? acme : { stateDir: acme.stateDir, plainPort: acme.plainPort };
}

function receivedFrom(source: ReadableSource): Promise<SourceText | Error> {
  return inSlices(source.current(), paced()).catch((error: Error) => error);
}

const ELSEWHERE = "Check the configuration with edge-gateway validate FILE.";

/** Node's permission model, or the system, may refuse a further thread. */
function threadFor(program: URL, options: WorkerOptions): Worker {
  try {
    return new Worker(program, options);
  } catch (error) {
    throw new Fault(
      "overloaded",
      `There is no thread for the dry run: ${missingPermission(error) ?? messageOf(error)}`,
    );
  }
}

async function ended(worker: Worker): Promise<never> {
  const [code] = (await once(worker, "exit")) as [number];
  throw new Error(`the thread of the dry run ended with ${code}`);
}

function usesModules({ inForce: { source } }: DryRunInput): boolean {
  return "value" in source || source.text.includes("plugin_modules") || source.text.includes("\\u");
}

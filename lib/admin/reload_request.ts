/**
 * Answers `POST /gateway/reload`, which asks for a reload, or for the dry run of the file or of the text in the body,
 * and `POST /gateway/validate`.
 */
import { Fault } from "../base/errors.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { sourceDigest } from "../config/load.ts";
import type { ConfigError } from "../gateway/config_error.ts";
import { whyRefused } from "../gateway/refusal.ts";
import type { DryRun } from "../proof/dry_run.ts";
import { problem, type Reply } from "../http/reply.ts";
import { readInboundBody } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import { answerPosted } from "./json_body.ts";
import { json, retryAfter } from "./replies.ts";
import { view, warningView, type InterfaceOptions } from "./views.ts";

/**
 * Texts that are being received, wait or are tried, in this process. As many as may wait and run, see
 * `proof/dry_runs.ts`, where each also has to fit into memory.
 */
const texts = createTaskQueue(5, 0);

export async function reloadRequest(
  inbound: Inbound,
  user: string,
  { gateway, reload, log }: Pick<InterfaceOptions, "gateway" | "reload" | "log">,
): Promise<Reply> {
  const { call, clientAddress } = inbound;
  const isDryRun = await asksForDryRun(inbound);
  const fields = { address: clientAddress, request_id: call.id };
  if (isDryRun) {
    const tried = (text: Buffer | null) => {
      log.info("dry run of a reload requested over the admin interface", fields);
      return dryRunReply(inbound, gateway, text);
    };
    return inbound.body === null
      ? tried(null)
      : answerPosted(inbound, texts, (text) => tried(text.length === 0 ? null : text));
  }
  log.info("reload requested over the admin interface", fields);
  const reloaded = await reload(undefined, { user, ...fields }).catch((error: unknown) => {
    if (error instanceof Fault && error.code === "source_unreachable") return error;
    throw error;
  });
  if (reloaded instanceof Fault) {
    const detail = `${reloaded.message}. Configuration ${gateway.status.digest} stays in force.`;
    return problem(call, reloaded.code, { detail, members: { digest: gateway.status.digest } });
  }
  const { digest } = reloaded;
  if (reloaded.outcome === "taken") return json(200, { digest, changed: reloaded.changed, changes: reloaded.changes });
  const detail = `Configuration ${digest} stays in force.`;
  return problem(call, "configuration_refused", {
    detail,
    members: { digest, file: reloaded.file, issues: reloaded.issues },
  });
}

/**
 * Answers `POST /gateway/validate`: the dry run of the text in the body, with the digest of the text. `refusalOf`: why
 * it could not replace the file.
 */
export async function validateRequest(
  inbound: Inbound,
  { gateway, log }: Pick<InterfaceOptions, "gateway" | "log">,
  refusalOf: (text: Buffer) => ConfigError | null,
): Promise<Reply> {
  const { call, clientAddress } = inbound;
  return answerPosted(inbound, texts, (text) => {
    log.debug("check of a text requested over the admin interface", { address: clientAddress, request_id: call.id });
    return dryRunReply(inbound, gateway, text, { digest: sourceDigest(text), refusal: refusalOf(text) });
  });
}

async function dryRunReply(
  { call }: Inbound,
  gateway: InterfaceOptions["gateway"],
  text: Buffer | null,
  { refusal = null, ...more }: { readonly digest?: string; readonly refusal?: ConfigError | null } = {},
): Promise<Reply> {
  try {
    const found = await gateway.dryRun(text);
    const issues = [...(refusal === null ? [] : whyRefused(refusal).issues), ...found.issues];
    const outcome = refusal === null ? found.outcome : "refused";
    return json(200, { ...more, ...dryRunView({ ...found, outcome, issues }) });
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return problem(call, error.code, { detail: error.message, headers: retryAfter(DRY_RUN_RETRY_MS) });
  }
}

/** Of a dry run that finds too many waiting. */
const DRY_RUN_RETRY_MS = 5000;

export function dryRunView(dryRun: DryRun) {
  const { tests, warnings } = dryRun;
  // What tests expect has names of headers, and `at` of a warning is no time.
  return {
    ...view({ ...dryRun, tests: null, warnings: [] }),
    warnings: warnings.map((warning) => warningView(warning, warning)),
    tests: tests && { ...view({ ...tests, failures: [] }), failures: tests.failures },
  };
}

/** Rejects with a `Fault`. */
async function asksForDryRun(inbound: Inbound): Promise<boolean> {
  const { target } = inbound;
  const mark = target.indexOf("?");
  const query = mark < 0 ? "" : target.slice(mark + 1);
  if (query === "dry_run=true") return true;
  // A mistyped parameter must not turn a dry run into a reload.
  if (query !== "" && query !== "dry_run=false")
    throw new Fault("request_invalid", "The only query parameter is dry_run=true or dry_run=false.");
  try {
    // Clients may announce a body, and send an empty one.
    await readInboundBody(inbound, 0);
  } catch {
    // Somebody expects that it becomes the configuration.
    const why = "A reload reads the file of the gateway, and takes no body; dry_run=true tries one.";
    throw new Fault("request_invalid", why);
  }
  return false;
}

/**
 * Reads what `POST /gateway/reload` asks for: a reload, or the dry run of the file or of the text in the body.
 */
import { readBody } from "../server/operator_server.ts";
import type { Inbound } from "../server/receive.ts";
import { readJsonBody, type Unreadable } from "./json_body.ts";

/** Of a configuration in the body. Its dry run also has to fit into the memory of its thread, see `gateway/dry_runs.ts`. */
export const MAX_POSTED_BYTES = 16 * 1024 * 1024;

/** `text` is that of the body; null: there is none. */
export type ReloadRequest = { readonly isDryRun: false } | { readonly isDryRun: true; readonly text: Buffer | null };

/** Somebody expects that it becomes the configuration. */
const UNUSED_BODY: Unreadable = { code: "request_invalid", detail: "A reload reads the file of the gateway, and takes no body; dry_run=true tries one." };

export async function readReloadRequest(inbound: Inbound): Promise<ReloadRequest | Unreadable> {
  const { target, body } = inbound;
  const mark = target.indexOf("?");
  const query = mark < 0 ? "" : target.slice(mark + 1);
  // Clients may announce a body, and send an empty one.
  if (query === "" || query === "dry_run=false") return readBody(inbound, 0).then(() => ({ isDryRun: false }), () => UNUSED_BODY);
  // A mistyped parameter must not turn a dry run into a reload.
  if (query !== "dry_run=true") return { code: "request_invalid", detail: "The only query parameter is dry_run=true or dry_run=false." };
  if (body === null) return { isDryRun: true, text: null };
  const text = await readJsonBody(inbound, MAX_POSTED_BYTES, "the configuration");
  return "code" in text ? text : { isDryRun: true, text: text.length === 0 ? null : text };
}

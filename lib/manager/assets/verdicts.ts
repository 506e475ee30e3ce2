/**
 * What the plugins of an explanation do together.
 */
import type { ExplainedPlugin } from "./api.ts";

/** Whether a plugin decides that may decide otherwise: it would ask another machine, or what it does is not known. */
export function isOpen(plugins: readonly ExplainedPlugin[]): boolean {
  const end = plugins.findIndex(({ action }) => action === "answers");
  return plugins.slice(0, end < 0 ? plugins.length : end).some(({ action }) => action !== "passes");
}

/** The plugin that answers the request itself, with the `status` and `code` of its answer; null: none does. */
export function answering(plugins: readonly ExplainedPlugin[]): ExplainedPlugin | null {
  return plugins.find(({ action }) => action === "answers") ?? null;
}

/**
 * Reads the verdicts of plugins in an explanation.
 */
import type { ExplainedPlugin } from "./api.ts";

/** What a plugin would do with the request. */
export type Verdict =
  | { readonly kind: "passes" | "skipped" | "unknown" }
  | { readonly kind: "answers"; readonly status: number; /** Of a refusal. */ readonly code: string | null }
  /** It would ask another machine, which an explanation does not. */
  | { readonly kind: "asks" };

/** "passes the request on, sets X-User", "answers 401 key_missing", "answers 301 to /b", "asks https://auth.example: not done here", "not reached" */
export function verdictOf({ verdict = "" }: Pick<ExplainedPlugin, "verdict">): Verdict {
  const answer = /^answers (\d{3})(?: (?!to )([a-z0-9_]+))?/.exec(verdict);
  if (answer !== null) return { kind: "answers", status: Number(answer[1]), code: answer[2] ?? null };
  if (verdict.startsWith("passes the request on")) return { kind: "passes" };
  if (verdict === "not reached") return { kind: "skipped" };
  return { kind: verdict.startsWith("asks ") ? "asks" : "unknown" };
}

/** Whether a plugin decides that may decide otherwise: it would ask another machine, or its verdict is not known. */
export function isOpen(plugins: readonly ExplainedPlugin[]): boolean {
  const kinds = plugins.map((plugin) => verdictOf(plugin).kind);
  const end = kinds.indexOf("answers");
  return kinds.slice(0, end < 0 ? kinds.length : end).some((kind) => kind !== "passes");
}

/** The plugin that answers the request itself; null: none does. */
export function answering<P extends ExplainedPlugin>(plugins: readonly P[]): { readonly plugin: P; readonly status: number; readonly code: string | null } | null {
  for (const plugin of plugins) {
    const verdict = verdictOf(plugin);
    if (verdict.kind === "answers") return { plugin, status: verdict.status, code: verdict.code };
  }
  return null;
}

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

/** "answers 401 key_missing", "not reached", "asks http://127.0.0.1:4000/check: not done here"; everything else passes the request on. */
export function verdictOf({ verdict }: Pick<ExplainedPlugin, "verdict">): Verdict {
  if (verdict === undefined) return { kind: "unknown" };
  const answer = /^answers (\d{3})(?: ([a-z0-9_]+))?/.exec(verdict);
  if (answer !== null) return { kind: "answers", status: Number(answer[1]), code: answer[2] ?? null };
  if (verdict.startsWith("not reached")) return { kind: "skipped" };
  return { kind: verdict.startsWith("asks ") ? "asks" : "passes" };
}

/** The plugin that answers the request itself; null: none does. */
export function answering<P extends ExplainedPlugin>(plugins: readonly P[]): { readonly plugin: P; readonly status: number; readonly code: string | null } | null {
  for (const plugin of plugins) {
    const verdict = verdictOf(plugin);
    if (verdict.kind === "answers") return { plugin, status: verdict.status, code: verdict.code };
  }
  return null;
}

/**
 * Finds the places of warnings in the text of the configuration that they are about.
 */
import { positionAt } from "../config/json.ts";
import { parseJson } from "../config/json_text.ts";
import type { ConfigSource } from "../config/source.ts";
import type { ConfigWarning, ShownIssue } from "../gateway/status.ts";

/** `line` and `column` are null where there is no text. */
export type PlacedWarning = ConfigWarning & Pick<ShownIssue, "line" | "column">;

export function placedWarnings(warnings: readonly ConfigWarning[], source: ConfigSource): readonly PlacedWarning[] {
  // A large text takes long to read with positions.
  const node = warnings.length > 0 && "text" in source ? parseJson(source.text).node : null;
  return warnings.map((warning) => {
    const position = node && positionAt(node, warning.at);
    return { ...warning, line: position?.line ?? null, column: position?.column ?? null };
  });
}

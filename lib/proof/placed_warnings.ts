/**
 * Finds the places of warnings in the text of the configuration that they are about.
 */
import { placesIn } from "../config/source.ts";
import type { Loaded } from "../gateway/snapshot.ts";
import type { ConfigWarning, ShownIssue } from "../gateway/status.ts";

/** `line` and `column` are null where there is no text. */
export type PlacedWarning = ConfigWarning & Pick<ShownIssue, "line" | "column">;

export function placedWarnings(
  warnings: readonly ConfigWarning[],
  { source, secrets: { root } }: Pick<Loaded, "source" | "secrets">,
): readonly PlacedWarning[] {
  const placeOf = placesIn(source, root);
  return warnings.map((warning) => ({ ...warning, ...(placeOf(warning.at) ?? { line: null, column: null }) }));
}

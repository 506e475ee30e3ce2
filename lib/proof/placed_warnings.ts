/**
 * Finds the places of warnings in the text of the configuration that they are about.
 */
import { placesIn } from "../config/places.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import type { ConfigWarning, ShownIssue } from "../gateway/status.ts";

/** `line` and `column` are null where there is no text. */
export type PlacedWarning = ConfigWarning & Pick<ShownIssue, "line" | "column">;

export function placedWarnings(
  warnings: readonly ConfigWarning[],
  { source }: Pick<ValidConfig, "source">,
): readonly PlacedWarning[] {
  const paths = warnings.map(({ at }) => at);
  const places = placesIn(source, paths);
  return warnings.map((warning, i) => ({ ...warning, ...(places[i] ?? { line: null, column: null }) }));
}

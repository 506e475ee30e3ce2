/**
 * Finds the places of warnings in the text of the configuration that they are about.
 */
import { placesIn } from "../config/json_places.ts";
import type { ConfigSource } from "../config/source.ts";
import type { ConfigWarning, ShownIssue } from "../gateway/status.ts";

/** `line` and `column` are null where there is no text. */
export type PlacedWarning = ConfigWarning & Pick<ShownIssue, "line" | "column">;

export function placedWarnings(warnings: readonly ConfigWarning[], source: ConfigSource): readonly PlacedWarning[] {
  const places =
    warnings.length > 0 && "text" in source
      ? placesIn(
          source.text,
          warnings.map(({ at }) => at),
        )
      : null;
  return warnings.map((warning) => ({ ...warning, ...(places?.(warning.at) ?? { line: null, column: null }) }));
}

/**
 * Prints the warnings about a configuration.
 */
import type { Position } from "../config/json.ts";
import type { Warning } from "../gateway/status.ts";

/** A warning, perhaps with its position in the file; null where that is not known. */
export interface ShownWarning extends Pick<Warning, "path" | "message" | "example" | "remedy"> {
  readonly code: string;
  readonly position?: Position | null;
}

/** A line `gw.json:12:5  guard_bypassed  services.shop.routes.items  message` for each, then its example and its remedy. `file` null: no place. */
export function warningLines(warnings: readonly ShownWarning[], file: string | null): string[] {
  return warnings.flatMap(({ code, path, message, example, remedy, position }) => {
    const place = position === undefined || position === null || file === null ? file : `${file}:${position.line}:${position.column}`;
    const head = [place, code, path, message].filter((part) => part !== null).join("  ");
    return [head, ...(example === null ? [] : [`    example: ${example}`]), `    remedy: ${remedy}`];
  });
}

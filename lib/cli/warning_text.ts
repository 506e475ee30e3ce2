/**
 * Prints the warnings about a configuration.
 */
import type { ShownIssue, Warning } from "../gateway/status.ts";

/** A warning, perhaps with its place in the file; null where that is not known. Gateways before 0.3 send none. */
export interface ShownWarning
  extends Pick<Warning, "path" | "message" | "example" | "remedy">, Partial<Pick<ShownIssue, "line" | "column">> {
  readonly code: string;
}

/**
 * A line `gw.json:12:5  guard_bypassed  services.shop.routes.items  message` for each, then its example and its remedy.
 * `file` null: no place.
 */
export function warningLines(warnings: readonly ShownWarning[], file: string | null): string[] {
  return warnings.flatMap(({ code, path, message, example, remedy, line = null, column = null }) => {
    const place = line === null || file === null ? file : `${file}:${line}:${column}`;
    const head = [place, code, path, message].filter((part) => part !== null).join("  ");
    return [head, ...(example === null ? [] : [`    example: ${example}`]), `    remedy: ${remedy}`];
  });
}

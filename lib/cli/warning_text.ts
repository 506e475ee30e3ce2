/**
 * Prints the warnings about a configuration.
 */
import type { Position } from "../config/json.ts";

/** A warning as the admin interface gives it. */
export interface ShownWarning {
  readonly code: string;
  /** By names: "services.shop.routes.items". Null: about the gateway. */
  readonly path: string | null;
  readonly message: string;
  /** "GET http://shop.example.com/items/x" */
  readonly example: string | null;
  readonly remedy: string;
  /** In the file; null where it is not known. */
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

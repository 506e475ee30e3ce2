/**
 * Spells a value as JSON for lines that people read on terminals. What lines say is up to the logs.
 */

/**
 * As JSON.stringify does, with null for what has no JSON. The controls that JSON lets stand as they are, and on which terminals act, are
 * escaped as well.
 */
export function jsonText(value: unknown): string {
  return ((JSON.stringify(value) as string | undefined) ?? "null").replace(LATE_CONTROLS, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
}

const LATE_CONTROLS = /[\x7f-\x9f]/g;

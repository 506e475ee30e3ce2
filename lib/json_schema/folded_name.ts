/**
 * Names of members as readers compare them that ignore case: Go's `encoding/json` finds a member whatever its case,
 * also by "ſ" for "s" and the Kelvin sign for "k", and takes the last one.
 */

/** Without case, by Unicode's simple and full case folding; "İ" counts as "i", as in Java. */
export function foldedName(name: string): string {
  return name.toUpperCase().toLowerCase().replaceAll("\u0307", "");
}

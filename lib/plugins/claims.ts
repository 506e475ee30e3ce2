/**
 * Reads claims of a JWT by name, and writes them as text for headers.
 */

type Claims = Readonly<Record<string, unknown>>;

/** Returns the claim of this name, or, if the name has dots, a member deeper in a claim: `realm_access.roles`. */
export function claimReader(name: string): (claims: Claims) => unknown {
  const path = name.split(".");
  return (claims) => {
    const whole = own(claims, name);
    if (whole !== undefined || path.length === 1) return whole ?? undefined;
    return path.reduce<unknown>(own, claims) ?? undefined;
  };
}

/** Never an inherited property: `constructor` is not a claim. */
function own(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Claims)[name]
    : undefined;
}

/** The values of a claim, one by one. `scope` is one text with several values (RFC 8693 §4.2, RFC 7662 §2.2). */
export function claimValues(claim: unknown, name: string): readonly unknown[] {
  if (Array.isArray(claim)) return claim;
  return name === "scope" && typeof claim === "string" ? [claim, ...claim.split(" ")] : [claim];
}

/**
 * A claim as text: "" without one; lists separated by commas, where a comma within an item must not start another one;
 * objects as JSON.
 */
export function claimText(claim: unknown): string {
  if (claim === undefined || claim === null) return "";
  if (Array.isArray(claim))
    return claim.map((item) => claimText(item).replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
  return typeof claim === "object" ? JSON.stringify(claim) : String(claim);
}

/** The groups that a claim names: the texts of a list, or one text. Anything else names none. */
export function groupsIn(claim: unknown): readonly string[] {
  return Object.freeze([
    ...new Set([claim].flat().filter((group) => typeof group === "string" && group !== "")),
  ]) as readonly string[];
}

/** The text in UTF-8, as header lists have it: one character a byte. */
export function utf8(text: string): string {
  return BEYOND_ASCII.test(text) ? Buffer.from(text).toString("latin1") : text;
}

const BEYOND_ASCII = /[^\x00-\x7f]/;

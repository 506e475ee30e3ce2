/**
 * Reads claims of a JWT by name, and formats them as header values.
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
  return typeof value === "object" && value !== null && Object.hasOwn(value, name) ? (value as Claims)[name] : undefined;
}

/** Items separated by commas; a comma within an item must not start another one. */
export function listText(items: readonly string[]): string {
  return items.map((item) => item.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
}

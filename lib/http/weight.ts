/**
 * Reads the weights of Accept, Accept-Encoding and the like.
 */

/**
 * The weight of an item by its parameters, in lower case and without blanks around: 1 without `q`; null for an invalid
 * one (RFC 9110 §12.4.2).
 */
export function weightOf(parameters: readonly string[]): number | null {
  const written = parameters.find((parameter) => parameter.startsWith("q="));
  if (written === undefined) return 1;
  return WEIGHT.test(written) ? Number(written.slice(2)) : null;
}

const WEIGHT = /^q=(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

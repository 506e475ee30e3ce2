/**
 * Reads the parameters of a query as HTML forms are encoded (URL Standard §5.1). Conditions of routes compare queries
 * without decoding them: `conditions.ts`.
 */

/** The pairs of a query ("?" included) as they are written; `?a` and `?a=` are alike, empty ones are left out. */
export function parametersOf(query: string): readonly (readonly [name: string, value: string])[] {
  return pairsOf(query).flatMap((pair) => (pair === "" ? [] : [halves(pair)]));
}

/**
 * The values of a parameter of a query ("?" included), decoded; text that cannot be decoded stays as it is. `?a`
 * without "=" is an empty value of "a".
 */
export function queryValues(query: string, name: string): readonly string[] {
  if (!mayHave(query, name)) return NONE;
  return pairsOf(query).flatMap((pair) => {
    const [written, value] = halves(pair);
    return isNamed(written, name) ? (formDecoded(value) ?? value) : [];
  });
}

/** The query without a parameter; all else stays byte for byte. */
export function withoutParameter(query: string, name: string): string {
  if (!mayHave(query, name)) return query;
  const kept = pairsOf(query).filter((pair) => !isNamed(halves(pair)[0], name));
  return kept.length === 0 ? "" : `?${kept.join("&")}`;
}

/** Null: it is not percent-encoded in UTF-8. */
export function formDecoded(text: string): string | null {
  const spaced = text.includes("+") ? text.replaceAll("+", " ") : text;
  if (!spaced.includes("%")) return spaced;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return null;
  }
}

const NONE: readonly string[] = [];

/** False for most queries: they hold neither the name as it is nor anything that might decode to it. */
function mayHave(query: string, name: string): boolean {
  return query.includes(name) || query.includes("%");
}

function pairsOf(query: string): string[] {
  return query.slice(1).split("&");
}

function halves(pair: string): readonly [name: string, value: string] {
  const equals = pair.indexOf("=");
  return equals < 0 ? [pair, ""] : [pair.slice(0, equals), pair.slice(equals + 1)];
}

function isNamed(written: string, name: string): boolean {
  if (written === name) return true;
  // Encoded, a character takes three: longer names need not be decoded.
  return written.includes("%") && written.length <= 3 * name.length && formDecoded(written) === name;
}

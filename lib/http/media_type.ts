/**
 * Media types of messages (RFC 9110 §8.3).
 */

/** Whether a Content-Type is JSON in UTF-8: `application/json` or `application/…+json` (RFC 6839 §3.1). */
export function isJsonType(contentType: string): boolean {
  const [type = "", ...parameters] = contentType.split(";").map((part) => part.trim().toLowerCase());
  if (type !== "application/json" && !(type.startsWith("application/") && type.endsWith("+json"))) return false;
  return parameters.every(
    (parameter) => !parameter.startsWith("charset") || parameter === "charset=utf-8" || parameter === 'charset="utf-8"',
  );
}

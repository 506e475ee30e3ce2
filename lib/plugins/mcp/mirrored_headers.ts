/**
 * The headers in which a request of MCP repeats what its body says (2026-07-28, "Standard MCP Request Headers"):
 * servers and proxies decide by either, so both have to agree.
 */
import { isUtf8 } from "node:buffer";
import { headerValues, type HeaderList } from "../../http/headers.ts";

export const REVISION_HEADER = "mcp-protocol-version";
export const METHOD_HEADER = "mcp-method";
export const NAME_HEADER = "mcp-name";

/** The one value of a header; null: it is absent; undefined: it comes more than once. */
export function soleValue(headers: HeaderList, lower: string): string | null | undefined {
  const [first = null, ...others] = headerValues(headers, lower);
  return others.length > 0 ? undefined : first;
}

/**
 * What is wrong with the headers of a request; null: they agree. `name`: what Mcp-Name has to say; null: nothing.
 * `isRequired`: whether the revision has these headers.
 */
export function headerMismatch(
  headers: HeaderList,
  method: string,
  name: string | null,
  isRequired: boolean,
): string | null {
  const expected = [
    { header: METHOD_HEADER, text: method, read: (value: string) => value },
    ...(name === null ? [] : [{ header: NAME_HEADER, text: name, read: decodedValue }]),
  ];
  for (const { header, text, read } of expected) {
    const value = soleValue(headers, header);
    if (value === undefined) return `${header} comes more than once`;
    if (value === null && isRequired) return `${header} is missing`;
    if (value !== null && read(value) !== text) return `${header} differs from the body`;
  }
  return null;
}

/** Markers as shown, in lower case. */
const BASE64 = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/;

/** The text of a value in plain or base64 form; null: it is malformed, or other readers may read it otherwise. */
export function decodedValue(value: string): string | null {
  const text = BASE64.exec(value)?.[1];
  if (text === undefined) return /^[\x20-\x7e\t]*$/.test(value) && !/^=\?base64\?.*\?=$/.test(value) ? value : null;
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text && isUtf8(bytes) ? bytes.toString() : null;
}

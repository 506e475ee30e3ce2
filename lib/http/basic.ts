/**
 * Reads the credentials of HTTP Basic authentication (RFC 7617) from the value of an Authorization header.
 */

export interface Credentials {
  readonly user: string;
  readonly password: string;
}

/** `Basic <base64 of user:password>` in UTF-8; the first colon separates. Null for anything else. */
export function basicCredentials(authorization: string | undefined): Credentials | null {
  const encoded = authorization === undefined ? null : BASIC.exec(authorization)?.[1];
  if (!encoded) return null;
  const bytes = Buffer.from(encoded, "base64");
  // Node skips characters that are not base64, so the decoded text must encode to the same text again. Padding is often
  // left out.
  if (bytes.toString("base64").replace(PADDING, "") !== encoded.replace(PADDING, "")) return null;
  let text: string;
  try {
    text = UTF8.decode(bytes);
  } catch {
    return null;
  }
  const colon = text.indexOf(":");
  return colon < 0 ? null : { user: text.slice(0, colon), password: text.slice(colon + 1) };
}

const BASIC = /^basic +([A-Za-z0-9+/=]+) *$/i;
const PADDING = /={1,2}$/;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

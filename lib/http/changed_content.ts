/**
 * Headers of a message whose content has been changed on its way.
 */
import { headerValue, withHeader, type HeaderList } from "./headers.ts";

/** Digests of the exact bytes of the content (RFC 9530, RFC 3230, RFC 1864). */
export const DIGESTS = ["content-digest", "repr-digest", "digest", "content-md5"] as const;

/** The same list with a weak ETag: a strong one would identify other bytes (RFC 9110 §8.8.1). */
export function withWeakTag(headers: HeaderList): HeaderList {
  const etag = headerValue(headers, "etag");
  return etag?.startsWith('"') === true ? withHeader(headers, "ETag", `W/${etag}`) : headers;
}

/**
 * The cookies of the plugin kind `oidc`: sealed with a key that only gateways with the same secret have, split where
 * they are long, and kept away from upstreams.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { sameName, type HeaderList } from "../http/headers.ts";

export interface Seal {
  /** Encrypted and authenticated text in base64url. What was sealed for one use opens for no other. */
  seal(use: string, value: object): string;
  /** Null for everything that was not sealed with this key for this use. */
  open<T>(use: string, text: string): T | null;
}

/** AES-256-GCM with a key derived from the secret (RFC 5869) for this context alone. */
export function sealBy(secret: string, context: readonly string[]): Seal {
  const key = Buffer.from(hkdfSync("sha256", secret, "", JSON.stringify(["edge-gateway oidc", ...context]), 32));
  return {
    seal(use, value) {
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv("aes-256-gcm", key, iv).setAAD(Buffer.from(use));
      return Buffer.concat([
        iv,
        cipher.update(JSON.stringify(value), "utf8"),
        cipher.final(),
        cipher.getAuthTag(),
      ]).toString("base64url");
    },
    open<T>(use: string, text: string) {
      const bytes = Buffer.from(text, "base64url");
      // Other texts of the same bytes would each take memory and a refresh of their own.
      if (bytes.length < IV_BYTES + TAG_BYTES || bytes.toString("base64url") !== text) return null;
      try {
        const options = { authTagLength: TAG_BYTES };
        const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, IV_BYTES), options)
          .setAAD(Buffer.from(use))
          .setAuthTag(bytes.subarray(-TAG_BYTES));
        return JSON.parse(
          decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES), undefined, "utf8") + decipher.final("utf8"),
        ) as T;
      } catch {
        return null;
      }
    },
  };
}

const IV_BYTES = 12;
const TAG_BYTES = 16;

/** The plugin's cookies of a request, and the headers without them. */
export interface Taken {
  /**
   * Values by the rest of the name: "" for the cookie itself, ".1" for the next part, ".a8ghd7Wq" for a login. The
   * first one counts.
   */
  readonly cookies: ReadonlyMap<string, string>;
  readonly headers: HeaderList;
}

/** Takes the cookies out whose name is `name`, or `name` with a dot and more behind. */
export function takeCookies(headers: HeaderList, name: string): Taken {
  const cookies = new Map<string, string>();
  const isOwn = (pair: string): boolean => {
    const equals = pair.indexOf("=");
    const found = (equals < 0 ? pair : pair.slice(0, equals)).trim();
    if (!found.startsWith(name) || (found.length > name.length && found[name.length] !== ".")) return false;
    const rest = found.slice(name.length);
    if (equals >= 0 && !cookies.has(rest)) cookies.set(rest, pair.slice(equals + 1).trim());
    return true;
  };
  const kept: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    const field = headers[i]!;
    const line = headers[i + 1]!;
    const isTouched = sameName(field, "cookie") && line.includes(name);
    const text = isTouched
      ? line
          .split(";")
          .filter((pair) => !isOwn(pair))
          .join(";")
          .trim()
      : line;
    if (!isTouched || text !== "") kept.push(field, text);
  }
  return { cookies, headers: kept };
}

/** The text of a cookie that may be split, or null where a part is missing. */
export function joinedText(cookies: ReadonlyMap<string, string>): string | null {
  const [, parts = "", first = ""] = PARTS.exec(cookies.get("") ?? "") ?? [];
  if (parts === "") return null;
  let text = first;
  for (let i = 1; i < Number(parts); i++) text += cookies.get(`.${i}`) ?? "";
  return text;
}

const PARTS = /^([1-3])~([\w-]+)$/;
/** Browsers keep 4,096 bytes of a cookie with its name and attributes (RFC 6265 §6.1). */
const PART_LENGTH = 3_700;
/** In characters of a sealed text. */
export const MAX_SEALED = 3 * PART_LENGTH;

export interface CookieAttributes {
  readonly name: string;
  readonly isSecure: boolean;
}

/** The Set-Cookie headers for a text of at most `MAX_SEALED` characters. */
export function splitCookie({ name, isSecure }: CookieAttributes, text: string, maxAgeS: number): HeaderList {
  const count = Math.ceil(text.length / PART_LENGTH);
  return Array.from({ length: count }, (_, i) => {
    const part = text.slice(i * PART_LENGTH, (i + 1) * PART_LENGTH);
    return setCookie({ name: i === 0 ? name : `${name}.${i}`, isSecure }, i === 0 ? `${count}~${part}` : part, maxAgeS);
  }).flat();
}

/**
 * Lax: a link from another site, such as the provider's way back, comes with the cookie; a form or script of another
 * site does not.
 */
export function setCookie({ name, isSecure }: CookieAttributes, value: string, maxAgeS: number): HeaderList {
  return [
    "Set-Cookie",
    `${name}=${value}; Path=/; Max-Age=${maxAgeS}; HttpOnly; SameSite=Lax${isSecure ? "; Secure" : ""}`,
  ];
}

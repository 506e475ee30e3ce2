/**
 * Parses the form of the "Try it" page into the request for the gateway, or reports the errors.
 */
import type { ExplainRequest } from "./api.ts";

type TryForm = { readonly request: ExplainRequest } | { readonly errors: readonly FieldError[] };

/** The texts of the fields. `headers` has one header per line: "Name: value". */
export interface TryInput {
  readonly method: string;
  readonly url: string;
  readonly headers: string;
  /** "" is the gateway's default. */
  readonly clientIp: string;
  /** "": none. */
  readonly body: string;
}

export interface FieldError {
  readonly field: keyof TryInput;
  readonly message: string;
}

/** RFC 9110 §5.6.2 */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110 §5.5: bytes without control characters, except the tab. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Several lines of one header are joined (RFC 9110 §5.3). */
export function readTryForm(form: TryInput): TryForm {
  const errors: FieldError[] = [];
  const method = form.method.trim();
  const url = form.url.trim();
  if (!TOKEN.test(method))
    errors.push({
      field: "method",
      message:
        method === ""
          ? "Enter a method, such as GET."
          : `“${method}” is not a method: letters, digits and some punctuation, no spaces.`,
    });
  const problem = urlError(url);
  if (problem !== null) errors.push({ field: "url", message: problem });
  const headers = readHeaderLines(form.headers, errors);
  const clientIp = form.clientIp.trim();
  if (clientIp !== "" && !isAddress(clientIp))
    errors.push({
      field: "clientIp",
      message: `“${clientIp}” is not an IP address such as 203.0.113.9 or 2001:db8::1.`,
    });
  if (errors.length > 0) return { errors };
  return {
    request: {
      method,
      url,
      headers,
      ...(clientIp !== "" && { client_ip: clientIp }),
      ...(form.body !== "" && { body: form.body }),
    },
  };
}

function isAddress(text: string): boolean {
  if (/^\d{1,3}(?:\.\d{1,3}){3}$/.test(text)) return text.split(".").every((part) => Number(part) <= 255);
  return text.includes(":") && /^[0-9a-f:.]+$/i.test(text) && URL.canParse(`http://[${text}]/`);
}

function urlError(url: string): string | null {
  if (url === "") return "Enter a path, such as /shop/items/7.";
  if (/\s/.test(url)) return "A path contains no spaces: write %20 instead.";
  if (!url.startsWith("/") && !/^https?:\/\/[^/?#]/i.test(url))
    return "A path starts with “/”; a full URL starts with http:// or https:// and names a host.";
  if (/[^\x21-\x7e]/.test(url)) return "A path contains only ASCII characters: write %C3%A9 for é.";
  if (/^https?:\/\/[^/?]*@/i.test(url))
    return "User name and password are not sent in a URL: write an Authorization header.";
  return url.includes("#") ? "The fragment after “#” is never sent to a server: leave it out." : null;
}

function readHeaderLines(text: string, errors: FieldError[]): Readonly<Record<string, string>> {
  const headers = new Map<string, { readonly name: string; value: string }>();
  for (const [i, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() === "") continue;
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).trim();
    const value = line.slice(colon + 1).trim();
    if (colon < 0) errors.push({ field: "headers", message: `Line ${i + 1}: write “Name: value”, with a colon.` });
    else if (!TOKEN.test(name))
      errors.push({
        field: "headers",
        message:
          name === ""
            ? `Line ${i + 1}: the name before the colon is missing.`
            : `Line ${i + 1}: “${name}” is not a header name.`,
      });
    else if (!FIELD_VALUE.test(value))
      errors.push({
        field: "headers",
        message: `Line ${i + 1}: the value of ${name} contains a character that no header can carry.`,
      });
    else {
      const key = name.toLowerCase();
      const before = headers.get(key);
      // Cookies are joined with a semicolon (RFC 6265 §5.4).
      if (before === undefined) headers.set(key, { name, value });
      else before.value += `${key === "cookie" ? "; " : ", "}${value}`;
    }
  }
  return Object.fromEntries([...headers.values()].map(({ name, value }) => [name, value]));
}

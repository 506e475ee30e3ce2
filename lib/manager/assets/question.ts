/**
 * Parses the form under "Try it" into the question for the gateway, or says what is wrong with it.
 */
import type { Question } from "./api.ts";

export type Read = { readonly question: Question } | { readonly problems: readonly Problem[] };

export interface Problem {
  readonly field: "method" | "url" | "headers";
  readonly message: string;
}

/** RFC 9110 §5.6.2 */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110 §5.5: no control characters but the tab. */
const FIELD_VALUE = /^[^\u0000-\u0008\u000a-\u001f\u007f]*$/;

/** `headers` has one header a line: "Name: value". Several lines of one name are joined (RFC 9110 §5.3). */
export function readQuestion(form: { readonly method: string; readonly url: string; readonly headers: string }): Read {
  const problems: Problem[] = [];
  const method = form.method.trim();
  const url = form.url.trim();
  if (!TOKEN.test(method))
    problems.push({
      field: "method",
      message: method === "" ? "Enter a method, such as GET." : `“${method}” is no method: letters, digits and a few signs, without spaces.`,
    });
  const problem = urlProblem(url);
  if (problem !== null) problems.push({ field: "url", message: problem });
  const headers = readHeaders(form.headers, problems);
  return problems.length > 0 ? { problems } : { question: { method, url, headers } };
}

function urlProblem(url: string): string | null {
  if (url === "") return "Enter a path, such as /shop/items/7.";
  if (/\s/.test(url)) return "A path has no spaces: write %20 for one.";
  if (!url.startsWith("/") && !/^https?:\/\/[^/?#]/i.test(url))
    return "A path begins with “/”; a whole address begins with http:// or https:// and has a host.";
  return url.includes("#") ? "What stands behind “#” stays in the browser: leave it out." : null;
}

function readHeaders(text: string, problems: Problem[]): Readonly<Record<string, string>> {
  const headers = new Map<string, { readonly name: string; value: string }>();
  for (const [i, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() === "") continue;
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).trim();
    const value = line.slice(colon + 1).trim();
    if (colon < 0) problems.push({ field: "headers", message: `Line ${i + 1}: “Name: value”, with a colon between.` });
    else if (!TOKEN.test(name))
      problems.push({
        field: "headers",
        message: name === "" ? `Line ${i + 1}: no name before the colon.` : `Line ${i + 1}: “${name}” is no name of a header.`,
      });
    else if (!FIELD_VALUE.test(value)) problems.push({ field: "headers", message: `Line ${i + 1}: the value of ${name} has a control character.` });
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

/**
 * Which origins a web page may come from (RFC 6454 §6.1, as browsers write them in Origin). What an allowed one is told is `cors.ts`.
 */

/** Whether pages of this origin are allowed; `origin` is the header as it came. */
export type OriginTest = (origin: string) => boolean;

/** `entries` have been found right by `originProblem`; none of them is "*". */
export function originTest(entries: readonly string[]): OriginTest {
  const exact = new Set<string>();
  const below: { readonly scheme: string; readonly suffix: string }[] = [];
  for (const entry of entries) {
    const star = entry.indexOf("*");
    if (star < 0) exact.add(entry);
    else below.push({ scheme: entry.slice(0, star), suffix: entry.slice(star + 1) });
  }
  return (origin) => {
    if (exact.has(origin)) return true;
    for (const { scheme, suffix } of below) {
      if (!origin.startsWith(scheme) || !origin.endsWith(suffix)) continue;
      // Only what a browser can have written: "https://evil.example/.example.com" ends the same.
      const end = origin.length - suffix.length;
      if (end > scheme.length && isHostPart(origin, scheme.length, end)) return true;
    }
    return false;
  };
}

/** Undefined for `*`, for an origin, and for one with `*.` in front of its host; else what is wrong with it. */
export function originProblem(text: string): string | undefined {
  if (text === "*") return undefined;
  if (text === "null") return "null is the origin of any page that hides its own: allow * or none of them";
  if (text !== text.toLowerCase()) return `browsers write it in lower case, "${text.toLowerCase()}"`;
  const match = ORIGIN.exec(text);
  if (match === null) return NOT_ASCII.test(text) ? "browsers write names beyond ASCII in their xn-- form" : "";
  const { scheme, port, rest } = match.groups as { scheme: string; port?: string; rest: string };
  if (rest !== "") return `an origin has no path: write "${text.slice(0, text.length - rest.length)}"`;
  if (port !== undefined && (Number(port) > 65_535 || port.startsWith("0"))) return "a port is a number from 1 to 65535";
  if (port !== undefined && port === DEFAULT_PORTS[scheme]) return `browsers leave out the default port: write "${text.slice(0, text.lastIndexOf(":"))}"`;
  return undefined;
}

const ORIGIN = /^(?<scheme>[a-z][a-z0-9+.-]*):\/\/(?:(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?<port>[0-9]{1,5}))?(?<rest>(?:\/.*)?)$/;
const NOT_ASCII = /[^\x00-\x7f]/;
const DEFAULT_PORTS: Readonly<Record<string, string | undefined>> = { http: "80", https: "443" };

function isHostPart(text: string, start: number, end: number): boolean {
  for (let i = start; i < end; i++) {
    const c = text.charCodeAt(i);
    const isAlphanumeric = (c >= 0x61 && c <= 0x7a) || (c >= 0x30 && c <= 0x39);
    if (!isAlphanumeric && c !== 0x2d && c !== 0x2e && c !== 0x5f) return false;
  }
  return true;
}

/**
 * `edge-gateway help CODE`: what docs/troubleshooting.md says about an error, a warning or a message.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { suggest } from "../base/suggest.ts";
import { version } from "../base/version.ts";
import { entriesOf, ownPage, TROUBLESHOOTING, type CodeEntry } from "../operator/own_docs.ts";

/** What to print of a code or message. Null: there is no entry of this name. */
export function codeHelp(name: string): string | null {
  const page = ownPage(TROUBLESHOOTING);
  if (page === null) return Object.hasOwn(ERRORS, name) ? withoutPage(name as ErrorCode) : null;
  const found = entriesOf(page).filter(({ code }) => fits(code, name));
  return found.length === 0 ? null : found.map(textOf).join("\n");
}

function textOf({ heading, code, facts }: CodeEntry): string {
  const lines = facts.filter(([, text]) => text !== "").map(([name, text]) => `  ${name}: ${text}\n`);
  return `${code} (docs/troubleshooting.md, ${heading})\n${lines.join("")}`;
}

function withoutPage(code: ErrorCode): string {
  const { status, title } = ERRORS[code];
  return `${code}\n  Status: ${status}\n  Title: ${title}\n  ${ELSEWHERE}\n`;
}

const ELSEWHERE =
  `This package has no documentation: docs/troubleshooting.md of edge-gateway ` + `${version} has cause and remedy.`;

/** How to go on where there is no entry: the names that contain what was given, else the nearest one. */
export function codesLike(name: string): string {
  const page = ownPage(TROUBLESHOOTING);
  const codes =
    page === null
      ? Object.keys(ERRORS)
      : entriesOf(page)
          .map(({ code }) => code)
          .filter((code) => /^\w+$/.test(code));
  const containing = codes.filter((code) => name.length > 2 && code.includes(name));
  const nearest = containing.length > 0 ? containing : [suggest(name, codes) ?? []].flat();
  const advice =
    nearest.length === 0 ? "" : `; there ${nearest.length === 1 ? "is" : "are"} ${[...new Set(nearest)].join(", ")}`;
  return page === null ? `${advice}. ${ELSEWHERE}` : advice;
}

/** Whether text is the code, or the message with something in the place of each "…". */
function fits(code: string, text: string): boolean {
  const [first = "", ...others] = code.split("…");
  if (others.length === 0) return code === text;
  let at = first.length;
  const isThere = (part: string) => (at = text.indexOf(part, at) + part.length) >= part.length;
  return code.length > 1 && text.startsWith(first) && others.every(isThere);
}

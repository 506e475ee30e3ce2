/**
 * `edge-gateway help CODE`: what docs/troubleshooting.md says about an error, a warning or a message.
 */
import { readFileSync } from "node:fs";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import { suggest } from "../base/suggest.ts";
import { version } from "../base/version.ts";

export interface CodeEntry {
  /** The heading above its table: "Errors". */
  readonly heading: string;
  /** The code or message with which the first cell begins: "key_missing". "…" stands for variable text. */
  readonly code: string;
  /** The other cells, each with the name of its column. */
  readonly facts: readonly (readonly [name: string, text: string])[];
}

/** The rows of all tables of a page. */
export function entriesOf(page: string): CodeEntry[] {
  const entries: CodeEntry[] = [];
  let heading = "";
  let columns: readonly string[] | null = null;
  for (const line of page.split("\n")) {
    if (line.startsWith("## ")) heading = line.slice(3);
    if (!line.startsWith("|")) columns = null;
    else if (columns === null) columns = cellsOf(line);
    else if (!line.startsWith("|---")) {
      const [first = "", ...cells] = cellsOf(line);
      const names = columns.slice(1);
      entries.push({
        heading,
        code: /^`([^`]+)`/.exec(first)?.[1] ?? first,
        facts: cells.map((text, i) => [names[i] ?? "", text]),
      });
    }
  }
  return entries;
}

/** Without Markdown's links: `see [Scale](scale.md#x)` -> `see Scale (docs/scale.md#x)` */
function cellsOf(row: string): string[] {
  const cells = row.split(/(?<!\\)\|/).slice(1, -1);
  return cells.map((cell) =>
    cell
      .trim()
      .replaceAll("\\|", "|")
      .replace(/\[([^\]]+)\]\(([^)#]*)(#[^)]*)?\)/g, linkText),
  );
}

function linkText(_link: string, text: string, page: string, anchor = ""): string {
  return `${text} (docs/${page === "" ? "troubleshooting.md" : page}${anchor})`;
}

/** What to print of a code or message. Null: there is no entry of this name. */
export function codeHelp(name: string): string | null {
  const page = ownPage();
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
  const page = ownPage();
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

/**
 * This file is in lib/cli/ in the sources and in dist/lib/cli/ once built. Null: the package has no docs, as
 * `edge-gateway build` makes it.
 */
function ownPage(): string | null {
  for (const path of ["../../docs/troubleshooting.md", "../../../docs/troubleshooting.md"]) {
    try {
      return readFileSync(new URL(path, import.meta.url), "utf8");
    } catch {
      // It is in the other folder, or nowhere.
    }
  }
  return null;
}

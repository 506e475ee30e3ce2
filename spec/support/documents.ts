/** The documents of the repository, read as Markdown: headings, tables, code blocks and links. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
export const read = (path: string) => readFileSync(`${root}/${path}`, "utf8");

export interface Block {
  /** The info string of the opening fence: "json", "json output". */
  readonly info: string;
  readonly text: string;
}

export interface Document {
  /** From the root: "docs/tls.md". */
  readonly path: string;
  readonly text: string;
  /** The text without its code blocks. */
  readonly prose: string;
  readonly blocks: readonly Block[];
  /** Targets of links and images, in order. */
  readonly links: readonly string[];
  /** Names that `#…` may lead to. */
  readonly anchors: readonly string[];
}

/** Every document that ships or that contributors read; the changelog is not among them. */
export const documents: readonly Document[] = [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  ...readdirSync(`${root}/docs`, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name.replaceAll("\\", "/")}`)
    .sort(),
].map(documentOf);

export function documentOf(path: string): Document {
  const text = read(path);
  const blocks = [...text.matchAll(/^```(.+)\n([^]*?)^```$/gm)].map((match) => ({ info: match[1]!, text: match[2]! }));
  const prose = text.replace(/^```[^]*?^```$/gm, "");
  const headings = [...prose.matchAll(/^#+ (.+)$/gm)].map((match) => match[1]!.toLowerCase());
  return {
    path,
    text,
    prose,
    blocks,
    links: [...prose.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1]!),
    anchors: headings.map((heading) => heading.replace(/[^\p{L}\p{N}_ -]/gu, "").replaceAll(" ", "-")),
  };
}

/** The first group of every match. */
export function found(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map((match) => match[1]!);
}

/** The code blocks of one kind: "sh". */
export function blocksOf({ blocks }: Document, info: string): string[] {
  return blocks.filter((block) => block.info === info).map(({ text }) => text);
}

/** A pattern in which `…` stands for any text, and a line of it for any lines. */
export function patternOf(expected: string): RegExp {
  const escaped = expected.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const loose = escaped
    .replace(/\n…(?=\n)/g, "(?:\\n[^]*?)?")
    .replace(/\n…$/, "(?:\\n[^]*)?")
    .replaceAll("…", "[^]*?");
  return new RegExp(`^${loose}$`);
}

/** The document of this path. Throws if there is none. */
export function document(path: string): Document {
  const page = documents.find((each) => each.path === path);
  if (page === undefined) throw new Error(`there is no ${path}`);
  return page;
}

/** The rows of the first table under a heading, without the backticks around cells. */
export function tableUnder(heading: string, { path, text }: Document): string[][] {
  const lines = text.split("\n");
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, "") === heading);
  if (start < 0) throw new Error(`${path} has no heading "${heading}"`);
  const rows: string[][] = [];
  let fenced = false;
  for (const line of lines.slice(start + 1)) {
    if (line.startsWith("```")) fenced = !fenced;
    else if (line.startsWith("|") && !fenced) rows.push(cellsOf(line));
    else if (rows.length > 0 || (/^#+ /.test(line) && !fenced)) break;
  }
  if (rows.length < 3) throw new Error(`${path} has no table under "${heading}"`);
  return rows.slice(2); // below the header and its rule
}

function cellsOf(line: string): string[] {
  const cells = line.slice(1, -1).split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replace(/^`([^`]*)`$/, "$1"));
}

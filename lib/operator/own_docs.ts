/**
 * Reads the documentation that is in the package: its pages, and what they say about codes.
 */
import { readdirSync, readFileSync } from "node:fs";

export const TROUBLESHOOTING = "troubleshooting.md";

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

/**
 * The text of a page. This file is in lib/operator/ in the sources and in dist/lib/operator/ once built. Null: the
 * package has no docs, as `edge-gateway build` makes it.
 */
export function ownPage(name: string): string | null {
  return inDocs((docs) => readFileSync(new URL(name, docs), "utf8"));
}

/** "routing.md", "plugins/jwt.md"; null: the package has no docs. */
export function ownPages(): readonly string[] | null {
  const pagesIn = (folder: URL) => readdirSync(folder).filter((name) => name.endsWith(".md"));
  return inDocs((docs) => [...pagesIn(docs), ...pagesIn(new URL("plugins/", docs)).map((name) => `plugins/${name}`)]);
}

function inDocs<T>(read: (docs: URL) => T): T | null {
  for (const path of ["../../docs/", "../../../docs/"]) {
    try {
      return read(new URL(path, import.meta.url));
    } catch {
      // They are in the other folder, or nowhere.
    }
  }
  return null;
}

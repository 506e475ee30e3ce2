/**
 * The documentation that the gateway has in its package, for browsers that reach nothing else: "#/docs", one page of
 * it, "#/docs/routing.md/Hosts", and what a code means, "#/docs/code/rate_limited".
 */
import { ask, type DocsIndex } from "./api.ts";
import { askingFor } from "./asking.ts";
import { factList, link, loading } from "./components.ts";
import { el, replace } from "./dom.ts";
import type { Frame, OpenPage, Page } from "./page.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";

const DOCS = "/gateway/docs";

export const page: OpenPage = (frame) =>
  shownOnce(
    frame,
    "Docs",
    () => ask<DocsIndex>("GET", DOCS),
    ({ pages }) => [
      el(
        "ul",
        { class: "list" },
        ...pages.map((each) => el("li", {}, link(hashFor("docs", each.page, each.title), each.title))),
      ),
    ],
  );

export const onePage: OpenPage = (frame, [name = "", chapter = ""]) => {
  if (name === "code")
    return shownOnce(
      frame,
      chapter,
      () => ask<DocsIndex>("GET", DOCS),
      (index) => codeOf(index, chapter),
    );
  const read = () => ask<{ readonly text: string }>("GET", `${DOCS}?${new URLSearchParams({ page: name })}`);
  return shownOnce(frame, chapter, read, ({ text }) => [
    el("pre", { class: "docs" }, chapterOf(text, chapter)),
    el("p", {}, link("#/docs", "All pages"), ` · docs/${name} in the package`),
  ]);
};

function codeOf({ codes }: DocsIndex, code: string): readonly HTMLElement[] {
  const found = codes.filter((each) => each.code === code);
  if (found.length === 0) return [el("p", {}, "The documentation has no such code.")];
  return [
    ...found.map(({ heading, facts }) => factList([["Where", heading], ...Object.entries(facts).map(markedUp)])),
    el("p", {}, link(hashForRequests({ code }), "Requests with this code")),
  ];
}

/** Between backticks stands code. */
function markedUp([name, text]: readonly [string, string]): readonly [string, HTMLElement] {
  return [name, el("span", {}, ...text.split("`").map((part, i) => (i % 2 === 1 ? el("code", {}, part) : part)))];
}

/** From its heading to the next one of its rank or above; as a whole where it has none of this name. */
function chapterOf(text: string, chapter: string): string {
  const lines = text.split("\n");
  const start = lines.findIndex((line) => /^#+ /.test(line) && line.replace(/^#+ /, "") === chapter);
  if (start < 0) return text;
  const rank = lines[start]!.indexOf(" ");
  let isCode = false;
  const end = lines.findIndex((line, i) => {
    if (line.startsWith("```")) isCode = !isCode;
    return i > start && !isCode && /^#+ /.test(line) && line.indexOf(" ") <= rank;
  });
  return lines.slice(start, end < 0 ? lines.length : end).join("\n");
}

function shownOnce<T>(
  frame: Frame,
  title: string,
  read: () => Promise<T>,
  show: (found: T) => readonly HTMLElement[],
): Page {
  const node = el("div", { class: "card stack" }, loading("the documentation"));
  const load = askingFor({
    frame,
    what: "The documentation",
    node,
    ask: read,
    show: (found) => replace(node, ...show(found)),
  });
  queueMicrotask(() => void load());
  return { title, node, update() {} };
}

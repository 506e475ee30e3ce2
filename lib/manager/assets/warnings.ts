/**
 * Shows warnings: each with the problem, an example of a request, the remedy, and a link to the page of the item; those
 * of one cause as one.
 */
import type { Warning } from "./api.ts";
import { breakable, fixedBadge, link, setOptional, stateBadge } from "./components.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { counted, number } from "./format.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";
import type { Part } from "./tables.ts";
import { editorHash, linkForWarning } from "./url_hash.ts";
import { groupsOf, type Severity, type WarningGroup } from "./warning_groups.ts";

/** Further warnings are shown after a click. */
const MAX_WARNINGS = 6;
const SEVERITIES = {
  failing: ["bad", "Failing"],
  risk: ["warn", "Risk"],
  advice: ["idle", "Advice"],
} as const satisfies Readonly<Record<Severity, readonly [string, string]>>;

/** Hidden while there are no warnings. `isShort`: a line for each, which opens to the rest. */
export function warningList(frame: Pick<Frame, "session">, label = "Warnings", isShort = false) {
  const list = el("ul", { class: "warnings" });
  const more = el("ul", { class: "warnings" });
  const count = el("summary");
  const rest = el("details", { class: "more" }, count, more);
  const node = el("section", { "aria-label": label, hidden: true }, list, rest);
  const draw = whenChanged(({ warnings, ...text }: Text & { readonly warnings: readonly Warning[] }) => {
    const groups = groupsOf(warnings).map((group) => groupRow(group, isShort, text));
    node.hidden = groups.length === 0;
    replace(list, ...groups.slice(0, MAX_WARNINGS));
    replace(more, ...groups.slice(MAX_WARNINGS));
    rest.hidden = groups.length <= MAX_WARNINGS;
    setText(count, `${number(groups.length - MAX_WARNINGS)} more`);
  });
  const update = (warnings: readonly Warning[]) =>
    draw({ warnings, digest: live.known?.status?.digest ?? "", isEditable: frame.session?.write === true });
  return { node, update };
}

/** Of the configuration in force. */
interface Text {
  readonly digest: string;
  readonly isEditable: boolean;
}

function groupRow({ severity, first, others }: WarningGroup, isShort: boolean, text: Text): HTMLElement {
  const [tone, label] = SEVERITIES[severity];
  const message = [fixedBadge(tone, label), " ", first.message];
  const more =
    others.length > 0 &&
    el(
      "details",
      { class: "more" },
      el("summary", {}, `and ${number(others.length)} more of it`),
      el("ul", { class: "stack" }, ...others.map((other) => otherRow(other, text))),
    );
  const all = isShort
    ? el("details", { class: "warning" }, el("summary", {}, ...message), ...factsOf(first, text), more)
    : el("div", { class: "warning" }, el("p", {}, ...message), ...factsOf(first, text), more);
  return el("li", { class: `notice notice--${tone}` }, all, linkOf(first));
}

function otherRow(warning: Warning, text: Text): HTMLElement {
  return el("li", {}, el("p", {}, warning.message), ...factsOf(warning, text), linkOf(warning));
}

function factsOf(
  { code, path, line, column, example, remedy }: Warning,
  { digest, isEditable }: Text,
): readonly (HTMLElement | false)[] {
  const place = line !== null && `line ${line}`;
  return [
    example !== null && el("p", {}, "Example: ", el("code", {}, example)),
    el("p", {}, "Remedy: ", remedy),
    // As `global.accept_warnings` names it.
    el(
      "p",
      { class: "muted" },
      el("code", {}, ...breakable(path === null ? code : `${code}:${path}`)),
      place && " ",
      place && isEditable ? link(editorHash({ line, column, path: path ?? code }, digest), place) : place,
    ),
  ];
}

function linkOf(warning: Warning): HTMLElement | null {
  const target = linkForWarning(warning);
  return target === null || target.hash === location.hash ? null : el("a", { href: target.hash }, target.text);
}

/** For a cell of a table: the contents, and below them a badge while there are warnings. */
export function withWarnings(contents: readonly Node[], countOf: () => number): Part {
  const badge = stateBadge();
  return {
    node: el("span", {}, ...contents, el("span", { class: "sub" }, badge.node)),
    refresh() {
      const count = countOf();
      setOptional(badge, count === 0 ? null : { text: counted(count, "warning"), tone: "warn" });
    },
  };
}

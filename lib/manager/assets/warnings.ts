/**
 * Shows warnings: each with the problem, an example of a request, the remedy, and a link to the page of the item; those
 * of one cause as one.
 */
import type { Warning } from "./api.ts";
import { breakable, fixedBadge, link, setOptional, stateBadge } from "./components.ts";
import { button, el, replace, setText, whenChanged } from "./dom.ts";
import { counted, moment, number } from "./format.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";
import { nameOf, snooze, snoozed } from "./snoozes.ts";
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

type Asked = Pick<Frame, "session" | "acceptWarning">;

/** Hidden while there are no warnings. */
export function warningList(frame: Asked, label = "Warnings") {
  const list = groupList();
  const node = el("section", { "aria-label": label, hidden: true }, list.node);
  const draw = whenChanged(({ warnings, ...text }: Text & { readonly warnings: readonly Warning[] }) => {
    const groups = groupsOf(warnings);
    node.hidden = groups.length === 0;
    list.show(groups.map((group) => groupRow(group, { ...text, frame, again: null })));
  });
  return { node, update: (warnings: readonly Warning[]) => draw({ warnings, ...textOf(frame) }) };
}

const HOUR_MS = 3_600_000;

/** As one line, which opens to the list; each can be snoozed. */
export function incidentLine(frame: Asked, title: string) {
  const list = groupList();
  const asleep = el("ul", { class: "stack" });
  const summary = el("summary");
  const details = el("details", { class: "notice incidents" }, summary, list.node, asleep);
  const node = el("section", { "aria-label": title, hidden: true }, details);
  let last: readonly Warning[] = [];
  const draw = whenChanged(
    (shown: Text & { readonly warnings: readonly Warning[]; readonly sleeping: Readonly<Record<string, number>> }) => {
      const { warnings, sleeping, ...text } = shown;
      const all = groupsOf(warnings);
      const groups = all.filter(({ first }) => sleeping[nameOf(first)] === undefined);
      const away = all.filter((group) => !groups.includes(group)).map(({ first }) => first);
      const [worst] = groups;
      node.hidden = all.length === 0;
      const [tone, label] = worst === undefined ? (["idle", ""] as const) : SEVERITIES[worst.severity];
      details.className = `notice notice--${tone} incidents`;
      const rest = groups.length > 1 && el("span", { class: "muted" }, ` and ${number(groups.length - 1)} more`);
      if (worst === undefined) replace(summary, `${counted(away.length, "snoozed warning")}`);
      else replace(summary, fixedBadge(tone, label), " ", worst.first.message, rest);
      list.show(groups.map((group) => groupRow(group, { ...text, frame, again: () => update(last) })));
      replace(asleep, ...away.map((warning) => sleeper(warning, sleeping[nameOf(warning)]!, () => update(last))));
    },
  );
  return { node, update };

  function update(warnings: readonly Warning[]): void {
    last = warnings;
    draw({ warnings, sleeping: Object.fromEntries(snoozed()), ...textOf(frame) });
  }
}

function sleeper(warning: Warning, until: number, again: () => void): HTMLElement {
  const wake = () => (snooze(nameOf(warning), 0), again());
  const text = `${warning.message} Snoozed until ${moment(new Date(until).toISOString())}. `;
  return el("li", { class: "muted" }, text, button("Wake", wake, "small"));
}

/** The first of them, and the rest after a click. */
function groupList() {
  const list = el("ul", { class: "warnings" });
  const more = el("ul", { class: "warnings" });
  const count = el("summary");
  const rest = el("details", { class: "more" }, count, more);
  return {
    node: el("div", {}, list, rest),
    show(rows: readonly HTMLElement[]): void {
      replace(list, ...rows.slice(0, MAX_WARNINGS));
      replace(more, ...rows.slice(MAX_WARNINGS));
      rest.hidden = rows.length <= MAX_WARNINGS;
      setText(count, `${number(rows.length - MAX_WARNINGS)} more`);
    },
  };
}

/** Of the configuration in force. */
interface Text {
  readonly digest: string;
  readonly isEditable: boolean;
}

function textOf({ session }: Pick<Frame, "session">): Text {
  return { digest: live.known?.status?.digest ?? "", isEditable: session?.write === true };
}

/** `again`: draws the list anew; null: its warnings cannot be snoozed. */
interface Row extends Text {
  readonly frame: Asked;
  readonly again: (() => void) | null;
}

function groupRow({ severity, first, others }: WarningGroup, row: Row): HTMLElement {
  const [tone, label] = SEVERITIES[severity];
  const more =
    others.length > 0 &&
    el(
      "details",
      { class: "more" },
      el("summary", {}, `and ${number(others.length)} more of it`),
      el("ul", { class: "stack" }, ...others.map((other) => otherRow(other, row))),
    );
  const message = el("p", {}, fixedBadge(tone, label), " ", first.message);
  const all = el("div", { class: "warning" }, message, ...factsOf(first, row), more);
  return el("li", { class: `notice notice--${tone}` }, all, linkOf(first));
}

function otherRow(warning: Warning, row: Row): HTMLElement {
  return el("li", {}, el("p", {}, warning.message), ...factsOf(warning, { ...row, again: null }), linkOf(warning));
}

function factsOf(warning: Warning, { digest, isEditable, frame, again }: Row): readonly (HTMLElement | false)[] {
  const { code, path, line, column, example, remedy } = warning;
  const name = nameOf(warning);
  const place = line !== null && `line ${line}`;
  const accept = () => frame.acceptWarning(name);
  const snoozeFor = (ms: number) => () => (snooze(name, ms), again?.());
  const actions = [
    isEditable &&
      warning.acceptable === true &&
      button("Accept in the draft", accept, "small", { "aria-label": `Accept ${name} in the draft` }),
    again !== null && button("Snooze 1 hour", snoozeFor(HOUR_MS), "small"),
    again !== null && button("1 day", snoozeFor(24 * HOUR_MS), "small", { "aria-label": "Snooze 1 day" }),
  ];
  return [
    example !== null && el("p", {}, "Example: ", el("code", {}, example)),
    el("p", {}, "Remedy: ", remedy),
    // As `global.accept_warnings` names it.
    el(
      "p",
      { class: "muted" },
      el("code", {}, ...breakable(name)),
      place && " ",
      place && isEditable ? link(editorHash({ line, column, path: path ?? code }, digest), place) : place,
    ),
    actions.some((action) => action !== false) && el("div", { class: "badges" }, ...actions),
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

/**
 * Shows what another text of the configuration would change, before anything does: lost guards first, then routes,
 * tests and recent requests, as the gateway has found them, and the lines of the text.
 */
import { ask, isSessionEnd, type Issue, type RoutePlace, type Validation } from "./api.ts";
import { asking } from "./asking.ts";
import { breakable, fixedBadge, link, listOf, notice, section, unreadable } from "./components.ts";
import { el, replace, setText, type Child } from "./dom.ts";
import { counted, number } from "./format.ts";
import type { Frame } from "./page.ts";
import { textDiff } from "./text_diff.ts";
import { hashFor } from "./url_hash.ts";

/** Lines of the difference that are shown. */
const MAX_LINES = 1500;
/** A text without line breaks is one line of any length. */
const MAX_COLUMNS = 2000;

interface ReviewOptions {
  readonly frame: Frame;
  readonly before: string;
  readonly after: string;
  /** Gets the reason why `after` cannot come into force; null: nothing is known that forbids it. */
  readonly judged: (whyNot: string | null) => void;
}

/** Of a text that is no draft. */
export function changeReview({ frame, before, after, judged }: ReviewOptions): HTMLElement {
  const meaning = el("div", { class: "stack", role: "status" });
  // A review that was replaced by another one has no say in what the page offers.
  const judge = asking({
    node: meaning,
    ask() {
      replace(meaning, el("p", { class: "muted" }, BEING_CHECKED));
      judged(BEING_CHECKED);
      return ask<Validation>("POST", "/gateway/validate", { text: after });
    },
    show(validation) {
      replace(meaning, ...meaningOf(validation));
      judged(whyNot(validation));
    },
    failed(error) {
      if (isSessionEnd(error)) return frame.showError(error);
      replace(meaning, ...unreadable("The check", error, () => void judge()));
      judged(null);
    },
  });
  void judge();
  return reviewOf(meaning, before, after);
}

export function reviewOf(meaning: HTMLElement, before: string, after: string): HTMLElement {
  return el(
    "div",
    { class: "stack" },
    section("What it means", meaning),
    section("The text", textChanges(before, after)),
  );
}

export const BEING_CHECKED = "The gateway checks, tests and compares the text…";

/** Why the gateway would not take a text; null: it would, or only a reload can tell. */
export function whyNot({ outcome, issues, tests }: Validation): string | null {
  // A text that is only tried loads no further plugin module.
  const isOpen = ({ code, path }: Issue) => code !== undefined || path.startsWith("global.plugin_modules[");
  if (outcome === "accepted" || issues.every(isOpen)) return null;
  const failed = tests?.failed ?? 0;
  return (
    `The gateway would refuse it: ` +
    `${failed > 0 ? counted(failed, "failed test") : counted(issues.length, "error")}.`
  );
}

/** A button that cannot be pressed says beside it why. */
export function setWhyNot(pressed: HTMLElement, beside: HTMLElement, reason: string | null): void {
  pressed.setAttribute("aria-disabled", String(reason !== null));
  setText(beside, reason ?? "");
}

/** Lines as in a patch, with three lines around each change. */
export function textChanges(before: string, after: string): HTMLElement {
  const hunks = textDiff(before, after);
  if (hunks.length === 0) return el("p", { class: "muted" }, "The texts are the same.");
  const lines = hunks.flatMap((hunk, i) => [...(i === 0 ? [] : [null]), ...hunk]);
  const rows = lines.slice(0, MAX_LINES).map((line) => {
    if (line === null) return el("div", { class: "diff__gap" }, "⋯");
    const { kind, text } = line;
    const shown = text.length > MAX_COLUMNS ? `${text.slice(0, MAX_COLUMNS)}…` : text;
    // White space at the end would look like no change.
    const content =
      kind === "same"
        ? shown
        : shown.replace(/[ \t\r]+$/, (space) => space.replaceAll(" ", "·").replaceAll("\t", "→").replaceAll("\r", "␍"));
    const numbers = el(
      "span",
      { class: "diff__number" },
      `${line.before ?? ""}`.padStart(5),
      `${line.after ?? ""}`.padStart(6),
    );
    const tag = kind === "same" ? "span" : kind === "added" ? "ins" : "del";
    return el(
      "div",
      { class: `diff__line diff__line--${kind}` },
      numbers,
      el(tag, {}, `${{ same: " ", added: "+", removed: "−" }[kind]} ${content}`),
    );
  });
  const rest = lines.length - rows.length;
  const node = el("div", { class: "diff mono", tabindex: "0", role: "region", "aria-label": "Changed lines" }, ...rows);
  return el("div", { class: "stack" }, node, rest > 0 && el("p", { class: "muted" }, `and ${number(rest)} more lines`));
}

/** The errors of a text, with links to their places in the editor. */
export function issueLinks(issues: readonly Issue[]): HTMLElement {
  return listOf(issues, ({ path, line, column, message, file }) => {
    const place = line === null ? null : `line ${line}, column ${column ?? 1}`;
    const where =
      place === null || file !== undefined
        ? [file, place].filter((part) => part != null).join(", ")
        : link(`#/edit?line=${line}&column=${column ?? 1}`, place);
    return [where, where !== "" && ": ", path !== "" && el("code", {}, ...breakable(path)), " ", message];
  });
}

export function meaningOf({
  outcome,
  issues,
  tests,
  untested,
  diff,
  requests,
  warnings,
}: Validation): readonly Child[] {
  const code = issues[0]?.code;
  const refused = notice(
    code === undefined ? "bad" : "warn",
    code === undefined ? "The gateway would refuse it." : LACKS[code],
    "",
    issueLinks(issues),
  );
  return [
    outcome === "refused" ? refused : el("p", {}, fixedBadge("good", "The gateway would accept it")),
    ...(diff === null
      ? [el("p", { class: "muted" }, "Routes and tests are compared once it has no errors.")]
      : [...routeChanges(diff), ...testsOf(tests, untested)]),
    ...moved(requests),
    warnings.length > 0 &&
      el(
        "details",
        { class: "more" },
        el("summary", {}, counted(warnings.length, "warning")),
        listOf(warnings, ({ message, remedy }) => [`${message} ${remedy}`]),
      ),
  ];
}

/** Of refusals that are no fault of the text. */
const LACKS = {
  unsigned: "The gateway would accept it with a signature.",
  unchecked: "Only a reload can tell whether the gateway accepts it.",
} as const;

function routeChanges({
  guards_lost: lost,
  removed,
  changed,
  added,
  other,
}: NonNullable<Validation["diff"]>): readonly Child[] {
  if ([lost, removed, changed, added, other].every((list) => list.length === 0))
    return [el("p", {}, "No route changes.")];
  const guards = listOf(lost, (each) => [
    placeLink(each),
    ` is no longer guarded by ${each.guards.join(", ")}`,
    each.altered.length > 0 && ` (another configuration: ${each.altered.join(", ")})`,
    each.example !== null && el("span", {}, ", as in ", el("code", {}, ...breakable(each.example))),
  ]);
  return [
    lost.length > 0 && notice("bad", `Guards are lost on ${counted(lost.length, "route")}.`, "", guards),
    part("Routes removed", "bad", removed, (place) => [placeLink(place)]),
    part("Routes changed", "warn", changed, ({ changes, ...place }) => [placeLink(place), `: ${changes.join(", ")}`]),
    part("Routes added", "good", added, (place) => [placeText(place)]),
    part("Other changes", "idle", other, (text) => [text]),
  ];
}

function part<T>(
  title: string,
  tone: "good" | "warn" | "bad" | "idle",
  items: readonly T[],
  shown: (item: T) => readonly Child[],
): HTMLElement | null {
  return items.length === 0
    ? null
    : el(
        "div",
        { class: "part" },
        el("h3", {}, fixedBadge(tone, `${title}: ${number(items.length)}`)),
        listOf(items, shown),
      );
}

function testsOf(tests: Validation["tests"], untested: string | null): readonly Child[] {
  if (tests === null) return [el("p", { class: "muted" }, "The configuration has no tests.")];
  const { passed, failed, failures } = tests;
  const list = listOf(failures, ({ name, line, column, differences }) => [
    line === null ? name : link(`#/edit?line=${line}&column=${column ?? 1}`, name),
    `: ${differences.join("; ")}`,
  ]);
  const text =
    failed === 0
      ? `${counted(passed, "test")} passed.`
      : `${number(failed)} of ${counted(passed + failed, "test")} failed.`;
  return [
    notice(
      failed === 0 ? "good" : "bad",
      text,
      "",
      untested !== null && el("p", {}, untested),
      failures.length > 0 && list,
    ),
  ];
}

function moved(requests: Validation["requests"]): readonly Child[] {
  if (requests === null || requests.checked === 0) return [];
  const { checked, other_route: other, no_route: none, undecided, examples } = requests;
  const open = undecided === 0 ? "" : ` ${number(undecided)} depend on headers, which are not kept.`;
  const text =
    `Of the last ${counted(checked, "request")}, ${number(other)} would meet another route and ` +
    `${number(none)} no route.${open}`;
  const list = listOf(examples, ({ request, before, after }) => [
    el("code", {}, ...breakable(request)),
    `: ${placeText(before)} → ${placeText(after)}`,
  ]);
  return [
    el(
      "div",
      { class: `notice notice--${other + none === 0 ? "good" : "warn"}` },
      el("p", {}, text),
      examples.length > 0 && list,
    ),
  ];
}

function placeLink({ service, route }: RoutePlace): HTMLElement {
  return link(hashFor("routes", service, route), ...breakable(`${service} / ${route}`));
}

function placeText(place: RoutePlace | null): string {
  return place === null ? "no route" : `${place.service} / ${place.route}`;
}

/**
 * What failed among the remembered requests of a service, a route, an upstream or a caller: how many, by code, by who
 * answered and by upstream, and the latest as examples. Each leads to the page Requests.
 */
import { ageOf } from "./ages.ts";
import type { RequestDecision, RequestList } from "./api.ts";
import { figuresAt } from "./asking.ts";
import { link, section } from "./components.ts";
import { button, el, replace, setText, whenChanged } from "./dom.ts";
import { number, percent } from "./format.ts";
import { ratioOf, rankingCard } from "./ranking_view.ts";
import { first, type RankingRow } from "./rankings.ts";
import type { Part } from "./tables.ts";
import { hashForRequests } from "./url_hash.ts";

const CLASSES = ["5xx", "4xx"] as const;
const FACETS = [
  ["By code", "code"],
  ["Answered by", "by"],
  ["Upstreams asked", "upstream"],
] as const;
const EXAMPLES = 5;
const EVERY_MS = 5_000;

/** Of what: parameters of GET /gateway/requests. */
type Of = Readonly<Record<string, string>>;

export function failures(of: Of): Part {
  let chosen: (typeof CLASSES)[number] = "5xx";
  // Until somebody chooses, what there is of the two.
  let isChosen = false;
  const path = () => `/gateway/requests?${new URLSearchParams({ ...of, status: chosen, limit: `${EXAMPLES}` })}`;
  const asking = figuresAt<RequestList>(path, "The failures", show, () => EVERY_MS);
  const buttons = CLASSES.map((name) => button(name, () => choose(name), "small"));
  const said = el("p");
  const cards = FACETS.map(([title, facet]) => {
    const rowsOf = (list: RequestList) => facetRows(list, facet, { ...of, status: chosen });
    return rankingCard<RequestList>({ title, unit: "requests", none: "None.", rowsOf });
  });
  const examples = el("ol", { class: "list" });
  const drawExamples = whenChanged((requests: readonly RequestDecision[]) =>
    replace(examples, ...requests.map(exampleOf)),
  );
  const found = el(
    "div",
    { class: "stack", hidden: true },
    el("div", { class: "grid rankings live" }, ...cards.map((each) => each.node)),
    el("div", { class: "card" }, el("h3", { class: "card__title" }, "The latest"), examples),
  );
  const chooser = el("div", { class: "toolbar", role: "group", "aria-label": "Failures shown" }, ...buttons, said);
  const node = section("Failures", chooser, found, asking.note);
  press();
  return { node, refresh: asking.update };

  function choose(name: typeof chosen): void {
    isChosen = true;
    chosen = name;
    press();
    void asking.load();
  }

  function press(): void {
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(CLASSES[i] === chosen)));
  }

  function show(list: RequestList): void {
    const counts = new Map(list.facets.status.values.map(({ value, count }) => [value, count]));
    const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const ofClass = (name: string) => counts.get(name) ?? 0;
    if (!isChosen && ofClass("5xx") === 0 && ofClass("4xx") > 0) return choose("4xx");
    found.hidden = list.matching === 0;
    const whole = `its ${number(all)} remembered requests`;
    if (all === 0) setText(said, "None of its requests is remembered.");
    else if (list.matching === 0) setText(said, `None of ${whole} got ${chosen}.`);
    else {
      const share = percent(ratioOf(ofClass(chosen), all));
      const allOf = link(hashForRequests({ ...of, status: chosen }), `All ${number(list.matching)}`);
      replace(said, `${share} of ${whole} got ${chosen}, since `, ageOf(list.since!), ". ", allOf);
    }
    for (const each of cards) each.update(list);
    // What is under the pointer or has the focus stays where it is.
    if (examples.querySelector("a:hover, a:focus-visible") === null) drawExamples(list.requests);
  }
}

/** The values of a member of requests that are most frequent; each leads to its requests. */
function facetRows(
  { facets, matching }: RequestList,
  facet: "code" | "by" | "upstream" | "route",
  of: Of,
): readonly RankingRow[] {
  const { values, others } = facets[facet];
  const row = (name: string, count: number, more: Of) => ({
    name,
    note: "",
    value: `${number(count)} · ${percent(ratioOf(count, matching))}`,
    by: count,
    hash: hashForRequests({ ...of, ...more }),
  });
  const rows = values.map(({ value, count }) => row(value, count, { [facet]: value }));
  const without = matching - others - values.reduce((sum, { count }) => sum + count, 0);
  if (facet === "code" && without > 0) rows.push(row("as the upstream answered", without, { by: "upstream" }));
  return first(rows);
}

/** The routes that the remembered requests of an upstream or a caller took. */
export function usedRoutes(of: Of): Part {
  const ranking = rankingCard<RequestList>({
    title: "Routes used",
    unit: "remembered requests",
    none: "None of its requests is remembered.",
    rowsOf: (list) => facetRows(list, "route", of),
  });
  const path = `/gateway/requests?${new URLSearchParams({ ...of, limit: "1" })}`;
  const asking = figuresAt<RequestList>(path, "Its requests", ranking.update, () => EVERY_MS);
  return { node: el("div", { class: "stack" }, ranking.node, asking.note), refresh: asking.update };
}

function exampleOf({ id, time, method, path, status, code, by, tries }: RequestDecision): HTMLElement {
  const attempts = tries.map((each) => `${each.upstream ?? "an upstream"}: ${each.status ?? "no response"}`);
  const facts = [`${status ?? "no status"}`, code, by, ...attempts].filter((fact) => fact !== null).join(" · ");
  return el(
    "li",
    {},
    link(hashForRequests({}, id), `${method ?? "?"} ${path ?? "?"}`),
    " ",
    facts,
    " ",
    el("span", { class: "muted" }, ageOf(time)),
  );
}

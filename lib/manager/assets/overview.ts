/**
 * The overview page: first what is wrong, then traffic as statistics and charts, the busiest, slowest and most failing
 * routes, refusals by code, health of upstreams, the last reload, certificates and warnings.
 */
import type { Certificate, Health, RevocationList, ServiceHealth, Status, UpstreamHealth } from "./api.ts";
import { Chart } from "./chart.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { ago, counted, listed, milliseconds, moment, number, percent, perSecond, unbroken, until } from "./format.ts";
import { figureCharts } from "./figure_charts.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";
import { clientErrorShare, errorShare, refusalsText, statusesText } from "./inventory.ts";
import { CHARTS, samplesOf } from "./traffic_charts.ts";
import { live } from "./live.ts";
import type { Known, OpenPage } from "./page.ts";
import { card, fixedBadge, loading, setOptional, stateBadge } from "./components.ts";
import { circuitLabel, upstreamLabel } from "./state_labels.ts";
import { configFacts, shownOf } from "./config_facts.ts";
import type { Part as Cell } from "./tables.ts";
import { rankingCard } from "./ranking_view.ts";
import { RANKINGS } from "./rankings.ts";
import { problemsOf } from "./warning_groups.ts";
import { incidentLine } from "./warnings.ts";

/** Services whose upstreams are shown; services with problems come first. */
const MAX_SERVICES = 24;
const MAX_UPSTREAMS = 16;
/** Of certificates, and of revocation lists, which are made anew every few days. */
const SOON_MS = 14 * 86_400_000;
const LIST_SOON_MS = 3 * 86_400_000;
/** Statistics arrive each second; older ones show their age. */
const FRESH_MS = 5000;

export const page: OpenPage = (frame) => {
  const age = el("p", { class: "notice", hidden: true });
  const problems = incidentLine(frame, "What is wrong");
  const fine = el("p", { class: "notice notice--good", hidden: true }, "Nothing fails at this moment.");
  const warnings = incidentLine(frame, "Warnings");
  const tiles = tileRow();
  const recent = Object.values(CHARTS).map(({ values, ...options }) => ({
    values,
    chart: new Chart({ ...options, empty: "No requests yet" }),
  }));
  const charts = figureCharts({}, recent);
  const rankings = RANKINGS.map(rankingCard);
  const health = healthCard();
  const reload = reloadCard();
  const certificates = certificateCard();

  const node = el(
    "div",
    { class: "stack" },
    age,
    problems.node,
    fine,
    tiles.node,
    charts.node,
    warnings.node,
    el("div", { class: "grid rankings" }, ...rankings.map((ranking) => ranking.node)),
    el("div", { class: "overview__lower" }, health.node, el("div", { class: "stack" }, reload.node, certificates.node)),
  );
  return { title: "Overview", node, shown: "top", update };

  function update(known: Known): void {
    const { status, stats, history, stepS, now } = known;
    const old = stats === null || known.connection === "live" ? 0 : now - Date.parse(stats.at);
    age.hidden = old < FRESH_MS;
    if (stats !== null)
      setText(age, `These statistics are from ${ago(stats.at, now)}. They update again once the connection is back.`);
    if (status !== null) drawWarnings(status);
    tiles.update(known);
    const end = stats === null ? null : Date.parse(stats.at);
    charts.update();
    for (const { chart, values } of recent)
      chart.update(samplesOf(history, stepS, stats, values), stepS, end, charts.marks);
    for (const ranking of rankings) ranking.update(stats);
    health.update(known.health);
    reload.update(status);
    certificates.update(status, now);
  }

  function drawWarnings(status: Status): void {
    const { problems: wrong, others } = problemsOf(status);
    problems.update(wrong);
    fine.hidden = wrong.length > 0;
    warnings.update(others);
  }
};

interface Part<T extends readonly unknown[]> {
  readonly node: HTMLElement;
  update(...known: T): unknown;
}

/** With the requests that each counts. */
const TILES = [
  ["Requests", {}],
  ["Error share", { status: "5xx" }],
  ["4xx", { status: "4xx" }],
  ["No route", { code: "route_not_found" }],
  ["p95 response", null],
  ["In flight", null],
  ["Limits hit", { code: "rate_limited" }],
  ["Up for", null],
] as const;

function tileRow(): Part<[Known]> {
  const tiles = TILES.map(([label, query]) => {
    const value = el("dd", { class: "stat__value" }, "–");
    const note = el("dd", { class: "stat__note" });
    const name = query === null ? label : el("a", { href: hashForRequests(query) }, label);
    return { node: el("div", { class: "stat" }, el("dt", { class: "stat__label" }, name), value, note), value, note };
  });
  return {
    node: el("dl", { class: "stats live", "aria-label": "Current statistics" }, ...tiles.map((tile) => tile.node)),
    update({ stats, status, uptimeS }) {
      const total = stats?.total ?? null;
      const unrouted = stats?.unrouted ?? null;
      const window =
        stats === null ? "" : `over the last ${Math.min(stats.window_s, Math.max(uptimeS ?? stats.window_s, 1))} s`;
      const texts: readonly (readonly [string, string])[] = [
        [perSecond(total?.requests_per_s ?? null), window],
        [percent(total && errorShare(total)), total === null ? "" : `${perSecond(total.errors_per_s)} with 5xx`],
        [
          percent(total && clientErrorShare(total)),
          total === null ? "" : refusalsText(total).split(" · ").map(unbroken).join(" · ") || "no 401, 403 or 404",
        ],
        [
          perSecond(unrouted?.requests_per_s ?? null),
          unrouted === null ? "" : statusesText(unrouted) || "no request without one",
        ],
        [
          milliseconds(total?.p95_ms ?? null),
          total === null
            ? ""
            : [`p50 ${milliseconds(total.p50_ms)}`, `p99 ${milliseconds(total.p99_ms)}`].map(unbroken).join(" · "),
        ],
        [number(total?.in_flight ?? null), "requests now"],
        [perSecond(total?.limited_per_s ?? null), "requests refused"],
        [
          uptimeS === null ? "–" : durationText(uptimeS),
          status === null ? "" : [stateOf(status), ...workersOf(status).map(unbroken)].join(" · "),
        ],
      ];
      tiles.forEach(({ value, note }, i) => {
        setText(value, texts[i]![0]);
        setText(note, texts[i]![1]);
      });
    },
  };
}

function healthCard(): Part<[Health | null]> {
  const title = el("span", { class: "muted" });
  const list = el("ul", { class: "health" });
  const rest = el("p", { class: "muted" });
  const body = el("div", { class: "stack" }, loading("the health of the upstreams"));
  let rows: readonly Cell[] = [];
  const drawRows = whenChanged(
    (shown: readonly ServiceHealth[], more: number) => {
      rows = shown.map(serviceRow);
      replace(list, ...rows.map(({ node }) => node));
      replace(rest, `and ${number(more)} more services: `, el("a", { href: "#/upstreams" }, "all upstreams"));
      replace(
        body,
        shown.length === 0 ? el("p", { class: "empty" }, "The configuration has no services yet.") : list,
        more > 0 && rest,
      );
    },
    (shown, more) => [
      more,
      shown.map(({ name, upstreams }) => [
        name,
        upstreams.length,
        orderOf(upstreams).map(({ id, group }) => [id, group]),
      ]),
    ],
  );
  let last: Health | null = null;
  return {
    node: card("Upstreams", title, body),
    update(health) {
      if (health === null || health === last) return;
      last = health;
      const services = [...health.services].sort((a, b) => severity(b) - severity(a));
      const shown = services.slice(0, MAX_SERVICES);
      const all = health.services.flatMap(({ upstreams }) => upstreams);
      setText(
        title,
        all.length === 0 ? "" : `${number(all.filter(({ usable }) => usable).length)} of ${number(all.length)} usable`,
      );
      drawRows(shown, services.length - shown.length);
      for (const row of rows) row.refresh();
    },
  };
}

/** Its elements survive a change of state, and with them the focus. */
function serviceRow({ name, upstreams }: ServiceHealth): Cell {
  const circuit = stateBadge();
  const shown = orderOf(upstreams).map(({ id, host, port, group }) => {
    const badge = stateBadge();
    const texts = [el("span", { class: "mono" }, id), group !== null && el("span", { class: "muted" }, group)];
    const place = { class: "health__upstream", href: hashFor("upstreams", name, id), title: `${host}:${port}` };
    return {
      node: el("li", {}, el("a", place, ...texts, badge.node)),
      refresh: () => badge.set(upstreamLabel(live.upstream(name, id))),
    };
  });
  const more = upstreams.length - shown.length;
  const rest = more > 0 ? `and ${more} more` : upstreams.length === 0 ? "no upstreams" : null;
  const items = el(
    "ul",
    { class: "health__upstreams" },
    ...shown.map(({ node }) => node),
    rest !== null && el("li", { class: "muted" }, rest),
  );
  const head = el(
    "div",
    { class: "health__name" },
    el("a", { href: hashFor("services", name) }, name),
    el("div", {}, circuit.node),
  );
  return {
    node: el("li", { class: "health__service" }, head, items),
    refresh() {
      const { circuit_breaker: breaker = null } = live.health(name) ?? {};
      setOptional(circuit, isBroken(breaker) ? circuitLabel(breaker) : null);
      for (const each of shown) each.refresh();
    },
  };
}

function reloadCard(): Part<[Status | null]> {
  const body = el("div", {}, loading("the state of the configuration"));
  const draw = whenChanged((status: Status) => {
    const why = el("a", { href: "#/config" }, "See its errors");
    const refused = el(
      "p",
      { class: "notice notice--bad" },
      "The file was refused; the gateway keeps its current configuration. ",
      why,
    );
    replace(body, configFacts(status), status.last_reload?.outcome === "refused" && refused);
  }, shownOf);
  return {
    node: card("Configuration", el("a", { href: "#/config" }, "Details"), body),
    update: (status) => status !== null && draw(status),
  };
}

/** Gateways before 0.3 report no revocation lists. */
type ShownCertificates = Pick<Status, "certificates" | "acme"> & {
  readonly revocation_lists?: readonly RevocationList[];
};

function certificateCard(): Part<[Status | null, number]> {
  const body = el("div", {}, loading("the certificates"));
  const draw = whenChanged(
    ({ certificates, acme, revocation_lists: lists = [] }: ShownCertificates, now: number) => {
      const list = [...certificates].sort(byEnd);
      const awaited = (acme?.hosts ?? []).filter(({ not_after: end }) => end === null);
      const rows = [...awaited.map(awaitedRow), ...list.map((each) => certificateRow(each, now))];
      const ofLists = [...lists].sort(byEnd).map((each) => revocationListRow(each, now));
      const failed = acme?.error ?? null;
      const fleet = acme?.fleet ?? null;
      replace(
        body,
        rows.length === 0
          ? el("p", { class: "muted" }, "None: the gateway accepts plain HTTP only.")
          : el("ul", { class: "list" }, ...rows),
        ofLists.length > 0 && el("ul", { class: "list", "aria-label": "Revocation lists" }, ...ofLists),
        failed !== null && el("p", { class: "muted" }, `The last order has failed: ${failed}`),
        fleet !== null && el("p", { class: "muted" }, whoOrders(fleet)),
      );
    },
    // Its text has whole days.
    ({ certificates, acme, revocation_lists: lists = [] }, now) => [
      [...certificates, ...lists].map((each) => [each, until(each.not_after, now)]),
      acme?.hosts,
      acme?.error,
      acme?.fleet,
    ],
  );
  return {
    node: card("Certificates", null, body),
    update: (status, now) => status !== null && draw(status, now),
  };
}

function whoOrders({
  holder,
  is_holder: isHolder,
  problem,
}: NonNullable<NonNullable<Status["acme"]>["fleet"]>): string {
  if (problem !== null) return `What the fleet shares cannot be used: ${problem}`;
  if (isHolder) return "This gateway orders for its fleet.";
  return holder === null ? "No gateway of the fleet orders at present." : `${holder.name} orders for the fleet.`;
}

function byEnd(a: { readonly not_after: string }, b: { readonly not_after: string }): number {
  return Date.parse(a.not_after) - Date.parse(b.not_after);
}

/** A host of `global.acme` that has no certificate yet. */
function awaitedRow({ host, error }: NonNullable<Status["acme"]>["hosts"][number]): HTMLElement {
  return el(
    "li",
    { class: "certificate" },
    el(
      "div",
      {},
      el("div", { class: "certificate__names" }, host),
      el("div", { class: "muted" }, error === null ? "global.acme" : `global.acme: ${error}`),
    ),
    fixedBadge("warn", "Ordered", "It has no certificate yet: handshakes for it end with an alert."),
  );
}

function certificateRow(
  { where, names, common_name: commonName, not_after: end }: Certificate,
  now: number,
): HTMLElement {
  const name =
    names.length > 0
      ? listed(names, 4)
      : commonName === null
        ? "no names"
        : `${commonName} (a common name only: browsers refuse it)`;
  return rowWithEnd(name, where, end, { now, soonMs: SOON_MS });
}

function revocationListRow({ where, issuer, not_after: end }: RevocationList, now: number): HTMLElement {
  return rowWithEnd(`Revocation list of ${issuer ?? "a CA without a name"}`, where, end, { now, soonMs: LIST_SOON_MS });
}

function rowWithEnd(
  name: string,
  where: string,
  end: string,
  { now, soonMs }: { readonly now: number; readonly soonMs: number },
): HTMLElement {
  const left = Date.parse(end) - now;
  const tone = left <= 0 ? "bad" : left < soonMs ? "warn" : "good";
  const text = left <= 0 ? `Expired ${ago(end, now)}` : `Expires ${until(end, now)}`;
  return el(
    "li",
    { class: "certificate" },
    el("div", {}, el("div", { class: "certificate__names" }, name), el("div", { class: "muted" }, where)),
    fixedBadge(tone, text, moment(end)),
  );
}

/** The worst first if not all are drawn. */
function orderOf(upstreams: readonly UpstreamHealth[]): readonly UpstreamHealth[] {
  if (upstreams.length <= MAX_UPSTREAMS) return upstreams;
  return [...upstreams].sort((a, b) => upstreamLabel(b).rank - upstreamLabel(a).rank).slice(0, MAX_UPSTREAMS);
}

function severity({ circuit_breaker: breaker, upstreams }: ServiceHealth): number {
  return upstreams.reduce((worst, each) => Math.max(worst, upstreamLabel(each).rank), isBroken(breaker) ? 5 : 0);
}

/** A closed circuit breaker is the normal state and not shown. */
function isBroken(breaker: ServiceHealth["circuit_breaker"]): boolean {
  return breaker !== null && breaker.state !== "closed";
}

function durationText(seconds: number): string {
  const days = Math.floor(seconds / 86_400);
  const hours = Math.floor((seconds % 86_400) / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  if (days > 0) return `${number(days)} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min` : `${seconds} s`;
}

/** Empty where one thread serves, which is not worth a word. */
function workersOf({ workers }: Status): readonly string[] {
  if (workers === null) return [];
  const { configured, serving, restarts } = workers;
  return [`${serving} of ${configured} workers`, ...(restarts === 0 ? [] : [counted(restarts, "restart")])];
}

function stateOf({ state, ready }: Status): string {
  if (state === "serving") return ready ? "serving" : "serving, reports not ready";
  return state === "draining" ? "draining: accepts no new connections" : state;
}

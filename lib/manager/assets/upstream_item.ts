/**
 * The page of one upstream: its state, its figures, and what leads to it.
 */
import { stateFacts, type StateTimes } from "./balancing_view.ts";
import { factList, link, section, setOptional, stateBadge } from "./components.ts";
import { el, replace, setText, whenChanged } from "./dom.ts";
import { failures, usedRoutes } from "./failures.ts";
import { percent } from "./format.ts";
import { addressOf, endpointsOf, ownerOf } from "./inventory.ts";
import { editTab, itemPage, settingsTab, stackOf, trafficTab } from "./item_page.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage } from "./page.ts";
import { circuitLabel, upstreamLabel } from "./state_labels.ts";
import type { Part } from "./tables.ts";
import { upstreamActions } from "./upstream_actions.ts";
import { figuresOf, inFlightOf, stateOf, type UpstreamRow } from "./upstreams_page.ts";
import { hashFor } from "./url_hash.ts";

export const onePage: OpenPage = (frame, [serviceName = "", id = ""]) =>
  itemPage({
    frame,
    title: `Upstream ${id}`,
    service: serviceName,
    missing: [`upstream “${id}” in a service “${serviceName}”`, "#/upstreams", "All upstreams"],
    find({ services }) {
      const service = services.find(({ name }) => name === serviceName);
      const upstream = service && endpointsOf(service, live.health(serviceName)).find((each) => each.id === id);
      return service === undefined || upstream === undefined ? null : { service, upstream };
    },
    shown: ({ service }) => ({ ...service, routes: [], plugins: [] }),
    itemOf(row) {
      const { service, upstream } = row;
      const of = { service: serviceName, upstream: id };
      // An endpoint is configured as its record or its name.
      const configured = ownerOf(service.upstreams, id)?.id ?? id;
      const { group } = upstream;
      const isCanary = group !== undefined && service.split?.some((split) => split.group === group) === true;
      const share = isCanary && (["Change the share", "share", serviceName, group] as const);
      return {
        name: id,
        of,
        crumbs: [
          ["#/upstreams", "Upstreams"],
          [hashFor("services", serviceName), serviceName],
        ],
        head: [stateOfUpstream(frame, row)],
        tabs: {
          Traffic: () => trafficTab(of, () => figuresNow(row), el("p", { class: "muted" }, COUNTED)),
          Failures: () => failures(of),
          Path: () => wayTo(row),
          Settings: () => settingsTab(frame, { ...of, upstream: configured }),
          Edit: () =>
            editTab(of, ...(share ? [share] : []), [
              "Change its settings",
              "upstream_settings",
              serviceName,
              configured,
            ]),
        },
      };
    },
  });

const COUNTED = "Times and errors count attempts: until the head of the response, or the failure.";

function figuresNow(row: UpstreamRow) {
  const figures = figuresOf(row);
  return figures && { ...figures, in_flight: inFlightOf(row) ?? 0 };
}

function stateOfUpstream(frame: Frame, row: UpstreamRow): Part {
  const { service, upstream } = row;
  const badge = stateBadge();
  const circuit = stateBadge();
  const owner = ownerOf(service.upstreams, upstream.id);
  const actions = stackOf(
    upstreamActions(frame, service.name, upstream.id),
    ...(owner === undefined ? [] : [upstreamActions(frame, service.name, owner.id, "all")]),
  );
  const facts = el("div");
  const drawFacts = whenChanged((times: StateTimes) => replace(facts, factList(stateFacts(times))));
  const shown = el("div", {}, el("p", { class: "badges" }, badge.node, circuit.node), facts);
  return {
    node: el("div", { class: "card toolbar toolbar--apart" }, shown, actions.node),
    refresh() {
      const state = stateOf(row);
      const { since = null, until = null, reason = null, admin_since = null } = state ?? {};
      badge.set(upstreamLabel(state));
      setOptional(circuit, circuitLabel(live.health(service.name)?.circuit_breaker));
      drawFacts({ since, until, reason, admin_since });
      actions.refresh();
    },
  };
}

const BACKUP = "gets requests only while no other upstream of the service can be used";

/** What leads to it: its service with the part that it gets, and routes. */
function wayTo({ service, upstream }: UpstreamRow): Part {
  const { id, weight, group, backup } = upstream;
  const share = el("span");
  const facts = factList([
    ["Service", link(hashFor("services", service.name), service.name)],
    ["Share", share],
    ["Address", el("span", { class: "mono" }, addressOf(upstream))],
    ["Protocol", service.protocol],
    weight === undefined ? null : ["Weight", weight === 0 ? "0: gets no new requests" : String(weight)],
    group === undefined ? null : ["Group", group],
    backup === true ? ["Backup", BACKUP] : null,
  ]);
  return stackOf(
    { node: section("Upstream", el("div", { class: "card" }, facts)), refresh: () => setText(share, shareText()) },
    usedRoutes({ service: service.name, upstream: id }),
  );

  function shareText(): string {
    const found = live.share(service, id);
    return found === null ? "–" : `${percent(found.share)}${found.how === "planned" ? " planned" : ""}`;
  }
}

/**
 * The banner above every page while plugins inject faults: it names the places.
 */
import type { Status, Warning } from "./api.ts";
import { breakable, link } from "./components.ts";
import { el, replace, whenChanged, type Child } from "./dom.ts";
import { number } from "./format.ts";
import { hashForPlace } from "./url_hash.ts";

/** Further places are only counted. */
const MAX_PLACES = 4;

/** Hidden while no faults are injected. */
export function faultBanner() {
  const node = el("div", { class: "banner banner--warn", role: "status", hidden: true });
  const draw = whenChanged((faults: readonly Warning[]) => {
    node.hidden = faults.length === 0;
    if (faults.length === 0) return replace(node);
    replace(
      node,
      el("strong", { class: "badge badge--warn" }, "Faults are injected"),
      el("span", { class: "banner__text" }, ...placesOf(faults)),
    );
  });
  return {
    node,
    update: (status: Status | null) => draw((status?.warnings ?? []).filter(({ code }) => code === "faults_injected")),
  };
}

/** "Route list of shop, all routes of pay and 3 more": links; several plugins of one place are one. */
function placesOf(faults: readonly Warning[]): readonly Child[] {
  const places = [...new Map(faults.map((fault) => [JSON.stringify([fault.service, fault.route]), fault])).values()];
  const shown = places.slice(0, MAX_PLACES).map(placeLink);
  const rest = places.length - shown.length;
  return [
    ...shown.flatMap((place, i) => (i === 0 ? [place] : [", ", place])),
    ...(rest === 0 ? [] : [" and ", link("#/plugins", `${number(rest)} more`)]),
  ];
}

function placeLink(place: Warning): HTMLElement {
  const { service, route } = place;
  const of = service === null ? ["all services"] : breakable(service);
  return link(
    hashForPlace(place),
    ...(route === null ? ["all routes"] : ["route ", ...breakable(route)]),
    " of ",
    ...of,
  );
}

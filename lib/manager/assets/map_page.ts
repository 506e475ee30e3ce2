/**
 * The page Map: what leads where, from hosts and paths over services and their routes to upstreams, drawn in four
 * columns; a list says the same. Many items are folded into counts.
 */
import type { ProxyConfig, RouteConfig, ServiceConfig } from "./api.ts";
import { link, loading } from "./components.ts";
import { el, replace, svg, whenChanged, type Child } from "./dom.ts";
import { counted, number } from "./format.ts";
import type { Known, OpenPage } from "./page.ts";
import { hashFor } from "./url_hash.ts";

/** A place in the drawing; `hash`: of its page. */
interface Spot {
  readonly text: string;
  readonly hash: string;
}

/** Services that are drawn, and parts of each in one column; the others are counted. */
const MAX_SERVICES = 30;
const MAX_PARTS = 4;
const COLUMN = 275;
const WIDTH = 220;
const ROW = 36;
const BOX = 28;
/** Characters that fit into a box. */
const LONGEST = 30;
const COLUMNS = ["Hosts and paths", "Services", "Routes, with their plugins", "Upstreams"];

export const page: OpenPage = () => {
  const node = el("div", { class: "stack" }, loading("the configuration"));
  const draw = whenChanged((config: ProxyConfig) => replace(node, ...mapOf(config)));
  // The same object each second until a reload, and too large to be compared by its text.
  let drawn: ProxyConfig | null = null;
  return {
    title: "Map",
    node,
    update({ config }: Known) {
      if (config === null || config === drawn) return;
      drawn = config;
      draw(config);
    },
  };
};

function mapOf({ services, plugins = [] }: ProxyConfig): readonly HTMLElement[] {
  if (services.length === 0) return [el("div", { class: "card empty" }, el("p", {}, "No services yet."))];
  const shown = services.slice(0, MAX_SERVICES);
  const columns = shown.map(columnsOf);
  const rest = services.length - shown.length;
  const global = plugins.map(({ name }) => name).join(", ");
  const notes = [
    global !== "" && el("p", {}, link("#/plugins", "For all of them"), `: ${global}`),
    rest > 0 &&
      el("p", {}, link("#/services", `and ${counted(rest, "service")}`), ", which are in the list of services."),
  ].filter((note) => note !== false);
  const list = el("ul", { class: "list" }, ...columns.map((all) => el("li", {}, ...sentenceOf(all))));
  const wide = el("div", { class: "card map", tabindex: 0, role: "region", "aria-label": "Map" }, drawingOf(columns));
  return [...notes, wide, el("details", { class: "card" }, el("summary", {}, "The same as a list"), list)];
}

/** Of one service, from the left. */
function columnsOf(service: ServiceConfig): readonly (readonly Spot[])[] {
  const { name, base_path: path, hosts = [], routes, upstreams } = service;
  const hash = hashFor("services", name);
  const groups = new Map<string, RouteConfig[]>();
  for (const route of routes) {
    const kinds = [...(route.plugins ?? []), ...(service.plugins ?? [])].filter(({ enabled }) => enabled !== false);
    const key = kinds.map((plugin) => plugin.name).join(", ");
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [route]);
    else group.push(route);
  }
  const routeSpots = Array.from(groups, ([kinds, some]) => {
    const what = some.length === 1 ? some[0]!.name : `${number(some.length)} routes`;
    const place =
      some.length === 1 ? hashFor("routes", name, some[0]!.name) : `#/routes?${new URLSearchParams({ search: name })}`;
    return { text: kinds === "" ? what : `${what}: ${kinds}`, hash: place };
  });
  const places = hosts.length === 0 ? [path] : hosts.map((host) => `${host}${path}`);
  return [
    folded(places.map((text) => ({ text, hash }))),
    [{ text: name, hash }],
    folded(routeSpots),
    folded(upstreams.map(({ id }) => ({ text: id, hash: hashFor("upstreams", name, id) }))),
  ];

  function folded(spots: readonly Spot[]): readonly Spot[] {
    if (spots.length <= MAX_PARTS) return spots;
    const rest = spots.length - MAX_PARTS + 1;
    return [...spots.slice(0, MAX_PARTS - 1), { text: `and ${number(rest)} more`, hash }];
  }
}

/** Its links are those of the list: by keyboard it is skipped. */
function drawingOf(services: readonly (readonly (readonly Spot[])[])[]): SVGElement {
  const drawn: SVGElement[] = [];
  let top = ROW;
  for (const columns of services) {
    const rows = Math.max(...columns.map((spots) => spots.length));
    // Each column stands in the middle of its service.
    const centre = (column: number, i: number) => top + (rows / 2 + i - columns[column]!.length / 2 + 0.5) * ROW;
    columns.forEach((spots, column) => {
      const left = column * COLUMN;
      spots.forEach((spot, i) => drawn.push(boxOf(spot, left, centre(column, i))));
      for (const [i] of spots.entries())
        for (const [j] of (columns[column + 1] ?? []).entries()) {
          const [from, to, turn] = [centre(column, i), centre(column + 1, j), left + (COLUMN + WIDTH) / 2];
          const d = `M${left + WIDTH} ${from}C${turn} ${from} ${turn} ${to} ${left + COLUMN} ${to}`;
          drawn.unshift(svg("path", { class: "map__line", d }));
        }
    });
    top += rows * ROW + BOX / 2;
  }
  const heads = COLUMNS.map((text, i) => svg("text", { class: "map__head", x: i * COLUMN, y: 16 }, text));
  const size = { width: 3 * COLUMN + WIDTH + 2, height: top };
  return svg("svg", { ...size, "aria-hidden": "true" }, ...heads, ...drawn);
}

function boxOf({ text, hash }: Spot, left: number, centre: number): SVGElement {
  const short = text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
  const box = { class: "map__box", x: left + 1, y: centre - BOX / 2, width: WIDTH, height: BOX, rx: 6 };
  return svg(
    "a",
    { href: hash, tabindex: -1 },
    svg("title", {}, text),
    svg("rect", box),
    svg("text", { class: "map__text", x: left + 10, y: centre + 4 }, short),
  );
}

/** "/shop leads to shop; its routes: list: key_auth; its upstreams: v1, v2." */
function sentenceOf([
  places = [],
  service = [],
  routes = [],
  upstreams = [],
]: readonly (readonly Spot[])[]): readonly Child[] {
  const linked = (spots: readonly Spot[]) =>
    spots.flatMap(({ text, hash }, i): readonly Child[] => [i === 0 ? null : ", ", link(hash, text)]);
  const paths = places.map(({ text }) => text).join(", ");
  return [
    `${paths} leads to `,
    ...linked(service),
    "; routes: ",
    ...linked(routes),
    "; upstreams: ",
    ...linked(upstreams),
    ".",
  ];
}

/**
 * What became of one request, beside the list of requests: who has answered it, with what, after which plugins and
 * tries, which configuration has decided, and how to ask the same once more.
 */
import {
  ask,
  ApiError,
  type CallerLimit,
  type CallersView,
  type OneCaller,
  type RequestDecision,
  type RoutePlugins,
} from "./api.ts";
import { askingFor } from "./asking.ts";
import { breakable, factList, link, loading, notice, section, stateBadge, two } from "./components.ts";
import { copy } from "./copy.ts";
import { button, el, replace, svg, type Child } from "./dom.ts";
import { openNewTest } from "./new_test.ts";
import { listed, milliseconds, moment, number } from "./format.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";
import { testOfDecision } from "./test_json.ts";
import { curlOf, placeOfAnswer, urlOf } from "./requests_text.ts";
import { hashFor, hashForPlace, hashForRequests } from "./url_hash.ts";

/**
 * What ids are made of; without those with "", "." or ".." between slashes, which browsers and the manager would make
 * the path of another id. A long one may be given by its hash.
 */
const ID = /^(?!(?:.*\/)?\.{0,2}(?:\/|$))(?:[\w.:/+=@-]{1,128}|#[\w-]{39})$/;
/** Requests that are remembered where the configuration does not say how many. */
const KEPT = 10_000;
const WHERE =
  "Ids are in the header X-Request-Id of replies, in error bodies as request_id, " +
  "in the access log and in the list of this page.";

const MAX_LIMITS = 4;

export interface Drawer {
  readonly node: HTMLElement;
  update(): void;
}

export function requestDrawer(frame: Frame, id: string, close: () => void): Drawer {
  const content = el("div", { class: "stack" }, loading("the request"));
  const heading = el("h2", { tabindex: "-1" }, "Request ", el("span", { class: "mono" }, id));
  const node = el(
    "section",
    { class: "card requests__drawer", "aria-label": "One request" },
    el("div", { class: "card__title" }, heading, button("Close", close, "small")),
    content,
  );
  node.addEventListener("keydown", ({ key }) => key === "Escape" && close());
  const force = stateBadge();
  const steps = el("ol", { class: "requests__steps" });
  let shown: RequestDecision | null = null;
  /** Of the request that is shown: whether its plugins have been asked for. */
  let isAsked = false;
  const look = askingFor({ frame, what: "The request", node: content, ask: () => decisionOf(id), show });
  queueMicrotask(() => void look());
  return { node, update };

  function update(): void {
    const { status = null } = live.known ?? {};
    if (status === null || shown === null) return;
    const isInForce = status.digest === shown.digest;
    force.set(isInForce ? { text: "In force", tone: "good" } : { text: "No longer in force", tone: "idle" });
    if (isInForce && !isAsked) void showPlugins(shown);
    isAsked ||= isInForce;
  }

  function show(found: RequestDecision | null): void {
    if (found === null) {
      const again = button("Look again", () => void look());
      return replace(content, unknown(), el("p", {}, again));
    }
    shown = found;
    isAsked = false;
    drawSteps(found, []);
    update();
    const limits = el("p", { class: "muted" });
    void showLimits(found, limits);
    replace(
      content,
      notice(toneOf(found.status), sentenceOf(found), `It took ${milliseconds(found.ms)}.`),
      factsOf(found, force.node),
      limits,
      section("Plugins and upstreams", steps),
      againOf(found),
    );
  }

  /** What is left now of the limits of this route, for a caller of the configuration. */
  async function showLimits({ caller, service, route }: RequestDecision, node: HTMLElement): Promise<void> {
    if (caller == null) return;
    try {
      const search = new URLSearchParams({ search: caller });
      const { callers } = await ask<CallersView>("GET", `/gateway/callers?${search}`);
      if (!callers.some((each) => each.id === caller)) return;
      const { limits } = await ask<OneCaller>("GET", `/gateway/caller?${new URLSearchParams({ id: caller })}`);
      const isOwn = (of: CallerLimit): boolean =>
        (of.service === null || of.service === service) && (of.route === null || of.route === route);
      const texts = limits
        .filter(isOwn)
        .flatMap(({ kind, windows }) =>
          windows.map(({ per, limit, left }) => `${number(left)} of ${number(limit)} per ${per} (${kind})`),
        );
      const left =
        texts.length === 0 ? " has no limit that has counted it." : ` has left now ${listed(texts, MAX_LIMITS)}.`;
      replace(node, link(hashFor("callers", caller), "The caller"), left);
    } catch {
      // An older gateway does not say it.
    }
  }

  /** Of the configuration in force, where that has decided. */
  async function showPlugins(found: RequestDecision): Promise<void> {
    const { service, route } = found;
    if (service === null || route === null) return;
    try {
      const query = new URLSearchParams({ service, route });
      const { plugins } = await ask<RoutePlugins>("GET", `/gateway/plugins?${query}`);
      drawSteps(found, plugins);
    } catch {
      // The steps are shown without them.
    }
  }

  /** One line of time: each bar stands where it was in the whole. */
  function drawSteps(found: RequestDecision, plugins: RoutePlugins["plugins"]): void {
    const answered = placeOfAnswer(plugins, found);
    // An older gateway does not say when.
    const { plugins: held = [], tries, ms, service } = found;
    const heldAt = held.map((each) => placeOfAnswer(plugins, each));
    const others = held.filter((_, i) => heldAt[i] === -1);
    const sum = [...held, ...tries].reduce((before, each) => before + each.ms, 0);
    replace(
      steps,
      ...plugins.map(({ name, id: own, level }, i) => {
        const place = own === null ? level : `${level}, ${own}`;
        return step(two(name, place), outcomeOf(found, i, answered), held[heldAt.indexOf(i)] ?? null, ms);
      }),
      ...others.map((each) => step(two(each.by ?? "A plugin", each.plugin), "", each, ms)),
      ...tries.map((each) => {
        const status = each.status === null ? "no response" : String(each.status);
        return step(placeLink(["upstreams", service, each.upstream]), status, each, ms);
      }),
      tries.length === 0 && step("No upstream was asked.", "", null, ms),
      step("All else: waiting, sending", milliseconds(Math.max(0, ms - sum)), null, ms),
    );
  }

  function againOf(found: RequestDecision): HTMLElement {
    const { method, client, code, service, route, caller } = found;
    const asked = { method: method ?? "GET", url: urlOf(found), ...(client !== null && { clientIp: client }) };
    const curl = curlOf(found);
    const same = {
      ...(code !== null && { code }),
      ...(service !== null && { service }),
      ...(route !== null && { route }),
    };
    return section(
      "Again",
      el(
        "div",
        { class: "toolbar" },
        method !== null && el("a", { class: "button", href: `#/try?${new URLSearchParams(asked)}` }, "Try it"),
        frame.session?.write === true &&
          method !== null &&
          button("Add a test", () => openNewTest(frame, testOfDecision(found))),
        button("Copy as curl", () => void copy(frame, curl, "Copied as a command.")),
        traceLink(found.trace_id ?? null),
      ),
      el("p", { class: "mono line" }, curl),
      el("p", { class: "muted" }, "Query, headers and body are not remembered."),
      el(
        "p",
        { class: "badges" },
        link(hashForRequests(same), code === null ? "Requests of this route" : "Requests with this code and route"),
        caller !== null && link(hashForRequests({ caller }), "Requests of this caller"),
      ),
    );
  }
}

function unknown(): HTMLElement {
  const config = live.known?.config ?? null;
  const kept = config === null ? null : (config.global.decisions ?? KEPT);
  const latest = kept === null ? "The latest requests" : `The latest ${number(kept)} requests of all workers`;
  const memory =
    kept === 0
      ? "The gateway remembers none: global.decisions is 0."
      : `${latest} are remembered, as global.decisions says, from their end until a restart, with STATE_DIR beyond it.`;
  const exactly = el("p", {}, `Ids are compared exactly, upper and lower case too. ${WHERE}`);
  return notice("warn", "No request with this id is remembered.", memory, exactly);
}

/** Null: none with this id is remembered. */
async function decisionOf(id: string): Promise<RequestDecision | null> {
  if (!ID.test(id)) return null;
  try {
    // A path may have all characters of ids as they are; the manager lets no encoded slash pass.
    return await ask<RequestDecision>("GET", `/gateway/requests/${id.replace("#", "%23")}`);
  } catch (error) {
    // The reply for an unknown id has it.
    if (error instanceof ApiError && error.status === 404 && error.problem.id !== undefined) return null;
    throw error;
  }
}

/** "The plugin key_auth answered 401 key_missing." */
function sentenceOf({ by, status, code, tries }: RequestDecision): string {
  if (status === null) return "Nobody answered: the client disconnected before.";
  const what = `${status}${code === null ? "" : ` ${code}`}.`;
  if (by === null) return `It was answered with ${what}`;
  if (by === "gateway") return `The gateway itself answered ${what}`;
  if (by !== "upstream") return `The plugin ${by} answered ${what}`;
  const upstream = tries.at(-1)?.upstream;
  return `${upstream == null ? "An upstream" : `The upstream ${upstream}`} answered ${what}`;
}

function toneOf(status: number | null): "good" | "warn" | "bad" {
  if (status === null || status >= 500) return "bad";
  return status >= 400 ? "warn" : "good";
}

/** What a plugin of the route did, by its place and that of the plugin that answered. */
function outcomeOf({ by, status, code, rule, tries }: RequestDecision, place: number, answered: number): string {
  if (place === answered)
    return `answered ${status ?? ""} ${code ?? ""}${rule === null ? "" : `, by ${rule}`}`.replace(/ +/g, " ");
  if (answered >= 0) return place < answered ? "let it pass" : "not reached";
  return by === "upstream" || tries.length > 0 ? "let it pass" : "–";
}

/** A step; `timed`: when it was, in a request of `whole` milliseconds. Plugins without it took no time to speak of. */
function step(
  what: Child,
  outcome: string,
  timed: { readonly at_ms?: number; readonly ms: number } | null,
  whole: number,
): HTMLElement {
  const cell = (child: Child) => el("span", { class: "line" }, child);
  if (timed === null) return el("li", {}, cell(what), cell(outcome));
  const { at_ms: at = 0, ms } = timed;
  const all = Math.max(whole, at + ms, 0.01);
  const rect = { x: (100 * at) / all, width: Math.max(0.5, (100 * ms) / all), y: 0, height: 6 };
  const frame = { class: "requests__took", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" };
  const time = two(milliseconds(ms), timed.at_ms === undefined ? null : `after ${milliseconds(at)}`);
  return el("li", {}, cell(what), cell(outcome), time, svg("svg", frame, svg("rect", rect)));
}

function factsOf(decision: RequestDecision, force: HTMLElement): HTMLElement {
  // An older gateway does not say what was asked of MCP.
  const { time, client, method, host, path, service, route, caller, mcp = null, digest } = decision;
  const asked = method === null ? "could not be read" : `${method} ${host ?? ""}${path ?? ""}`;
  return factList([
    ["Ended", el("time", { datetime: time }, moment(time))],
    ["Request", el("span", { class: "mono line" }, asked)],
    ["Client", client ?? "not known"],
    // An older gateway does not say it.
    caller == null ? null : ["Caller", el("span", { class: "line" }, caller)],
    mcp === null ? null : ["MCP", el("span", { class: "line mono" }, [mcp.method, mcp.name ?? ""].join(" ").trim())],
    pluginFact(decision),
    ["Service", placeLink(["services", service])],
    ["Route", placeLink(["routes", service, route])],
    ["Configuration", el("span", {}, el("span", { class: "mono" }, digest), " ", force)],
  ]);
}

/** Which plugin has answered, with a link to the page that has it, and by which member of its configuration. */
function pluginFact({ plugin, rule, service, route }: RequestDecision): [string, HTMLElement] | null {
  // An older gateway does not say it.
  if (plugin == null) return null;
  const isOfAll = plugin.startsWith("global.plugins.");
  const isOfRoute = plugin.startsWith(`services.${service ?? ""}.routes.${route ?? ""}.plugins.`);
  const place = { service: isOfAll ? null : service, route: isOfRoute ? route : null };
  const code = rule === null ? [] : [", rule ", el("span", { class: "mono" }, rule)];
  return ["Plugin", el("span", {}, link(hashForPlace(place), ...breakable(plugin)), ...code)];
}

/** To the page of what the last name says; null among the names: there is none. */
function placeLink([page, ...names]: readonly [string, ...(string | null)[]]): Node | string {
  const known = names.filter((name) => name !== null);
  return known.length === names.length ? link(hashFor(page, ...known), known.at(-1)!) : (names.at(-1) ?? "none");
}

/** By MANAGER_TRACE_URL, which the UI's server writes into the page. */
const TRACE_URL = document.querySelector<HTMLMetaElement>('meta[name="trace-url"]')?.content;

function traceLink(id: string | null): Child {
  if (TRACE_URL === undefined || id === null || !/^[0-9a-f]{32}$/.test(id)) return null;
  const opened = { target: "_blank", rel: "noopener noreferrer", title: `Trace ${id}, in a new tab` };
  return el("a", { href: TRACE_URL.replaceAll("{trace_id}", id), class: "button", ...opened }, "Trace");
}

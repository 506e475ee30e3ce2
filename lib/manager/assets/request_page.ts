/**
 * The page of one request, "#/requests/{id}": who has answered it, with what, after which tries, and which
 * configuration has decided.
 */
import { ask, ApiError, type RequestDecision } from "./api.ts";
import { askingFor } from "./asking.ts";
import { breakable, factList, link, loading, notice, section, stateBadge } from "./components.ts";
import { button, el, replace } from "./dom.ts";
import { milliseconds, moment, number } from "./format.ts";
import { live } from "./live.ts";
import { plainTable } from "./live_tables.ts";
import type { OpenPage } from "./page.ts";
import { hashFor, hashForPlace } from "./url_hash.ts";

/**
 * What ids are made of; without those with "", "." or ".." between slashes, which browsers and the manager would make
 * the path of another id.
 */
const ID = /^(?!(?:.*\/)?\.{0,2}(?:\/|$))[\w.:/+=@-]{1,128}$/;
/** Requests that are remembered where the configuration does not say how many. */
const KEPT = 10_000;
const WHERE =
  "Ids are in the header X-Request-Id of replies, in error bodies as request_id, " +
  "in the access log and in the lines of the page Tail.";

export const page: OpenPage = () => {
  const node = el(
    "div",
    { class: "card empty" },
    el("p", {}, "Enter the id of a request in the field “Request id”."),
    el("p", {}, WHERE),
  );
  return { title: "Requests", node, update() {} };
};

export const onePage: OpenPage = (frame, [id = ""]) => {
  const node = el("div", { class: "stack" }, loading("the request"));
  const force = stateBadge();
  const tries = plainTable("Requests to upstreams, in order", ["Upstream", "Status", "Took"]);
  let digest: string | null = null;
  const look = askingFor({ frame, what: "The request", node, ask: () => decisionOf(id), show });
  void look();
  return { title: `Request ${id}`, node, update };

  function update(): void {
    const { status = null } = live.known ?? {};
    if (status !== null && digest !== null)
      force.set(
        status.digest === digest ? { text: "In force", tone: "good" } : { text: "No longer in force", tone: "idle" },
      );
  }

  function show(found: RequestDecision | null): void {
    if (found === null)
      return replace(
        node,
        unknown(),
        el(
          "p",
          {},
          button("Look again", () => void look()),
        ),
      );
    digest = found.digest;
    update();
    const cells = found.tries.map(({ upstream, status, ms }) => [
      placeLink(["upstreams", found.service, upstream]),
      status ?? "no response",
      milliseconds(ms),
    ]);
    replace(tries.rows, ...cells.map(tries.rowOf));
    const facts = el("section", { class: "card" }, factsOf(found, force.node));
    const asking = section(
      "Requests to upstreams",
      cells.length === 0 ? el("p", { class: "muted" }, "No upstream was asked.") : tries.node,
    );
    replace(node, notice(toneOf(found.status), sentenceOf(found), `It took ${milliseconds(found.ms)}.`), facts, asking);
  }

  function unknown(): HTMLElement {
    const config = live.known?.config ?? null;
    const kept = config === null ? null : (config.global.decisions ?? KEPT);
    const latest = kept === null ? "The latest requests" : `The latest ${number(kept)} requests of all workers`;
    const memory =
      kept === 0
        ? "The gateway remembers none: global.decisions is 0."
        : `${latest} are remembered, as global.decisions says, from their end until a restart, ` +
          `with STATE_DIR beyond it.`;
    return notice(
      "warn",
      "No request with this id is remembered.",
      memory,
      el("p", {}, `Ids are compared exactly, upper and lower case too. ${WHERE}`),
    );
  }
};

/** Null: none with this id is remembered. */
async function decisionOf(id: string): Promise<RequestDecision | null> {
  if (!ID.test(id)) return null;
  try {
    // A path may have all characters of ids as they are; the manager lets no encoded slash pass.
    return await ask<RequestDecision>("GET", `/gateway/requests/${id}`);
  } catch (error) {
    // The reply for an unknown id has it.
    if (error instanceof ApiError && error.status === 404 && error.problem.id !== undefined) return null;
    throw error;
  }
}

/** "The plugin key_auth answered 401 key_missing." */
function sentenceOf({ by, status, code, tries }: RequestDecision): string {
  if (status === null) return "Nobody answered: the client disconnected before.";
  const upstream = tries.at(-1)?.upstream;
  const who =
    by === null
      ? "It"
      : by === "gateway"
        ? "The gateway itself"
        : by !== "upstream"
          ? `The plugin ${by}`
          : upstream == null
            ? "An upstream"
            : `The upstream ${upstream}`;
  return `${who} ${by === null ? "was answered with" : "answered"} ${status}${code === null ? "" : ` ${code}`}.`;
}

function toneOf(status: number | null): "good" | "warn" | "bad" {
  return status === null || status >= 500 ? "bad" : status >= 400 ? "warn" : "good";
}

function factsOf(decision: RequestDecision, force: HTMLElement): HTMLElement {
  const { time, client, method, host, path, service, route, digest } = decision;
  return factList([
    ["Ended", el("time", { datetime: time }, moment(time))],
    [
      "Request",
      method === null ? "could not be read" : el("span", { class: "mono" }, `${method} ${host ?? ""}${path ?? ""}`),
    ],
    ["Client", client ?? "not known"],
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

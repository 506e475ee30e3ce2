/**
 * The "Try it" page: asks the gateway how it would handle a request, and shows the route, the plugins and the upstreams. Nothing is
 * forwarded.
 */
import { ApiError, ask, type Explanation, type UpstreamHealth } from "./api.ts";
import { el, replace } from "./dom.ts";
import { hashOf } from "./hash.ts";
import { addressOf, figuresByName } from "./inventory.ts";
import type { Known, OpenPage } from "./page.ts";
import { facts, link, section } from "./parts.ts";
import { pipeline, type Pipeline } from "./pipeline.ts";
import { readQuestion, type Problem } from "./question.ts";
import { upstreamFacts } from "./route_page.ts";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** "#/try?method=GET&url=/shop/items" fills in the form. */
export const tryPage: OpenPage = (frame) => {
  const given = new URLSearchParams(location.hash.split("?", 2)[1] ?? "");
  const method = el("input", {
    id: "try-method",
    name: "method",
    list: "try-methods",
    autocomplete: "off",
    autocapitalize: "characters",
    spellcheck: "false",
    required: true,
    "aria-describedby": "try-method-problem",
  });
  const url = el("input", {
    id: "try-url",
    name: "url",
    class: "mono",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    placeholder: "/shop/items/7?page=2",
    "aria-describedby": "try-url-problem",
  });
  const headers = el("textarea", {
    id: "try-headers",
    name: "headers",
    class: "mono",
    rows: 4,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Host: api.example.com",
    "aria-describedby": "try-headers-hint try-headers-problem",
  });
  const fields = { method, url, headers };
  const problems = { method: problemNode("method"), url: problemNode("url"), headers: problemNode("headers") };
  const button = el("button", { type: "submit", class: "button button--primary" }, "Explain");
  const form = el(
    "form",
    { class: "card try", novalidate: true, onsubmit: (event: SubmitEvent) => void submit(event) },
    el("div", { class: "field try__method" }, el("label", { for: method.id }, "Method"), method, problems.method),
    el("div", { class: "field try__url" }, el("label", { for: url.id }, "Path, with its query"), url, problems.url),
    el(
      "div",
      { class: "field try__headers" },
      el("label", { for: headers.id }, "Headers"),
      headers,
      el(
        "p",
        { class: "field__hint", id: "try-headers-hint" },
        "One in a line, as “Name: value”. A Host decides among services that are restricted to host names.",
      ),
      problems.headers,
    ),
    el("div", { class: "toolbar try__send" }, button, el("p", { class: "muted" }, "Nothing is forwarded: the gateway only says what it would do.")),
    el("datalist", { id: "try-methods" }, ...METHODS.map((value) => el("option", { value }))),
  );
  // Announced to screen readers when it changes; the drawing below it is not.
  const outcome = el("div", { role: "status" });
  const rest = el("div", { class: "stack" });
  const node = el("div", { class: "stack" }, form, outcome, rest);
  method.value = given.get("method") ?? "GET";
  url.value = given.get("url") ?? "";
  let asked = 0;
  let drawing: Drawing | null = null;
  let known: Known | null = null;

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    method.value = method.value.trim().toUpperCase();
    const read = readQuestion({ method: method.value, url: url.value, headers: headers.value });
    showProblems("problems" in read ? read.problems : []);
    if ("problems" in read) return fields[read.problems[0]!.field].focus();
    const turn = ++asked;
    button.setAttribute("aria-busy", "true");
    try {
      const explanation = await ask<Explanation>("POST", "/gateway/explain", { body: read.question });
      if (turn !== asked) return;
      keepAddress(read.question.method, read.question.url);
      show(explanation, read.question.method);
    } catch (error) {
      if (turn === asked) showError(error);
    } finally {
      if (turn === asked) button.removeAttribute("aria-busy");
    }
  }

  /** Method and path are kept in the address; headers may contain secrets and are not. */
  function keepAddress(m: string, u: string): void {
    history.replaceState(history.state, "", `#/try?${new URLSearchParams({ method: m, url: u })}`);
  }

  function showProblems(list: readonly Problem[]): void {
    for (const name of ["method", "url", "headers"] as const) {
      const own = list.filter(({ field }) => field === name);
      fields[name].setAttribute("aria-invalid", String(own.length > 0));
      replace(problems[name], ...own.map(({ message }) => el("span", {}, message)));
    }
  }

  function show(explanation: Explanation, verb: string): void {
    drawing?.close();
    drawing = explanation.outcome === "matched" ? matched(explanation, verb) : null;
    replace(outcome, verdict(explanation));
    replace(rest, ...(drawing?.nodes ?? []));
    if (known !== null) drawing?.update(known);
  }

  function showError(error: unknown): void {
    drawing?.close();
    drawing = null;
    replace(outcome);
    replace(rest);
    if (error instanceof ApiError && error.status === 401) return frame.fail(error);
    replace(outcome, failure(error));
  }

  return {
    title: "Try it",
    node,
    update(next) {
      known = next;
      drawing?.update(next);
    },
    close() {
      // The page was left before the reply arrived.
      asked += 1;
      drawing?.close();
    },
  };
};

function problemNode(field: string): HTMLElement {
  return el("p", { class: "try__problem", id: `try-${field}-problem`, role: "alert" });
}

function verdict({ outcome, status, code, reasons, service, route, path }: Explanation): HTMLElement {
  const where = path === null ? "" : ` ${path}`;
  const head =
    outcome === "matched"
      ? el(
          "p",
          {},
          el("strong", {}, "Taken by "),
          link(hashOf("routes", service ?? "", route ?? ""), el("strong", {}, route ?? "")),
          " of ",
          link(hashOf("services", service ?? ""), service ?? ""),
          ".",
        )
      : el(
          "p",
          {},
          el("strong", {}, `Refused with ${[status, code].filter((part) => part !== null).join(" ")}`),
          `${where === "" ? "" : ":"}${where}`,
        );
  return el(
    "div",
    { class: `notice notice--${outcome === "matched" ? "good" : "bad"}` },
    head,
    reasons.length > 0 && el("ul", { class: "reasons" }, ...reasons.map((reason) => el("li", {}, reason))),
  );
}

function failure(error: unknown): HTMLElement {
  const { status, message, problem, retryAfterS } = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) }, null);
  if (status === 404 || status === 405 || status === 501) {
    return el(
      "div",
      { class: "notice notice--warn" },
      el("p", {}, el("strong", {}, "This gateway cannot explain.")),
      el("p", {}, "It is an older version, without POST /gateway/explain. Everything else here works all the same."),
    );
  }
  const issues = Array.isArray(problem.issues) ? problem.issues.map(String) : [];
  const head =
    status === 0
      ? "The question did not get through."
      : status === 429
        ? "Too many questions."
        : status < 500
          ? "The gateway cannot read this question."
          : "The gateway could not answer.";
  return el(
    "div",
    { class: "notice notice--bad" },
    el("p", {}, el("strong", {}, head)),
    el("p", {}, message),
    issues.length > 0 && el("ul", { class: "reasons" }, ...issues.map((issue) => el("li", {}, issue))),
    retryAfterS !== null && el("p", {}, `Try again in ${retryAfterS} s.`),
  );
}

interface Drawing {
  readonly nodes: readonly HTMLElement[];
  update(known: Known): void;
  close(): void;
}

function matched(explanation: Explanation, method: string): Drawing {
  const { service, pattern, params, forwarded, path, plugins, strategy, upstreams } = explanation;
  const name = service ?? "";
  const given = Object.entries(params);
  const shares = new Map(upstreams.map((upstream) => [upstream.id, { share: upstream.share, how: "planned" as const }]));
  const states = new Map<string, UpstreamHealth>(upstreams.map((upstream) => [upstream.id, upstream]));
  const way: Pipeline = pipeline({
    listener: {
      title: method,
      text: path ?? "",
      details: () =>
        facts([
          ["Path", mono(path ?? "")],
          ["Pattern", mono(pattern ?? "")],
        ]),
    },
    plugins,
    strategy: { name: strategy ?? "", details: () => facts([["Service", link(hashOf("services", name), name)]]) },
    upstreams: upstreams.map((upstream) => ({
      id: upstream.id,
      address: addressOf(upstream),
      details: () => upstreamFacts(states.get(upstream.id) ?? null, name, upstream),
    })),
  });
  const what = facts([
    ["Path", mono(path ?? "")],
    ["Pattern", mono(pattern ?? "")],
    ["The upstream gets", mono(forwarded ?? "")],
    ["Placeholders", given.length === 0 ? "none" : el("div", {}, ...given.map(([key, value]) => el("div", { class: "mono" }, `${key} = ${value}`)))],
  ]);
  return {
    nodes: [
      section("The match", el("div", { class: "card" }, what)),
      section(
        "The way it would go",
        el("div", { class: "card" }, way.node),
        el("p", { class: "muted" }, "Shares as the strategy and the state of the upstreams have it now. A plugin may still refuse the request."),
      ),
    ],
    /** States are live; the shares are those of the reply. */
    update({ health, stats }) {
      const now = health?.services.find((one) => one.name === name);
      const figures = figuresByName(stats);
      way.update({
        route: null,
        circuit: now?.circuit_breaker?.state ?? null,
        faults: () => 0,
        upstream: (id) => ({
          health: now?.upstreams.find((one) => one.id === id) ?? states.get(id) ?? null,
          figures: stats === null ? null : figures.upstream(name, id),
          share: shares.get(id) ?? null,
        }),
      });
    },
    close: () => way.close(),
  };
}

function mono(text: string): HTMLElement {
  return el("span", { class: "mono" }, text);
}

/**
 * The "Try it" page: asks the gateway how it would handle a request, and shows the route, the plugins and the
 * upstreams.
 */
import { ApiError, ask, isSessionEnd, type Explanation, type ExplainRequest, type TestRun } from "./api.ts";
import { conditionTexts } from "./conditions.ts";
import { button, el, replace, type Child } from "./dom.ts";
import { number } from "./format.ts";
import { hashFor, queryIn } from "./url_hash.ts";
import { live } from "./live.ts";
import type { Frame, OpenPage, Page, Shown } from "./page.ts";
import { breakable, factList, field, link, listOf, loading, notice, readOnlyJson, section } from "./components.ts";
import { copy } from "./copy.ts";
import { Pipeline } from "./pipeline.ts";
import { openNewTest } from "./new_test.ts";
import { formOf, testOf } from "./test_json.ts";
import { readTryForm, type FieldError, type TryInput } from "./try_form.ts";

const FIELDS = ["method", "url", "headers", "clientIp", "body"] as const;
const HEADERS_HINT =
  "One per line, as “Name: value”; cookies as “Cookie: name=value”. " +
  "Host selects among services that are restricted to host names.";
const METHODS = ["GET", "HEAD", "QUERY", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/** Candidates that are listed; further ones are only counted. */
const MAX_CANDIDATES = 100;

const MAX_DRAFTS = 20;

/**
 * "#/try?method=GET&url=/shop/items&headers=X-Version: 2" fills in the form, and "#/try?test=NAME" with the request of
 * a test.
 */
export const page: OpenPage = (frame) => new TryPage(frame);

class TryPage implements Page {
  readonly title = "Try it";
  readonly node: HTMLElement;
  readonly #frame: Frame;
  readonly #form = tryForm();
  /** What the form does not have of a test. */
  readonly #notes = el("div", { role: "status" });
  // Announced to screen readers when it changes; the drawing below it is not.
  readonly #outcome = el("div", { role: "status" });
  readonly #rest = el("div", { class: "stack" });
  /** Counts requests: a reply to an earlier one is ignored, and one that arrives after the page was left. */
  #asked = 0;
  #drawing: Drawing | null = null;
  /** Of the answer that is shown. */
  #service: string | null = null;

  constructor(frame: Frame) {
    this.#frame = frame;
    const { node: form } = this.#form;
    const given: Readonly<Record<string, string>> = {
      method: "GET",
      ...Object.fromEntries(queryIn(location.hash)),
      ...frame.texts.get(location.hash),
    };
    for (const name of FIELDS) this.#form[name].value = given[name] ?? "";
    const test = queryIn(location.hash).get("test");
    if (test !== null) void this.#fillIn(test);
    form.addEventListener("input", () => this.#keep());
    form.addEventListener("submit", (event) => void this.#submit(event));
    this.node = el("div", { class: "stack" }, this.#notes, form, this.#outcome, this.#rest);
  }

  get shown(): Shown {
    return this.#service === null ? "total" : { service: this.#service };
  }

  update(): void {
    this.#drawing?.update();
  }

  async #submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const { method, send } = this.#form;
    method.value = method.value.trim().toUpperCase();
    const read = readTryForm(this.#keep());
    this.#showFieldErrors("errors" in read ? read.errors : []);
    const own = ++this.#asked;
    const counts = () => own === this.#asked && this.node.isConnected;
    if ("errors" in read) {
      send.removeAttribute("aria-busy");
      // An answer to an earlier request would seem to belong to this one.
      this.#clear();
      return this.#form[read.errors[0]!.field].focus();
    }
    send.setAttribute("aria-busy", "true");
    try {
      const explanation = await ask<Explanation>("POST", "/gateway/explain?secrets=masked", { body: read.request });
      if (!counts()) return;
      // The request of a test may have secrets in its URL.
      if (!queryIn(location.hash).has("test")) keepInAddress(read.request);
      this.#keep();
      this.#show(explanation, read.request);
    } catch (error) {
      if (counts()) this.#showError(error);
    } finally {
      if (counts()) send.removeAttribute("aria-busy");
    }
  }

  /**
   * "#/try?test=NAME": the request of a test, which may have secrets: they are in no address. What somebody has entered
   * stays.
   */
  async #fillIn(name: string): Promise<void> {
    replace(this.#notes, loading("the test"));
    try {
      const { tests } = await ask<TestRun>("GET", "/gateway/tests");
      const written = tests.find((test) => test.name === name)?.request ?? null;
      if (written === null)
        return replace(
          this.#notes,
          notice(
            "warn",
            "The request of this test is not known.",
            `“${name}” is no test of the configuration in force.`,
          ),
        );
      const { input, missing } = formOf(written);
      const isEntered = this.#frame.texts.has(location.hash);
      if (!isEntered) for (const part of FIELDS) this.#form[part].value = input[part];
      const more = missing.length === 0 ? null : listOf(missing, (each) => [each]);
      replace(
        this.#notes,
        notice(
          missing.length === 0 ? "good" : "warn",
          `${isEntered ? "Begun with the" : "The"} request of the test “${name}”.`,
          missing.length === 0 ? "" : "Not taken over:",
          more,
        ),
      );
    } catch (error) {
      if (isSessionEnd(error)) return this.#frame.showError(error);
      replace(this.#notes, failure(error));
    }
  }

  #showFieldErrors(list: readonly FieldError[]): void {
    for (const name of FIELDS) {
      const own = list.filter(({ field }) => field === name);
      this.#form[name].setAttribute("aria-invalid", String(own.length > 0));
      replace(this.#form.errors[name], ...own.map(({ message }) => el("span", {}, message)));
    }
  }

  #show(explanation: Explanation, request: ExplainRequest): void {
    this.#clear();
    this.#service = explanation.service;
    this.#drawing = explanation.outcome === "matched" ? matched(explanation, request.method) : null;
    replace(this.#outcome, outcomeNotice(explanation));
    replace(
      this.#rest,
      ...(this.#drawing?.nodes ?? []),
      candidateList(explanation),
      testCard(request, explanation, this.#frame),
    );
    this.#drawing?.update();
  }

  /** Returns what is in the form. */
  #keep(): TryInput {
    const { method, url, headers, clientIp, body } = this.#form;
    const input = {
      method: method.value,
      url: url.value,
      headers: headers.value,
      clientIp: clientIp.value,
      body: body.value,
    };
    const { texts } = this.#frame;
    texts.delete(location.hash);
    texts.set(location.hash, input);
    if (texts.size > MAX_DRAFTS) texts.delete(texts.keys().next().value!);
    return input;
  }

  #clear(): void {
    this.#drawing = null;
    this.#service = null;
    replace(this.#outcome);
    replace(this.#rest);
  }

  #showError(error: unknown): void {
    this.#clear();
    if (isSessionEnd(error)) return this.#frame.showError(error);
    replace(this.#outcome, failure(error));
  }
}

function tryForm() {
  const plain = { autocomplete: "off", spellcheck: "false" };
  const inputs = {
    method: el("input", { ...plain, list: "try-methods", autocapitalize: "characters", required: true }),
    url: el("input", { ...plain, class: "mono", placeholder: "/shop/items/7?page=2", required: true }),
    headers: el("textarea", { ...plain, class: "mono", rows: 4, placeholder: "Host: api.example.com" }),
    clientIp: el("input", { ...plain, class: "mono", placeholder: "127.0.0.1" }),
    body: el("textarea", { ...plain, class: "mono", rows: 4 }),
  };
  const hint = el("p", { class: "field__hint", id: "try-headers-hint" }, HEADERS_HINT);
  const problem = (name: keyof TryInput) =>
    el("p", { class: "try__problem", id: `try-${name}-problem`, role: "alert" });
  const errors = {
    method: problem("method"),
    url: problem("url"),
    headers: problem("headers"),
    clientIp: problem("clientIp"),
    body: problem("body"),
  };
  const fieldOf = (name: keyof TryInput, label: string): HTMLElement => {
    const input = inputs[name];
    const above = name === "headers" && hint;
    [input.id, input.name] = [`try-${name}`, name];
    input.setAttribute("aria-describedby", `${above ? `${hint.id} ` : ""}${errors[name].id}`);
    return field(label, input, above, errors[name]);
  };
  const send = el("button", { type: "submit", class: "button button--primary" }, "Explain");
  const node = el(
    "form",
    { class: "card try", novalidate: true },
    fieldOf("method", "Method"),
    fieldOf("url", "Path and query"),
    el("div", { class: "try__texts" }, fieldOf("headers", "Headers"), fieldOf("body", "Body")),
    el("div", { class: "try__client" }, fieldOf("clientIp", "Client IP")),
    el(
      "div",
      { class: "toolbar try__send" },
      send,
      el("p", { class: "muted" }, "Nothing is forwarded: the gateway only explains what it would do."),
    ),
    el("datalist", { id: "try-methods" }, ...METHODS.map((value) => el("option", { value }))),
  );
  return { ...inputs, node, errors, send };
}

/** Headers and body are left out: they may contain secrets. */
function keepInAddress({ method, url }: ExplainRequest): void {
  history.replaceState(history.state, "", `#/try?${new URLSearchParams({ method, url })}`);
}

function outcomeNotice({
  outcome,
  status,
  code,
  reasons,
  service,
  route,
  path,
  open,
  answer,
}: Explanation): HTMLElement {
  const tone = outcome === "refused" ? "bad" : answer === null || answer.status! < 400 ? "good" : "warn";
  const where = path === null ? "" : `: ${path}`;
  const head =
    outcome === "matched"
      ? el(
          "p",
          {},
          el("strong", {}, "Handled by "),
          link(hashFor("routes", service ?? "", route ?? ""), el("strong", {}, route ?? "")),
          " of ",
          link(hashFor("services", service ?? ""), service ?? ""),
          answer === null
            ? "."
            : `. ${open ? "If the plugins before it let the request pass, the" : "The"} plugin ${answer.name} ` +
                `answers with ${replyText(answer)}: the request does not reach an upstream.`,
        )
      : el("p", {}, el("strong", {}, `Refused with ${replyText({ status, code })}`), where);
  return el(
    "div",
    { class: `notice notice--${tone}` },
    head,
    reasons.length > 0 && listOf(reasons, (reason) => [reason]),
  );
}

/** "401 key_missing" */
function replyText({ status, code }: { readonly status: number | null; readonly code: string | null }): string {
  return [status, code].filter((part) => part !== null).join(" ");
}

/** Null where there are none. */
function candidateList({ candidates, service: taken, route: takenRoute }: Explanation): HTMLElement | null {
  if (candidates.length === 0) return null;
  const head = el("tr", {}, ...["Route", "Service", "Verdict"].map((title) => el("th", { scope: "col" }, title)));
  const rows = candidates.slice(0, MAX_CANDIDATES).map(({ service, route, verdict }) => {
    const name = link(hashFor("routes", service, route), ...breakable(route));
    const isTaken = service === taken && route === takenRoute;
    const text = isTaken ? el("span", { class: "badge badge--good badge--wrap" }, verdict) : verdict;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el("td", {}, link(hashFor("services", service), ...breakable(service))),
      el("td", {}, text),
    );
  });
  const table = el(
    "table",
    { class: "table table--fixed candidates", "aria-label": "Candidates" },
    el("thead", {}, head),
    el("tbody", {}, ...rows),
  );
  const rest = candidates.length - rows.length;
  return section(
    "Candidates",
    el("div", { class: "card" }, table, rest > 0 && el("p", { class: "muted" }, `and ${number(rest)} more`)),
  );
}

/** A button that copies the request as a test, and shows the copy. */
function testCard(request: ExplainRequest, explanation: Explanation, frame: Frame): HTMLElement {
  const test = readOnlyJson(testOf(request, explanation), { id: "try-test", "aria-describedby": "try-test-hint" });
  const shown = field("Test as JSON", test);
  shown.hidden = true;
  const hints = [
    "Goes into “tests” of the configuration file, or into a file of “test_files”. " +
      "It holds headers and body as entered, secrets included.",
    explanation.open
      ? "It expects no status, since not every plugin has decided. " +
        "Answers of other machines go into “answers” of the test."
      : "",
  ];
  const hint = el("p", { class: "muted", id: "try-test-hint" }, hints.join(" ").trim());
  return section(
    "As a test",
    el(
      "div",
      { class: "card stack" },
      el(
        "div",
        { class: "toolbar" },
        button("Copy as test", () => void showAndCopy()),
        frame.session?.write === true && button("Add the test", () => openNewTest(frame, testOf(request, explanation))),
        hint,
      ),
      shown,
    ),
  );

  async function showAndCopy(): Promise<void> {
    shown.hidden = false;
    await copy(frame, test.value, "Copied as a test.", test);
  }
}

function failure(error: unknown): HTMLElement {
  const { status, message, retryAfterS } =
    error instanceof ApiError ? error : new ApiError(0, { detail: String(error) }, null);
  const head =
    status === 0
      ? "The request did not reach the gateway."
      : status === 429
        ? "Too many requests."
        : status < 500
          ? "The gateway rejected this request."
          : "The gateway failed to answer.";
  return notice(
    "bad",
    head,
    "",
    el("p", {}, message),
    retryAfterS !== null && el("p", {}, `Try again in ${retryAfterS} s.`),
  );
}

interface Drawing {
  readonly nodes: readonly HTMLElement[];
  update(): void;
}

function matched(explanation: Explanation, method: string): Drawing {
  const { service, pattern, params, forwarded, path, plugins, strategy, upstreams } = explanation;
  const name = service ?? "";
  const configured = live.known?.config?.services.find((each) => each.name === name);
  const match = configured?.routes.find((each) => each.name === explanation.route)?.match;
  const given = Object.entries(params);
  const explained = new Map(upstreams.map((upstream) => [upstream.id, upstream]));
  const facts = (...more: readonly (readonly [string, Child])[]) =>
    factList([["Path", mono(path ?? "")], ["Pattern", mono(pattern ?? "")], ...more]);
  const drawing = new Pipeline({
    listener: {
      title: method,
      text: path ?? "",
      notes: conditionTexts(match),
      details: () => facts(),
    },
    plugins,
    upstreams,
    service: name,
    strategy: strategy ?? "",
    config: configured,
  });
  const placeholders =
    given.length === 0
      ? "none"
      : el("div", {}, ...given.map(([key, value]) => el("div", { class: "mono" }, `${key} = ${value}`)));
  const what = facts(["The upstream gets", mono(forwarded ?? "")], ["Placeholders", placeholders]);
  return {
    nodes: [
      section("The match", el("div", { class: "card" }, what)),
      section(
        "Path through the gateway",
        el("div", { class: "card" }, drawing.node),
        el("p", { class: "muted" }, sharesNote(explanation)),
      ),
    ],
    /** States are live; the shares come from the reply. */
    update() {
      drawing.update({
        route: null,
        circuit: live.health(name)?.circuit_breaker ?? null,
        answered: () => null,
        faults: () => "",
        upstream: (id) => ({
          health: live.upstream(name, id) ?? explained.get(id) ?? null,
          share: { share: explained.get(id)?.share ?? 0, how: "planned" },
        }),
      });
    },
  };
}

function sharesNote({ open }: Explanation): string {
  const shares =
    "Shares are those of requests like this one: they follow from splits, " +
    "the strategy and the current state of the upstreams.";
  return open ? `${shares} A plugin may still refuse the request.` : shares;
}

function mono(text: string): HTMLElement {
  return el("span", { class: "mono" }, text);
}

/**
 * The configuration page: the configuration as the gateway has read it, a button that reloads it, and the settings of the process.
 * It changes nothing itself: the file is the source.
 */
import { ApiError, ask, type Change, type ProxyConfig, type Reload, type Reloaded, type Settings, type Status } from "./api.ts";
import { copy } from "./copy.ts";
import { el, replace, setText, type Child } from "./dom.ts";
import { moment, number } from "./format.ts";
import { occurrences, type JsonPath } from "./json_text.ts";
import { JsonView } from "./json_view.ts";
import type { Frame, Known, OpenPage } from "./page.ts";
import { countsText, createAges, issueList, outcomeBadge, pair, refusalIn, secretText, testsPair, unreadable, type Ages } from "./components.ts";
import { MASK } from "./setting_lines.ts";

const BY: Readonly<Record<Reload["by"], string>> = {
  file: "a change of the file",
  signal: "a signal (SIGHUP)",
  admin: "the admin interface",
  api: "the program the gateway is embedded in",
};
const CHANGES: Readonly<Record<Change["change"], readonly [string, string]>> = {
  added: ["Added", "badge--good"],
  altered: ["Altered", "badge--warn"],
  removed: ["Removed", "badge--bad"],
};
/** Changes listed individually. */
const MAX_CHANGES = 200;

export const configPage: OpenPage = (frame) => {
  const file = fileCard(frame);
  const state = stateCard(frame);
  const settings = settingsCard(frame);
  const node = el("div", { class: "config" }, file.node, el("div", { class: "stack" }, state.node, settings.node));
  settings.load();
  return {
    title: "Configuration",
    node,
    update(known: Known) {
      file.update(known.config);
      state.update(known);
    },
  };
};

function fileCard(frame: Frame) {
  const view = new JsonView("The configuration as JSON");
  const find = el("input", { type: "search", id: "config-find", placeholder: "Find a name or a value", autocomplete: "off", spellcheck: "false", oninput: search, onkeydown: onKey });
  const status = el("span", { class: "muted", role: "status" });
  const secrets = el("button", { type: "button", class: "button button--small", "aria-pressed": "false", onclick: () => void toggleSecrets() }, "Show secrets");
  const tools = el(
    "div",
    { class: "toolbar" },
    el("div", { class: "json__find" }, el("label", { class: "visually-hidden", for: "config-find" }, "Find in the configuration"), find),
    el("button", { type: "button", class: "button button--small", onclick: () => go(1) }, "Next"),
    status,
    el("button", { type: "button", class: "button button--small", onclick: () => view.expandAll() }, "Open all"),
    el("button", { type: "button", class: "button button--small", onclick: () => view.collapse() }, "Close all"),
    el("button", { type: "button", class: "button button--small", onclick: () => void copyMasked(config, frame) }, "Copy"),
    secrets,
  );
  const hint = el("p", { class: "muted" }, "As the gateway has read it, with defaults filled in. The gateway masks secrets, and always in copies; references such as ${env:NAME} are shown as written.");
  const body = el("div", { class: "stack" }, el("p", { class: "empty" }, "Waiting for the configuration…"));
  let config: ProxyConfig | null = null;
  let root: unknown = null;
  let found: readonly JsonPath[] = [];
  let current = -1;

  return {
    node: el("section", { class: "card" }, el("div", { class: "card__title" }, el("h2", {}, "The file")), body),
    update(known: ProxyConfig | null) {
      if (known === null || known === config) return;
      if (config === null) replace(body, hint, tools, view.node);
      config = known;
      show(known, false);
    },
  };

  function show(shown: ProxyConfig, withSecrets: boolean): void {
    root = asFile(shown);
    view.show(root);
    if (find.value !== "") search();
    secrets.setAttribute("aria-pressed", String(withSecrets));
    setText(secrets, withSecrets ? "Hide secrets" : "Show secrets");
  }

  async function toggleSecrets(): Promise<void> {
    const before = config;
    if (before === null) return;
    if (secrets.getAttribute("aria-pressed") === "true") return show(before, false);
    try {
      const plain = await ask<ProxyConfig>("GET", "/gateway");
      if (before === config) show(plain, true);
    } catch (error) {
      frame.showError(error);
    }
  }

  function search(): void {
    const query = find.value.trim();
    found = occurrences(root, query);
    current = -1;
    view.mark(query, found);
    if (query === "") return setText(status, "");
    if (found.length === 0) return setText(status, "Not found");
    go(1);
  }

  function onKey(event: KeyboardEvent): void {
    if (event.key !== "Enter") return;
    event.preventDefault();
    go(event.shiftKey ? -1 : 1);
  }

  function go(by: number): void {
    if (found.length === 0) return;
    current = (current + by + found.length) % found.length;
    setText(status, `${number(current + 1)} of ${number(found.length)}`);
    view.reveal(found[current]!);
  }
}

/** As the gateway has masked it, whatever is shown. */
async function copyMasked(config: ProxyConfig | null, frame: Frame): Promise<void> {
  if (config === null) return;
  await copy(frame, JSON.stringify(asFile(config), null, 2), "Copied, with secrets masked.");
}

/** The reply lists the global plugins twice: omits the copy outside `global`. */
function asFile({ global, plugins: _plugins, services, ...others }: ProxyConfig): unknown {
  return { global, services, ...others };
}

function stateCard(frame: Frame) {
  const factList = el("div", { class: "stack" }, el("p", { class: "empty" }, "Waiting for the state of the gateway…"));
  const result = el("div", { class: "result", role: "status" });
  const button = el("button", { type: "button", class: "button button--primary", onclick: () => void reload() }, "Reload the file");
  let busy = false;
  let drawn = "";
  /** The reload that the result is of; "next": the one that the next status reports. */
  let resultOf: string | null = null;
  const tools = el("div", { class: "toolbar" }, button, el("span", { class: "muted" }, "All or nothing: a file with an error changes nothing."));
  const ages = createAges();
  return {
    node: el(
      "section",
      { class: "card stack" },
      el("h2", {}, "In force"),
      factList,
      el("div", {}, tools, result),
    ),
    update({ status, now }: Known) {
      tools.hidden = frame.session?.role === "viewer";
      if (status === null) return;
      const reloaded = status.last_reload?.at ?? "";
      if (resultOf === "next") resultOf = reloaded;
      // A later reload, as by a change of the file, may have had another outcome.
      if (!busy && resultOf !== reloaded) replace(result);
      const key = JSON.stringify([status.digest, status.loaded_at, status.last_reload, status.last_change, status.counts, status.tests]);
      if (key !== drawn) {
        drawn = key;
        ages.forget();
        replace(factList, ...stateOf(status, ages));
      }
      ages.update(now);
    },
  };

  async function reload(): Promise<void> {
    if (busy) return;
    setBusy(true);
    replace(result);
    let outcome: Reloaded | ApiError;
    try {
      outcome = await ask<Reloaded>("POST", "/gateway/reload");
    } catch (error) {
      setBusy(false);
      if (!(error instanceof ApiError) || error.status === 401) return frame.showError(error);
      outcome = error;
    }
    // The event stream reports the new state too; without it only this notice shows the errors.
    const isShownAbove = await frame.refresh().then(
      () => true,
      () => false,
    );
    setBusy(false);
    resultOf = "next";
    replace(result, outcome instanceof ApiError ? refusedNotice(outcome, isShownAbove) : reloadedNotice(outcome));
  }

  function setBusy(to: boolean): void {
    busy = to;
    button.setAttribute("aria-busy", String(to));
    button.setAttribute("aria-disabled", String(to));
    setText(button, to ? "Reloading…" : "Reload the file");
  }
}

function reloadedNotice({ changed, changes, digest }: Reloaded): HTMLElement {
  if (!changed) return el("div", { class: "notice notice--good" }, el("p", {}, el("strong", {}, "Reloaded."), " The configuration has not changed."));
  const count = changes.length === 1 ? "One change." : `${number(changes.length)} changes.`;
  return el("div", { class: "notice notice--good" }, el("p", {}, el("strong", {}, "Reloaded."), ` ${count} The digest is now `, el("span", { class: "mono" }, digest.slice(0, 16)), "."), changeList(changes));
}

function refusedNotice({ problem, message }: ApiError, isShownAbove: boolean): HTMLElement {
  const refusal = refusalIn(problem);
  if (refusal === null) return el("div", { class: "notice notice--bad" }, el("p", {}, el("strong", {}, "Not reloaded. "), message));
  const count = refusal.issues.length === 1 ? "One error" : `${number(refusal.issues.length)} errors`;
  if (isShownAbove) return el("div", { class: "notice notice--bad" }, el("p", {}, el("strong", {}, "Refused."), ` ${count}, listed above.`));
  return el("div", { class: "notice notice--bad" }, el("p", {}, el("strong", {}, "Refused."), " The gateway keeps its current configuration."), issueList(refusal));
}

function stateOf({ digest, loaded_at: loaded, last_reload: last, last_change: change, counts, tests }: Status, ages: Ages): readonly Child[] {
  const lastChange = change !== null && change.outcome === "taken" && change.changes.length > 0 ? change : null;
  return [
    el(
      "dl",
      { class: "pairs" },
      ...pair("In force since", el("span", {}, moment(loaded), " (", ages.of(loaded), ")")),
      ...pair("Digest", el("span", { class: "mono" }, digest)),
      ...pair("Contents", countsText(counts)),
      ...testsPair(tests),
      ...pair("Last reload", last === null ? "none since the start" : lastReload(last, ages)),
    ),
    last !== null && last.outcome === "refused"
      ? el("div", { class: "notice notice--bad" }, el("p", {}, "The last reload was refused; the gateway keeps its current configuration. Correct the file, then reload it."), issueList(last))
      : null,
    lastChange === null ? null : el("details", { class: "more" }, el("summary", {}, "Last change, ", ages.of(lastChange.at)), changeList(lastChange.changes)),
  ];
}

function lastReload({ at, by, outcome }: Reload, ages: Ages): HTMLElement {
  return el("span", {}, outcomeBadge(outcome), " ", ages.of(at), `, by ${BY[by] ?? by}`);
}

function changeList(changes: readonly Change[]): HTMLElement {
  const items = changes.slice(0, MAX_CHANGES).map(({ change, name }) => {
    const [label, tone] = CHANGES[change] ?? [change, ""];
    return el("li", {}, el("span", { class: `badge ${tone}` }, label), " ", el("span", { class: "mono" }, name));
  });
  const more = changes.length - items.length;
  return el("ul", { class: "list changes" }, ...items, more > 0 ? el("li", { class: "muted" }, `and ${number(more)} more`) : null);
}

function settingsCard(frame: Frame) {
  const body = el("div", {}, el("p", { class: "empty" }, "Waiting for the settings…"));
  return {
    node: el("section", { class: "card" }, el("div", { class: "card__title" }, el("h2", {}, "Settings")), body),
    load: () => void load(),
  };

  async function load(): Promise<void> {
    try {
      const settings = await ask<Settings>("GET", "/gateway/config?secrets=masked");
      replace(body, el("dl", { class: "pairs" }, ...Object.entries(settings).flatMap(([name, value]) => pair(name, settingValue(name, value, frame)))));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return frame.showError(error);
      replace(body, ...unreadable("The settings", error, () => void load()));
    }
  }
}

function settingValue(name: string, value: string, frame: Frame): Child {
  if (value === "") return el("span", { class: "muted" }, "not set");
  if (value !== MASK) return el("span", { class: "mono" }, value);
  return secretText(name, async () => {
    try {
      return (await ask<Settings>("GET", "/gateway/config"))[name] ?? "";
    } catch (error) {
      frame.showError(error);
      return MASK;
    }
  });
}

/**
 * The configuration page: the configuration as the gateway has read it, a button that reloads it, and the settings of
 * the process.
 * It changes nothing itself: the file is the source.
 */
import { ageOf } from "./ages.ts";
import { ApiError, ask, isSessionEnd, type ProxyConfig, type Reloaded, type Settings, type Status } from "./api.ts";
import { askingFor } from "./asking.ts";
import { copy } from "./copy.ts";
import { button, el, replace, setPending, setText, whenChanged, type Child } from "./dom.ts";
import { number } from "./format.ts";
import { occurrences, type JsonPath } from "./json_text.ts";
import { JsonView } from "./json_view.ts";
import type { Frame, Known, OpenPage } from "./page.ts";
import {
  card,
  changeList,
  issueList,
  loading,
  notice,
  pair,
  refusalIn,
  searchInput,
  secretText,
} from "./components.ts";
import { configFacts, shownOf } from "./config_facts.ts";
import { MASK } from "./setting_lines.ts";

export const page: OpenPage = (frame) => {
  const file = fileCard(frame);
  const state = stateCard(frame);
  const node = el(
    "div",
    { class: "config" },
    file.node,
    el("div", { class: "stack" }, state.node, settingsCard(frame)),
  );
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
  const find = searchInput({
    id: "config-find",
    placeholder: "Find a name or a value",
    oninput: search,
    onkeydown: onKey,
  });
  const status = el("span", { class: "muted", role: "status" });
  const secrets = button("Show secrets", () => void toggleSecrets(), "small", { "aria-pressed": "false" });
  const tools = el(
    "div",
    { class: "toolbar" },
    el(
      "div",
      { class: "json__find" },
      el("label", { class: "visually-hidden", for: "config-find" }, "Find in the configuration"),
      find,
    ),
    button("Next", () => go(1), "small"),
    status,
    button("Open all", () => view.expandAll(), "small"),
    button("Close all", () => view.collapse(), "small"),
    button("Copy", () => void copyMasked(config, frame), "small"),
    secrets,
  );
  const hint = el(
    "p",
    { class: "muted" },
    "As the gateway has read it, with defaults filled in. The gateway masks secrets, and always in copies; " +
      "references such as ${env:NAME} are shown as written.",
  );
  const body = el("div", { class: "stack" }, loading("the configuration"));
  let config: ProxyConfig | null = null;
  let root: unknown = null;
  let found: readonly JsonPath[] = [];
  let current = -1;

  return {
    node: card("The file", null, body),
    update(known: ProxyConfig | null) {
      secrets.hidden = frame.session?.role !== "admin";
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
  const facts = el("div", { class: "stack" }, loading("the state of the gateway"));
  const result = el("div", { class: "result", role: "status" });
  const reloader = button("Reload the file", () => void reload(), "primary");
  let busy = false;
  /** The reload that the result is of; "next": the one that the next status reports. */
  let resultOf: string | null = null;
  const tools = el(
    "div",
    { class: "toolbar" },
    reloader,
    el("span", { class: "muted" }, "All or nothing: a file with an error changes nothing."),
  );
  const draw = whenChanged((status: Status) => replace(facts, ...stateOf(status)), shownOf);
  return {
    node: el("section", { class: "card stack" }, el("h2", {}, "In force"), facts, el("div", {}, tools, result)),
    update({ status }: Known) {
      tools.hidden = frame.session?.role === "viewer";
      if (status === null) return;
      const reloaded = status.last_reload?.at ?? "";
      if (resultOf === "next") resultOf = reloaded;
      // A later reload, as by a change of the file, may have had another outcome.
      if (!busy && resultOf !== reloaded) replace(result);
      draw(status);
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
      if (!(error instanceof ApiError) || isSessionEnd(error)) return frame.showError(error);
      outcome = error;
    }
    // Without an answer only this notice shows the errors.
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
    setPending(reloader, to);
    setText(reloader, to ? "Reloading…" : "Reload the file");
  }
}

function reloadedNotice({ changed, changes, digest }: Reloaded): HTMLElement {
  if (!changed) return notice("good", "Reloaded.", "The configuration has not changed.");
  const count = changes.length === 1 ? "One change." : `${number(changes.length)} changes.`;
  return notice(
    "good",
    "Reloaded.",
    el("span", {}, `${count} The digest is now `, el("span", { class: "mono" }, digest.slice(0, 16)), "."),
    changeList(changes),
  );
}

function refusedNotice({ problem, message }: ApiError, isShownAbove: boolean): HTMLElement {
  const refusal = refusalIn(problem);
  if (refusal === null) return notice("bad", "Not reloaded.", message);
  const count = refusal.issues.length === 1 ? "One error" : `${number(refusal.issues.length)} errors`;
  if (isShownAbove) return notice("bad", "Refused.", `${count}, listed above.`);
  return notice("bad", "Refused.", "The gateway keeps its current configuration.", issueList(refusal));
}

function stateOf(status: Status): readonly Child[] {
  const { last_reload: last, last_change: change } = status;
  const refused =
    "The last reload was refused; the gateway keeps its current configuration. Correct the file, then reload it.";
  return [
    configFacts(status),
    last?.outcome === "refused" && el("div", { class: "notice notice--bad" }, el("p", {}, refused), issueList(last)),
    change !== null && change.changes.length > 0 && el("details", { class: "more" }, ...lastChange(change)),
  ];
}

function lastChange({ at, changes }: NonNullable<Status["last_change"]>): readonly HTMLElement[] {
  return [el("summary", {}, "Last change, ", ageOf(at)), changeList(changes)];
}

function settingsCard(frame: Frame): HTMLElement {
  const body = el("div", {}, loading("the settings"));
  const read = askingFor({
    frame,
    what: "The settings",
    node: body,
    ask: () => ask<Settings>("GET", "/gateway/config?secrets=masked"),
    show: (settings) =>
      replace(
        body,
        el(
          "dl",
          { class: "pairs" },
          ...Object.entries(settings).flatMap(([name, value]) => pair(name, settingValue(name, value, frame))),
        ),
      ),
  });
  void read();
  return card("Settings", null, body);
}

function settingValue(name: string, value: string, frame: Frame): Child {
  if (value === "") return el("span", { class: "muted" }, "not set");
  if (value !== MASK || frame.session?.role !== "admin") return el("span", { class: "mono" }, value);
  return secretText(name, async () => {
    try {
      return (await ask<Settings>("GET", "/gateway/config"))[name] ?? "";
    } catch (error) {
      frame.showError(error);
      return MASK;
    }
  });
}

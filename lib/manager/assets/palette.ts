/**
 * The palette: finds pages, services, routes, upstreams, plugins, callers, codes and requests by name, and goes there;
 * and the list of keys.
 */
import { ask, type CallersView, type DocsIndex, type ProxyConfig, type RequestList } from "./api.ts";
import { button, el, replace, setText } from "./dom.ts";
import { number } from "./format.ts";
import { patternOf, pluginsOf } from "./inventory.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";
import { PaletteIndex, type Entry } from "./palette_index.ts";
import { PAGES } from "./shortcuts.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";

const MOST = 50;
/** After the last key, callers are asked for: the gateway may have 100,000 of them. */
const CALLERS_AFTER_MS = 200;
/** Of a request: what is shorter than most of them is looked for by name first. */
const ID = /^(?:[\w.:/+=@-]{1,128}|#[\w-]{39})$/;
const LEAST_ID = 8;
const STEPS: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

/** By the name that the hash begins with; those with an icon are in the navigation. */
type Pages = Readonly<Record<string, { readonly label: string; readonly icon: string | null; readonly writes?: true }>>;

export function showPalette(frame: Frame, pages: Pages): void {
  let entries = entriesOf(frame, pages, live.known?.config ?? null);
  let index = new PaletteIndex(entries);
  let callers: readonly Entry[] = [];
  let shown: readonly Entry[] = [];
  let chosen = 0;
  let timer = 0;
  const list = el("ul", { class: "palette__list", role: "listbox", id: "palette-list", "aria-label": "Found" });
  const count = el("p", { class: "muted", role: "status" });
  const input = el("input", {
    type: "text",
    role: "combobox",
    "aria-label": "Go to",
    placeholder: "Route, service, caller, code, page…",
    "aria-expanded": "true",
    "aria-controls": list.id,
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    autofocus: true,
    oninput: search,
    onkeydown: onKey,
  });
  const hint = el(
    "p",
    { class: "muted" },
    "Arrow keys choose, Enter opens, Escape closes; ? on a page lists all keys.",
  );
  const dialog = modal("Go to", el("div", { class: "stack" }, input, list, count, hint));
  draw();
  // A build without documentation has no index; codes that have occurred are found all the same.
  void Promise.all([
    ask<RequestList>("GET", "/gateway/requests?limit=1").catch(() => null),
    ask<DocsIndex>("GET", "/gateway/docs").catch(() => null),
  ]).then(([requests, docs]) => {
    entries = [...entries, ...codeEntries(requests, docs), ...(docs?.pages ?? []).flatMap(chapterEntries)];
    index = new PaletteIndex(entries);
    draw();
  });

  function search(): void {
    chosen = 0;
    callers = [];
    clearTimeout(timer);
    const asked = input.value.trim();
    if (asked.length > 1) timer = window.setTimeout(() => void askForCallers(asked), CALLERS_AFTER_MS);
    draw();
  }

  /** Whether a gateway has callers is not told by the configuration alone: they may be in files. */
  async function askForCallers(asked: string): Promise<void> {
    const view = await ask<CallersView>("GET", `/gateway/callers?${new URLSearchParams({ search: asked })}`).catch(
      () => null,
    );
    if (view === null || asked !== input.value.trim() || !dialog.open) return;
    const hash = `#/callers?${new URLSearchParams({ search: asked })}`;
    callers = view.callers
      .slice(0, 10)
      .map(({ id, groups }) => ({ kind: "Caller", name: id, more: groups.join(" "), hash }));
    draw();
  }

  function draw(): void {
    const asked = input.value.trim();
    const { found, total } = index.find(asked, MOST);
    const request = { kind: "Request", name: asked, more: "by its id", hash: hashFor("requests", asked) };
    const isId = ID.test(asked) && (asked.length >= LEAST_ID || found.length + callers.length === 0);
    shown = [...found, ...callers, ...(isId ? [request] : [])];
    replace(list, ...shown.map(optionOf));
    setText(count, shown.length === 0 ? "Nothing has this name." : `${number(found.length)} of ${number(total)}`);
    choose(Math.min(chosen, Math.max(shown.length - 1, 0)));
  }

  function optionOf({ kind, name, more, hash }: Entry, i: number): HTMLElement {
    const onclick = () => go(hash);
    const text = [
      el("span", {}, name),
      " ",
      el("span", { class: "muted" }, `${more} `),
      el("span", { class: "palette__kind" }, kind),
    ];
    return el("li", { role: "option", id: `palette-${i}`, "aria-selected": "false", onclick }, ...text);
  }

  function choose(next: number): void {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = next;
    const option = list.children[chosen];
    if (option === undefined) return input.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  function onKey(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const entry = shown[chosen];
    if (step !== undefined) choose(Math.min(Math.max(chosen + step, 0), Math.max(shown.length - 1, 0)));
    else if (event.key === "Enter" && entry !== undefined) go(entry.hash);
    else return;
    event.preventDefault();
  }

  function go(hash: string): void {
    dialog.close();
    frame.goTo(hash);
  }
}

export function showKeys(pages: Pages): void {
  const rows = [
    ["Ctrl+K, /", "Go to anything by its name"],
    ["?", "These keys"],
    ...Object.entries(PAGES).map(([letter, page]) => [`g ${letter}`, pages[page]!.label] as const),
  ] as const;
  const list = rows.map(([keys, what]) => [el("dt", {}, el("kbd", { class: "mono" }, keys)), el("dd", {}, what)]);
  const dialog = modal(
    "Keys",
    el("div", { class: "stack" }, el("h2", {}, "Keys"), el("dl", { class: "pairs palette__keys" }, ...list.flat())),
    button("Close", () => dialog.close(), "", { autofocus: true }),
  );
}

/** Escape closes it, and the focus returns to where it was. */
function modal(label: string, ...children: readonly HTMLElement[]): HTMLDialogElement {
  const dialog = el("dialog", { class: "card dialog palette", "aria-label": label }, ...children);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function entriesOf({ session }: Frame, pages: Pages, config: ProxyConfig | null): readonly Entry[] {
  const shown = Object.entries(pages).filter(([, { icon, writes }]) => icon !== null && (!writes || session?.write));
  const services = config?.services ?? [];
  const kinds = new Set(config === null ? [] : pluginsOf(config).map(({ plugin }) => plugin.name));
  return [
    ...shown.map(([name, { label }]) => ({ kind: "Page", name: label, more: "", hash: `#/${name}` })),
    ...services.map(({ name, base_path: more }) => ({ kind: "Service", name, more, hash: hashFor("services", name) })),
    ...services.flatMap((service) =>
      service.routes.map((route) => {
        const more = `${service.name} ${patternOf(service, route)}`;
        return { kind: "Route", name: route.name, more, hash: hashFor("routes", service.name, route.name) };
      }),
    ),
    ...services.flatMap(({ name, upstreams }) =>
      upstreams.map(({ id }) => ({ kind: "Upstream", name: id, more: name, hash: hashFor("upstreams", name, id) })),
    ),
    ...Array.from(kinds, (name) => {
      return { kind: "Plugin", name, more: "", hash: `#/plugins?${new URLSearchParams({ search: name })}` };
    }),
  ];
}

/** What it means, and from there its requests. */
function codeEntries(requests: RequestList | null, docs: DocsIndex | null): readonly Entry[] {
  const known = new Map((docs?.codes ?? []).map(({ code, facts, heading }) => [code, facts.Title ?? heading]));
  const seen = (requests?.facets.code.values ?? []).map(({ value }) => value).filter((code) => !known.has(code));
  return [
    ...Array.from(known, ([name, more]) => ({ kind: "Code", name, more, hash: hashFor("docs", "code", name) })),
    ...seen.map((name) => ({ kind: "Code", name, more: "requests", hash: hashForRequests({ code: name }) })),
  ];
}

function chapterEntries({ page, title, chapters }: DocsIndex["pages"][number]): readonly Entry[] {
  return [title, ...chapters].map((name) => ({
    kind: "Docs",
    name,
    more: name === title ? "" : title,
    hash: hashFor("docs", page, name),
  }));
}

/**
 * The filters of the page Requests: a field each, with names of the configuration and the values that were counted.
 */
import type { RequestList } from "./api.ts";
import { field } from "./components.ts";
import { button, el, replace, whenChanged } from "./dom.ts";
import { number } from "./format.ts";
import { live } from "./live.ts";
import { FILTERS, isChosen, toggled, type Filter, type FilterName } from "./requests_text.ts";

/** Filters that are shown at once; the others on demand. */
const MAIN_FILTERS = 5;
/** Pause after a key before the filters count. */
const FILTER_AFTER_MS = 400;
/** Counted values below a filter. */
const MAX_CHIPS = 3;
/** Names of the configuration that a filter offers. */
const MAX_NAMES = 200;
/** Below it the filters are closed at first. */
const WIDE = 800;

/** `changed`: is to be called after a pause. */
export function filterFields(given: Filter, changed: (afterMs: number) => void) {
  const fields = FILTERS.map(([name, label, example]) => {
    const options = el("datalist", { id: `requests-${name}-values` });
    const input = el("input", {
      id: `requests-${name}`,
      type: "text",
      autocomplete: "off",
      spellcheck: "false",
      value: given[name] ?? "",
      placeholder: example,
      list: options.id,
      oninput: () => changed(FILTER_AFTER_MS),
    });
    const chips = el("div", { class: "requests__chips" });
    return { name, input, options, chips, node: field(label, input, options, chips) };
  });
  const [main, others] = [fields.slice(0, MAIN_FILTERS), fields.slice(MAIN_FILTERS)];
  const grid = (some: typeof fields) => el("div", { class: "requests__filters" }, ...some.map(({ node }) => node));
  const isAsked = others.some(({ name }) => given[name] !== undefined);
  const more = el("details", { open: isAsked }, el("summary", {}, "More filters"), grid(others));
  const isOpen = innerWidth >= WIDE;
  const node = el("details", { class: "card", open: isOpen }, el("summary", {}, "Filters"), grid(main), more);
  let counts: RequestList["facets"] | null = null;
  const showNames = whenChanged(drawOptions, () => [live.known?.status?.digest, counts]);
  return {
    node: el("form", { onsubmit: (event: Event) => event.preventDefault() }, node),
    read: (): Filter =>
      Object.fromEntries(
        fields.flatMap(({ name, input }) => (input.value.trim() === "" ? [] : [[name, input.value.trim()]])),
      ),
    set(values: Filter): void {
      for (const { name, input } of fields) input.value = values[name] ?? input.value;
    },
    showNames,
    showCounts(facets: RequestList["facets"]): void {
      counts = facets;
      showNames();
      for (const { name, input, chips } of fields) {
        const focused = chips.contains(document.activeElement) ? document.activeElement!.getAttribute("title") : null;
        const made = valuesOf(name).map((value) => chipOf(name, input, value));
        replace(chips, ...made.slice(0, MAX_CHIPS));
        if (focused !== null) (made.find(({ title }) => title === focused) ?? input).focus();
        if (focused !== null && !chips.contains(document.activeElement)) input.focus();
      }
    },
  };

  function valuesOf(name: FilterName): readonly { readonly value: string; readonly count: number }[] {
    return counts === null || !Object.hasOwn(counts, name) ? [] : counts[name as keyof typeof counts].values;
  }

  function chipOf(name: FilterName, input: HTMLInputElement, { value, count }: { value: string; count: number }) {
    const pressed = String(isChosen(name, input.value.trim(), value));
    const choose = (): void => {
      input.value = toggled(name, input.value.trim(), value);
      changed(0);
    };
    return button(`${value} ${number(count)}`, choose, "small", { "aria-pressed": pressed, title: value });
  }

  /** Values that were counted, then names of the configuration. */
  function drawOptions(): void {
    const services = live.known?.config?.services ?? [];
    const chosen = fields.find(({ name }) => name === "service")!.input.value.trim();
    const shown = services.filter(({ name }) => chosen === "" || name === chosen);
    const names: Partial<Record<FilterName, readonly string[]>> = {
      service: services.map(({ name }) => name),
      route: shown.flatMap(({ routes }) => routes.map(({ name }) => name)),
      upstream: shown.flatMap(({ upstreams }) => upstreams.map(({ id }) => id)),
    };
    for (const { name, options } of fields) {
      const all = new Set([...valuesOf(name).map(({ value }) => value), ...(names[name] ?? [])]);
      replace(
        options,
        ...Array.from(all)
          .slice(0, MAX_NAMES)
          .map((value) => el("option", { value })),
      );
    }
  }
}

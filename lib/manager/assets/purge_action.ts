/**
 * The form that drops stored replies from the caches of all workers.
 */
import { ask, type ProxyConfig } from "./api.ts";
import { confirmed } from "./dialog.ts";
import { button, el, replace } from "./dom.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";

const CHOICES = {
  all: "All replies",
  tag: "With the tag",
  prefix: "Whose URL begins with",
  url: "Of the URL",
} as const;

type Choice = keyof typeof CHOICES;

/** Hidden from users who change nothing. */
export function purgeAction(frame: Frame): { readonly node: HTMLElement; refresh(areCaches: boolean): void } {
  const choice = el(
    "select",
    { "aria-label": "Which replies are purged" },
    ...Object.entries(CHOICES).map(([value, label]) => el("option", { value }, label)),
  );
  const text = el("input", { type: "text", hidden: true, "aria-label": "Tag, prefix or URL", spellcheck: "false" });
  choice.addEventListener("change", () => {
    text.hidden = choice.value === "all";
  });
  const service = el("select", { "aria-label": "Service whose replies are purged" });
  const route = el("select", { "aria-label": "Route whose replies are purged" });
  service.addEventListener("change", () => {
    route.value = "";
    offerRoutes();
  });
  let config: ProxyConfig | null = null;
  const run = button("Purge", () => void purge());
  const node = el(
    "div",
    { class: "badges", role: "group", "aria-label": "Purge caches", hidden: true },
    choice,
    text,
    service,
    route,
    run,
  );
  return {
    node,
    refresh(areCaches) {
      node.hidden = !areCaches || (frame.session?.role ?? "viewer") === "viewer";
      const known = live.known?.config ?? null;
      if (node.hidden || known === config) return;
      config = known;
      offer(service, "All services", config?.services ?? []);
      offerRoutes();
    },
  };

  function offerRoutes(): void {
    route.hidden = service.value === "";
    offer(route, "All routes", config?.services.find(({ name }) => name === service.value)?.routes ?? []);
  }

  async function purge(): Promise<void> {
    const named = choice.value as Choice;
    const body = {
      ...(named !== "all" && { [named]: text.value.trim() }),
      ...(service.value !== "" && { service: service.value }),
      ...(route.value !== "" && { route: route.value }),
    };
    const what =
      named === "all" ? "all stored replies" : `replies ${CHOICES[named].toLowerCase()} “${text.value.trim()}”`;
    const ofRoute = route.value === "" ? "" : ` of route “${route.value}”`;
    const ofService = service.value === "" ? "" : ` of service “${service.value}”`;
    const question = `Purge ${what}${ofRoute}${ofService}, in all workers? Upstreams are asked again.`;
    if (!(await confirmed(question, "Purge"))) return;
    run.disabled = true;
    try {
      const { purged } = await ask<{ readonly purged: number }>("POST", "/gateway/cache/purge", { body });
      frame.showMessage(`${purged} stored ${purged === 1 ? "reply was" : "replies were"} purged.`, "good");
      await frame.refresh();
    } catch (error) {
      frame.showError(error);
    } finally {
      run.disabled = false;
    }
  }
}

/**
 * The names, behind an entry for all of them. A chosen name that a reload has removed stays: it must not become all.
 */
function offer(select: HTMLSelectElement, all: string, named: readonly { readonly name: string }[]): void {
  const chosen = select.value;
  const names = new Set(named.map(({ name }) => name));
  if (chosen !== "") names.add(chosen);
  replace(
    select,
    el("option", { value: "" }, all),
    ...[...names].map((name) => el("option", { value: name, selected: name === chosen }, name)),
  );
}

/**
 * The buttons that take an upstream out of traffic and bring it back.
 */
import { ask } from "./api.ts";
import { confirmed } from "./dialog.ts";
import { button, el, setText } from "./dom.ts";
import type { UpstreamHealth } from "./admin_types.ts";
import { live } from "./live.ts";
import type { Frame } from "./page.ts";
import type { Part } from "./tables.ts";

const ACTIONS = {
  drain: { label: "Drain", effect: "gets no new requests, but those of its sticky sessions" },
  eject: { label: "Eject", effect: "gets no requests" },
  use: { label: "Use", effect: "gets requests again" },
} as const;

type State = keyof typeof ACTIONS;

const STATES = Object.keys(ACTIONS) as readonly State[];
const UNTIL = "until it is used again, over reloads too";

const NAMES = { one: ["Upstream", "upstream"], all: ["Each endpoint of", "each endpoint of"] } as const;

/**
 * Of one endpoint, or of an upstream of the configuration with all its endpoints. Hidden from users who change nothing.
 */
export function upstreamActions(frame: Frame, service: string, id: string, of: "one" | "all" = "one"): Part {
  const [subject, name] = NAMES[of];
  const buttons = STATES.map((state) => ({ state, node: button(ACTIONS[state].label, () => void set(state)) }));
  const note = el("p", { class: "muted" });
  const group = el(
    "div",
    { class: "badges", role: "group", "aria-label": `Traffic of ${name} ${id}` },
    ...buttons.map(({ node }) => node),
  );
  const node = el("div", { class: "part", hidden: true }, group, note);
  const isMeant = (each: UpstreamHealth) => (of === "one" ? each.id === id : each.id.startsWith(`${id}/`));
  const meant = () => (live.health(service)?.upstreams ?? []).filter(isMeant);
  const stateNow = (): State | null => {
    const all = meant();
    // Some endpoints may be taken out by themselves.
    const found = of === "one" ? all[0] : all.find(({ admin_id: as }) => as === id);
    return all.length === 0 ? null : (found?.admin_state ?? "use");
  };
  /** An endpoint that is out with its upstream is used again with that. */
  const isOutWithAll = () => of === "one" && meant().some(({ admin_id: as }) => as !== null && as !== id);
  let isBusy = false;
  return {
    node,
    refresh() {
      const now = stateNow();
      node.hidden = now === null || frame.session?.drain !== true;
      for (const { state, node: each } of buttons) each.setAttribute("aria-pressed", String(state === now));
      setText(note, noteOf(now));
    },
  };

  function noteOf(now: State | null): string {
    if (isOutWithAll()) return "Taken out with all endpoints of its upstream.";
    if (now !== null && now !== "use") return `Taken out ${UNTIL}: it ${ACTIONS[now].effect}.`;
    return of === "all"
      ? `The same for each endpoint of ${id}, also for those that it has later.`
      : "Drain and Eject hold until the upstream is used again, over reloads too; the file is not changed.";
  }

  async function set(state: State): Promise<void> {
    if (isBusy || state === stateNow() || !(await confirmed(questionOf(state), ACTIONS[state].label))) return;
    isBusy = true;
    try {
      await ask("POST", `/gateway/upstreams/${encodeURIComponent(service)}/${encodeURIComponent(id)}`, {
        body: { state },
      });
      frame.showMessage(`${subject} ${id} ${ACTIONS[state].effect}.`, "good");
      await frame.refresh();
    } catch (error) {
      frame.showError(error);
    } finally {
      isBusy = false;
    }
  }

  function questionOf(state: State): string {
    const { label, effect } = ACTIONS[state];
    const asked = `${label} ${name} “${id}”? It ${effect}`;
    if (state === "use") return `${asked}.`;
    const isLast = !(live.health(service)?.upstreams ?? []).some((each) => each.usable && !isMeant(each));
    const warning = isLast ? `Nothing else of service “${service}” can be used: requests will get 503.\n\n` : "";
    return `${warning}${asked}, ${UNTIL}.`;
  }
}

/**
 * The buttons that take an upstream out of traffic and bring it back.
 */
import { ask } from "./api.ts";
import { confirmed } from "./dialog.ts";
import { button, el, setText } from "./dom.ts";
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

/** Hidden from users who change nothing. */
export function upstreamActions(frame: Frame, service: string, id: string): Part {
  const buttons = STATES.map((state) => ({ state, node: button(ACTIONS[state].label, () => void set(state)) }));
  const note = el("p", { class: "muted" });
  const group = el(
    "div",
    { class: "badges", role: "group", "aria-label": `Traffic of upstream ${id}` },
    ...buttons.map(({ node }) => node),
  );
  const node = el("div", { class: "part", hidden: true }, group, note);
  const stateNow = (): State | null => {
    const found = live.upstream(service, id);
    return found && (found.admin_state ?? "use");
  };
  let isBusy = false;
  return {
    node,
    refresh() {
      const now = stateNow();
      node.hidden = now === null || frame.session?.drain !== true;
      for (const { state, node: each } of buttons) each.setAttribute("aria-pressed", String(state === now));
      setText(
        note,
        now === null || now === "use"
          ? `Drain and Eject hold until the upstream is used again, over reloads too; the file is not changed.`
          : `Taken out ${UNTIL}: it ${ACTIONS[now].effect}.`,
      );
    },
  };

  async function set(state: State): Promise<void> {
    if (isBusy || state === stateNow() || !(await confirmed(questionOf(state), ACTIONS[state].label))) return;
    isBusy = true;
    try {
      await ask("POST", `/gateway/upstreams/${encodeURIComponent(service)}/${encodeURIComponent(id)}`, {
        body: { state },
      });
      frame.showMessage(`Upstream ${id} ${ACTIONS[state].effect}.`, "good");
      await frame.refresh();
    } catch (error) {
      frame.showError(error);
    } finally {
      isBusy = false;
    }
  }

  function questionOf(state: State): string {
    const { label, effect } = ACTIONS[state];
    if (state === "use") return `${label} upstream “${id}”? It ${effect}.`;
    const isLast = !(live.health(service)?.upstreams ?? []).some((upstream) => upstream.usable && upstream.id !== id);
    const warning = isLast
      ? `It is the last one of service “${service}” that can be used: requests will get 503.\n\n`
      : "";
    return `${warning}${label} upstream “${id}”? It ${effect}, ${UNTIL}.`;
  }
}

/**
 * The buttons that take an upstream out of traffic and bring it back, until the next reload.
 */
import { ask, type UpstreamHealth } from "./api.ts";
import { el, setText } from "./dom.ts";
import { hashFor } from "./url_hash.ts";
import type { Frame } from "./page.ts";
import type { Part } from "./tables.ts";

const ACTIONS = {
  drain: ["Drain", "gets no new requests. Clients with its sticky cookie may finish."],
  eject: ["Eject", "gets no requests."],
  use: ["Use again", "gets requests again."],
} as const;

type State = keyof typeof ACTIONS;

interface ShownUpstream {
  readonly service: string;
  readonly id: string;
  readonly state: () => UpstreamHealth | null;
  /** Whether no other upstream of its service can be used. */
  readonly isLast: () => boolean;
}

/** Null for users who change nothing; hidden for a gateway whose health has no `admin_state`: it takes no such requests. */
export function upstreamActions(frame: Frame, { service, id, state: stateNow, isLast }: ShownUpstream): Part | null {
  if (frame.session?.write !== true) return null;
  const buttons = (Object.keys(ACTIONS) as State[]).map((state) => {
    const [label] = ACTIONS[state];
    return { state, node: el("button", { type: "button", hidden: true, class: "button button--small", "aria-label": `${label}: ${id}`, onclick: () => void set(state) }, label) };
  });
  const note = el("span", { class: "muted sub" });
  return {
    node: el("span", {}, el("span", { class: "badges" }, ...buttons.map(({ node }) => node)), note),
    refresh() {
      const state = stateNow()?.admin_state;
      for (const button of buttons) button.node.hidden = state === undefined || button.state === (state ?? "use");
      setText(note, (state ?? null) === null ? "" : "by an administrator, until the next reload");
    },
  };

  async function set(state: State): Promise<void> {
    if (state !== "use" && isLast() && !confirm(`“${id}” is the last usable upstream of “${service}”: requests would get 503. Go on?`)) return;
    try {
      await ask("POST", `/gateway/upstreams/${hashFor(service, id).slice(2)}`, { body: { state } });
      frame.showMessage(`${id} ${ACTIONS[state][1]}`, "good");
      await frame.refresh();
    } catch (error) {
      frame.showError(error);
    }
  }
}

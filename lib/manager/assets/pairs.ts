/**
 * Lists of names and values: plain values, secrets behind a button, times with their age, counts of the configuration.
 */
import { el, setText, type Child } from "./dom.ts";
import { ago, moment, number } from "./format.ts";
import { MASK } from "./secrets.ts";

/** For `dl.pairs`. */
export function pair(name: string, value: Child): readonly HTMLElement[] {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** Hidden until its button is pressed; `name` is in the label of the button. */
export function secretText(name: string, text: string): HTMLElement {
  const value = el("span", { class: "mono" }, MASK);
  const button = el("button", { type: "button", class: "button button--quiet button--small", "aria-label": `Show ${name}`, onclick: turn }, "Show");
  return el("span", { class: "secret" }, value, " ", button);

  function turn(): void {
    const shown = value.textContent === MASK;
    setText(value, shown ? text : MASK);
    setText(button, shown ? "Hide" : "Show");
    button.setAttribute("aria-label", `${shown ? "Hide" : "Show"} ${name}`);
  }
}

export interface Ages {
  /** "3 min ago", with the exact time as its title. */
  of(iso: string): HTMLElement;
  /** `now` in ms since 1970. */
  update(now: number): void;
  /** Forgets the elements created so far, which have left the document. */
  forget(): void;
}

export function createAges(): Ages {
  let all: (readonly [HTMLElement, string])[] = [];
  return {
    of(iso) {
      const node = el("time", { datetime: iso, title: moment(iso) });
      all.push([node, iso]);
      return node;
    },
    update(now) {
      for (const [node, iso] of all) setText(node, ago(iso, now));
    },
    forget() {
      all = [];
    },
  };
}

/** "3 services, 1 route" */
export function countsText(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .map(([what, count]) => `${number(count)} ${(count === 1 ? what.replace(/s$/, "") : what).replaceAll("_", " ")}`)
    .join(", ");
}

/**
 * Creates elements. Text is inserted as text, never as markup, so nothing in a configuration can become code.
 */

export type Child = Node | string | number | null | false;

type Props = Readonly<Record<string, string | number | boolean | null | undefined | ((event: never) => void)>>;

/**
 * `el("a", { href: "#/", class: "link", onclick: (event: MouseEvent) => … }, "text", child)`: attributes by their HTML
 * names; functions are listeners of the event after "on"; false, null and undefined omit an attribute; true sets it
 * without a value.
 */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: readonly Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

/** `kinds`: of "primary", "quiet" and "small". */
export function button(text: string, onclick: () => unknown, kinds = "", props: Props = {}): HTMLButtonElement {
  return el(
    "button",
    { type: "button", class: `button ${kinds.replace(/\w+/g, "button--$&")}`.trim(), onclick, ...props },
    text,
  );
}

/** `aria-disabled` instead of `disabled`, so that the button keeps the focus. */
export function setPending(pressed: HTMLElement, isBusy: boolean, isDisabled = isBusy): void {
  pressed.setAttribute("aria-busy", String(isBusy));
  pressed.setAttribute("aria-disabled", String(isDisabled));
}

/** Replaces all children. */
export function replace(parent: Element, ...children: readonly Child[]): void {
  parent.replaceChildren(...children.filter(isThere).map(nodeOf));
}

/** Sets the text if it differs, so that a selection and a screen reader's position stay. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** Calls `draw` when what it shows of its arguments (default: the first one) differs, as JSON, from the time before. */
export function whenChanged<Values extends readonly unknown[]>(
  draw: (...values: Values) => void,
  shownOf = (...[first]: Values): unknown => first,
): typeof draw {
  let drawn = "";
  return (...values) => {
    const key = JSON.stringify(shownOf(...values));
    if (key === drawn) return;
    drawn = key;
    draw(...values);
  };
}

/** Returns what cancels it. */
export function after(ms: number, run: () => void): () => void {
  const timer = setTimeout(run, ms);
  return () => clearTimeout(timer);
}

function fill<E extends Element>(element: E, props: Props, children: readonly Child[]): E {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter(isThere).map(nodeOf));
  return element;
}

function isThere(child: Child): child is Node | string | number {
  return child !== null && child !== false;
}

function nodeOf(child: Node | string | number): Node | string {
  return typeof child === "number" ? String(child) : child;
}

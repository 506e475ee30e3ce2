/**
 * The entries of the browser's history: gives each a key, by which the place that it was scrolled to is found again.
 */

export class Visits {
  readonly #positions = new Map<string, number>();
  #key = "";
  /** Where the page is to be scrolled to once it is long enough; 0: it is there. */
  #target = 0;

  /** `content` grows as parts of a page arrive. */
  constructor(content: Element) {
    history.scrollRestoration = "manual";
    // For a reload of this page, whose entry keeps its key.
    addEventListener("pagehide", () => sessionStorage.setItem(this.#key, String(scrollY)));
    for (const type of ["wheel", "touchmove", "keydown", "pointerdown"])
      addEventListener(type, () => (this.#target = 0), { passive: true });
    new ResizeObserver(() => this.scrollBack()).observe(content);
  }

  /** The page is left, and still there. */
  leave(): void {
    this.#positions.set(this.#key, scrollY);
  }

  /** What the login page is scrolled to does not concern the page that it leads back to. */
  enterLogin(): void {
    this.#key = "login";
  }

  /** `stays`: what was not scrolled before begins where the page stands. */
  enter(stays = false): void {
    const { key = String(Math.random()) } = (history.state as { readonly key?: string } | null) ?? {};
    this.#key = key;
    history.replaceState({ ...history.state, key }, "");
    this.#target = this.#positions.get(key) ?? Number(sessionStorage.getItem(key) ?? 0);
    if (!stays) scrollTo(0, 0);
  }

  scrollBack(): void {
    if (this.#target === 0) return;
    scrollTo(0, this.#target);
    if (Math.abs(scrollY - this.#target) < 2) this.#target = 0;
  }
}

import { expect, it, onTestFinished, vi } from "vitest";
import { page } from "../../../lib/manager/assets/apply_page.ts";
import { draft } from "../../../lib/manager/assets/draft.ts";
import { checks } from "../../../lib/manager/assets/draft_checks.ts";
import type { Frame } from "../../../lib/manager/assets/page.ts";

/** As much of an element as the page asks for. */
class Node extends EventTarget {
  readonly isConnected = true;
  readonly attributes: Record<string, string> = {};
  children: (Node | string)[] = [];
  hidden = false;

  get textContent(): string {
    return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }

  set textContent(text: string) {
    this.children = [text];
  }

  append(...children: (Node | string)[]): void {
    this.children.push(...children);
  }

  replaceChildren(...children: (Node | string)[]): void {
    this.children = children;
  }

  setAttribute(name: string, value: string): void {
    this.attributes[name] = value;
  }

  getAttribute(name: string): string | null {
    return this.attributes[name] ?? null;
  }

  toggleAttribute(): void {}
}

it("the review shows the text of a draft that changes meanwhile, and sends none that it has not shown", async () => {
  const document = { createElement: () => new Node(), createTextNode: (text: string) => text };
  const asked: string[] = [];
  vi.stubGlobal("document", document);
  vi.stubGlobal("location", { hash: "#/apply" });
  vi.stubGlobal("fetch", (url: string, { method }: RequestInit) => {
    asked.push(`${method} ${url}`);
    return Promise.reject(new TypeError("not reached"));
  });
  onTestFinished(() => {
    draft.forget();
    checks.stop();
    vi.unstubAllGlobals();
  });
  draft.setBase({ text: "{}\n", digest: "aaaaaaaaaaaa" });
  draft.setText('{"one":1}\n');
  const shown = page({ showError: () => {} } as unknown as Frame, []);
  const node = shown.node as unknown as Node;
  await vi.waitFor(() => expect(node.textContent).toContain('{"one":1}'));
  draft.setText('{"two":2}\n');
  expect(node.textContent).toContain('{"two":2}');
  expect(node.textContent).not.toContain('{"one":1}');
  // The gateway cannot be asked, so the button is there.
  const apply = buttonIn(node, "Apply")!;
  await vi.waitFor(() => expect(apply.getAttribute("aria-disabled")).toBe("false"));
  draft.setLater(() => '{"three":3}\n');
  apply.dispatchEvent(new Event("click"));
  expect(node.textContent).toContain('{"three":3}');
  expect(asked.filter((each) => each.startsWith("PUT"))).toEqual([]);
  draft.discard();
  expect(node.textContent).toContain("There is nothing to apply");
  shown.close?.();
});

function buttonIn(node: Node, text: string): Node | null {
  for (const child of node.children) {
    if (typeof child === "string") continue;
    const found = child.attributes.type === "button" && child.textContent === text ? child : buttonIn(child, text);
    if (found !== null) return found;
  }
  return null;
}

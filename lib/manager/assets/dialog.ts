/**
 * Asks before something is done that cannot be undone.
 */
import { button, el } from "./dom.ts";

/**
 * Resolves with whether `action` was pressed. Escape and Cancel, which has the focus, end the dialog; the focus then
 * returns to where it was.
 */
export function confirmed(question: string, action: string): Promise<boolean> {
  const cancel = button("Cancel", () => dialog.close(), "", { autofocus: true });
  const act = button(action, () => dialog.close("yes"), "primary");
  const text = el("div", { id: "dialog-text" }, ...question.split("\n\n").map((each) => el("p", {}, each)));
  const dialog = el(
    "dialog",
    { class: "card dialog", "aria-labelledby": text.id },
    text,
    el("div", { class: "toolbar" }, cancel, act),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

/**
 * The pages with forms for common changes: "#/add", "#/add/route". They edit the draft at one place, and lead to
 * "Apply".
 */
import { messageOf } from "./api.ts";
import { askingFor } from "./asking.ts";
import { field as fieldOf, link, loading, section } from "./components.ts";
import { copy } from "./copy.ts";
import { button, el, replace } from "./dom.ts";
import { draft } from "./draft.ts";
import { putJson, readJson } from "./edit_json.ts";
import { FORMS, type Field, type Form } from "./forms.ts";
import type { Frame, OpenPage } from "./page.ts";
import { hashFor, queryIn } from "./url_hash.ts";

const KEY_BYTES = 32;

export const page: OpenPage = () => {
  const items = Object.entries(FORMS).map(([name, { title }]) => el("li", {}, link(hashFor("add", name), title)));
  const text = "Each form changes one place of the draft and keeps the rest byte for byte.";
  return {
    title: "Add",
    node: el("div", { class: "card stack" }, el("ul", { class: "list" }, ...items), el("p", { class: "muted" }, text)),
    update() {},
  };
};

export const onePage: OpenPage = (frame, [name = ""]) => {
  const form = Object.hasOwn(FORMS, name) ? FORMS[name]! : null;
  if (form === null) return page(frame, []);
  const node = el("div", { class: "stack" }, loading("the file"));
  const read = askingFor({
    frame,
    what: "The file",
    node,
    ask: () => draft.load(),
    show: () => replace(node, fileForm(frame, form, node)),
  });
  void read();
  return { title: form.title, node, update() {} };
};

function fileForm(frame: Frame, form: Form, shownIn: HTMLElement): HTMLElement {
  let file: unknown;
  try {
    file = readJson(draft.text);
  } catch {
    return el(
      "div",
      { class: "notice notice--bad" },
      el("p", {}, "The draft is not valid JSON: ", link("#/edit", "correct it in the editor"), "."),
    );
  }
  const of = queryIn(location.hash).getAll("of");
  const fields = form.fields(file).map((field) => ({ field, input: inputOf(field, of) }));
  const place = fields.find(({ field }) => field.kind === "choice");
  if (place?.field.choices?.length === 0)
    return el(
      "div",
      { class: "card empty" },
      el(
        "p",
        {},
        `The draft has nothing to choose for “${place.field.label}”: `,
        link("#/add/service", "add a service"),
        ", or ",
        link("#/edit", "write it in the editor"),
        ".",
      ),
    );
  const problem = el("p", { class: "try__problem", role: "alert" });
  const hintOf = (hint: string, { id }: HTMLElement) => el("p", { class: "field__hint", id: `${id}-hint` }, hint);
  const rows = fields.map(({ field: { label, hint }, input }) =>
    fieldOf(label, input, hint !== undefined && hintOf(hint, input)),
  );
  const put = el(
    "button",
    { type: "submit", class: "button button--primary" },
    form.makesKey ? "Make the key" : "Put into the draft",
  );
  return el(
    "form",
    { class: "card stack form", onsubmit: (event: SubmitEvent) => void submit(event) },
    ...rows,
    problem,
    el("div", { class: "toolbar" }, put, link("#/add", "Other forms")),
  );

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    const values = Object.fromEntries(fields.map(({ field, input }) => [field.name, valueOf(input)]));
    const chosen = place === undefined ? [] : (place.field.choices?.[Number(values.place)]?.path ?? []);
    try {
      const key = form.makesKey ? newKey() : null;
      const { path, value } = form.put(file, chosen, {
        ...values,
        ...(key !== null && { key_sha256: await sha256(key) }),
      });
      draft.setText(putJson(draft.text, path, value).text);
      if (key === null) frame.goTo("#/apply");
      else replace(shownIn, keyShown(frame, key));
    } catch (error) {
      replace(problem, `This cannot be put into the draft. ${messageOf(error)}`);
    }
  }
}

function valueOf(input: HTMLInputElement | HTMLSelectElement): string {
  return input.matches("[type=checkbox]:not(:checked)") ? "" : input.value.trim();
}

/** `of`: the names of what the link to the form chooses. */
function inputOf(
  { name, kind, choices = [], range, isRequired = false, hint }: Field,
  of: readonly string[],
): HTMLInputElement | HTMLSelectElement {
  const id = `form-${name}`;
  if (kind === "choice") {
    const chosen = choices.findIndex((choice) => JSON.stringify(choice.of) === JSON.stringify(of));
    // What the draft does not have must not become a change of something else.
    const isMissing = chosen < 0 && of.length > 0;
    const none =
      isMissing && el("option", { value: "", disabled: true, selected: true }, `${of.join(" / ")} is not in the draft`);
    return el(
      "select",
      { id, name, required: true },
      none,
      ...choices.map(({ label }, i) => el("option", { value: i, selected: i === chosen }, label)),
    );
  }
  if (kind === "switch") return el("input", { id, name, type: "checkbox" });
  const numeric = kind === "number" && { type: "number", step: "any", min: range?.[0], max: range?.[1] };
  return el("input", {
    id,
    name,
    autocomplete: "off",
    spellcheck: "false",
    required: isRequired,
    "aria-describedby": hint === undefined ? null : `${id}-hint`,
    ...numeric,
  });
}

/** The only time that the key is seen: the configuration has its SHA-256. */
function keyShown(frame: Frame, key: string): HTMLElement {
  const field = el("textarea", {
    id: "new-key",
    class: "mono",
    rows: 2,
    readonly: true,
    spellcheck: "false",
    "aria-describedby": "new-key-hint",
  });
  field.value = key;
  const hint = el(
    "p",
    { class: "field__hint", id: "new-key-hint" },
    "It is shown this once and stored nowhere: the draft has its SHA-256. It works once the draft is applied, " +
      "where a plugin key_auth has “callers”: true.",
  );
  const tools = el(
    "div",
    { class: "toolbar" },
    button("Copy", () => void copy(frame, key, "The key is copied.", field)),
    el("a", { class: "button button--primary", href: "#/apply" }, "Review and apply"),
  );
  return section("The key", el("div", { class: "card stack" }, fieldOf("Key of the caller", field, hint), tools));
}

/** 256 bits, in characters that every header and URL can carry. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
}

async function sha256(text: string): Promise<string> {
  // Browsers have it on pages over HTTPS and of this machine.
  if (!isSecureContext)
    throw new Error("The browser computes no SHA-256 on a page without HTTPS: open it over HTTPS, or as localhost.");
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

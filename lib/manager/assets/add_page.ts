/**
 * The pages with forms for common changes: "#/add", "#/add/route". They edit the draft at one place, once the gateway
 * has nothing against what was entered, and lead to the review.
 */
import { ask, messageOf, type Validation } from "./api.ts";
import { askingFor } from "./asking.ts";
import { field as fieldOf, link, loading } from "./components.ts";
import { button, el, replace, setPending } from "./dom.ts";
import { draft } from "./draft.ts";
import { changeJson, putJson, readJson, startOf } from "./edit_json.ts";
import { NEW_TEST } from "./new_test.ts";
import { endingIn, FORMS, listAt, type Choice, type Form } from "./forms.ts";
import { isRecord, valueAt, type JsonPath } from "./json_text.ts";
import type { Frame, OpenPage } from "./page.ts";
import type { Schema } from "./schema_help.ts";
import { isWithin, pathText, SchemaForm } from "./schema_form.ts";
import { membersOf, schemaOf } from "./schema_nodes.ts";
import { hashFor, hashWith, queryIn } from "./url_hash.ts";

const CHANGED = "The draft has been changed since this form was opened: nothing was put into it.";

/** Of the gateway that the tab was opened with. */
let schema: Schema | null = null;

export const page: OpenPage = () => {
  const items = Object.entries(FORMS).map(([name, { title }]) => el("li", {}, link(hashFor("add", name), title)));
  const text = "Each form changes one place of the draft and keeps the rest byte for byte.";
  return {
    title: "Add or change",
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
    ask: () => Promise.all([schema ?? ask<Schema>("GET", "/gateway/schema"), draft.load()]),
    show([root]) {
      schema = root;
      replace(node, ...formOf(frame, form, root));
    },
  });
  void read();
  return { title: form.title, node, update() {} };
};

function formOf(frame: Frame, form: Form, root: Schema): readonly HTMLElement[] {
  const base = draft.text;
  let file: unknown;
  try {
    file = readJson(base);
  } catch {
    const text = el("p", {}, "The draft is not valid JSON: ", link("#/edit", "correct it in the editor"), ".");
    return [el("div", { class: "notice notice--bad" }, text)];
  }
  const choices = form.place?.of(file) ?? [];
  if (form.place !== undefined && choices.length === 0) return [nothingToChoose(form.place.label)];
  const body = el("div", { class: "stack" });
  const place = form.place === undefined ? null : placeField(form.place.label, choices);
  const show = (): void => {
    const chosen = place === null ? [] : choices[Number(place.input.value)]?.path;
    const isKindOpen = form.list === "plugins" && form.fresh === undefined && !queryIn(location.hash).has("kind");
    if (chosen === undefined || place?.input.value === "") replace(body);
    else if (isKindOpen) replace(body, kindList(root, choices[Number(place!.input.value)]!.of));
    else replace(body, ...fieldsOf(frame, form, root, { text: base, file }, chosen));
  };
  place?.input.addEventListener("change", show);
  show();
  return [el("div", { class: "card stack form" }, place?.node ?? null, body)];
}

function nothingToChoose(label: string): HTMLElement {
  const text = `The draft has nothing to choose for “${label}”: `;
  const ways = [link("#/add/service", "add a service"), ", or ", link("#/edit", "write it in the editor"), "."];
  return el("div", { class: "card empty" }, el("p", {}, text, ...ways));
}

/** The names in the address choose one. */
function placeField(label: string, choices: readonly Choice[]) {
  const of = queryIn(location.hash).getAll("of");
  const chosen = choices.findIndex((choice) => JSON.stringify(choice.of) === JSON.stringify(of));
  // What the draft does not have must not become a change of something else.
  const isMissing = chosen < 0 && of.length > 0;
  const text = `${of.join(" / ")} is not in the draft`;
  const none = isMissing && el("option", { value: "", disabled: true, selected: true }, text);
  const options = choices.map((each, i) => el("option", { value: i, selected: i === chosen }, each.label));
  const input = el("select", { id: "form-place", required: true }, none, ...options);
  return { input, node: fieldOf(label, input) };
}

/** Each kind of a plugin, with a sentence. */
function kindList(root: Schema, of: readonly string[]): HTMLElement {
  const kinds = (root.$defs?.Plugin?.allOf ?? []).flatMap(({ if: condition, then }) => {
    const name = condition?.properties?.name?.const;
    return typeof name === "string" ? [{ name, text: then?.properties?.config?.description ?? "" }] : [];
  });
  const hash = `${hashFor("add", "plugin")}?${new URLSearchParams(of.map((name) => ["of", name]))}`;
  const items = kinds.map(({ name, text }) => [
    el("dt", {}, link(hashWith(hash, { kind: name }), name)),
    el("dd", {}, text),
  ]);
  return el("dl", { class: "pairs" }, ...items.flat());
}

/** The schema of the value at a path of the file. */
function schemaAt(root: Schema, file: unknown, path: JsonPath): Schema {
  let found = root;
  path.forEach((step, i) => {
    const value = valueAt(file, path.slice(0, i)) as Readonly<Record<string, unknown>>;
    found = schemaOf(root, (typeof step === "number" ? found.items : membersOf(found, value).members[step]) ?? {});
  });
  return found;
}

/** `base`: the draft as it was when the form was made. */
function fieldsOf(
  frame: Frame,
  form: Form,
  root: Schema,
  base: { readonly text: string; readonly file: unknown },
  chosen: JsonPath,
): readonly HTMLElement[] {
  const { file } = base;
  const { list, endsOthers, ...shown } = form;
  const items = list === undefined ? [] : listAt(file, [...chosen, list]);
  const path = list === undefined ? chosen : [...chosen, list, items.length];
  const value = list === undefined ? valueAt(file, path) : freshOf(frame, form);
  const fields = new SchemaForm(schemaAt(root, file, path), {
    ...shown,
    frame,
    root,
    path,
    value,
    editorAt: (at) => `#/edit?line=${draft.text.slice(0, startOf(draft.text, at)).split("\n").length}`,
  });
  const days = el("input", { id: "form-days", type: "number", min: 1, autocomplete: "off" });
  const hint = el("p", { class: "field__hint" }, "Empty: they stay. Those that end earlier do so.");
  const problem = el("div", { role: "alert" });
  const put = el("button", { type: "submit", class: "button button--primary" }, "Put into the draft");
  const entered = el(
    "form",
    { class: "stack", onsubmit: (event: SubmitEvent) => (event.preventDefault(), void submit()) },
    fields.node,
    endsOthers === true && fieldOf("Days until its other keys end", days, hint),
    problem,
    el("div", { class: "toolbar" }, put, link("#/add", "Other forms")),
  );
  // A field that is not shown cannot say what it needs.
  entered.addEventListener("invalid", (event) => openAround(event.target as Element), true);
  const { name: kind } = isRecord(value) ? value : {};
  const isPlugin = form.omit?.includes("name") === true && typeof kind === "string";
  return [...(isPlugin ? [el("p", {}, "Kind: ", el("strong", { class: "mono" }, kind))] : []), entered];

  function textNow(): string {
    const now = fields.read();
    if (list === undefined) return changeJson(base.text, path, value, now);
    if (days.value === "") return putJson(base.text, path, now).text;
    return putJson(base.text, [...chosen, list], [...endingIn(Number(days.value), items), now]).text;
  }

  async function submit(): Promise<void> {
    if (put.getAttribute("aria-busy") === "true") return;
    setPending(put, true);
    replace(problem);
    try {
      const text = textNow();
      const { issues } = await ask<Validation>("POST", "/gateway/validate", { text });
      // The user may be elsewhere by now.
      if (!entered.isConnected) return;
      const at = pathText(path);
      const own = issues.filter((issue) => issue.file === undefined && isWithin(issue.path, at));
      const isEach = fields.showFaults(own);
      if (own.length === 0) putIn(text);
      else {
        const others = isEach ? [] : own.map(({ path, message }) => el("p", {}, `${path}: ${message}`));
        replace(problem, ...others, el("p", {}, "The gateway would refuse this. ", allTheSame(text)));
      }
    } catch (error) {
      const why =
        error instanceof RangeError ? "This cannot be put into the draft." : "The gateway has not checked it.";
      replace(
        problem,
        el("p", {}, `${why} ${messageOf(error)} `, !(error instanceof RangeError) && allTheSame(textNow())),
      );
    } finally {
      setPending(put, false);
    }
  }

  function allTheSame(text: string): HTMLElement {
    return button("Put it into the draft all the same", () => putIn(text), "small");
  }

  function putIn(text: string): void {
    if (draft.text !== base.text) return replace(problem, el("p", {}, `${CHANGED} `, again()));
    draft.setText(text);
    const keys = [...entered.querySelectorAll<HTMLElement>("[data-key]")];
    if (keys.length === 0) return frame.goTo("#/apply");
    // It is shown this once: the user says when it goes.
    replace(entered, ...keys, el("p", {}, "The draft has its SHA-256. ", link("#/apply", "Review and apply")));
    keys[0]!.querySelector("textarea")!.focus();
  }

  function again(): HTMLElement {
    const open = (): void => entered.closest(".form")!.replaceWith(...formOf(frame, form, root));
    return button("Begin again", open, "small");
  }
}

/** What was handed over by another page, such as a test of a request, or what the form begins with. */
function freshOf(frame: Frame, { list, fresh = {} }: Form): unknown {
  const kind = queryIn(location.hash).get("kind");
  if (list === "plugins" && kind !== null) return { name: kind, config: {} };
  if (list !== "tests") return fresh;
  const given = frame.texts.get(NEW_TEST)?.value;
  frame.texts.delete(NEW_TEST);
  return given === undefined ? fresh : JSON.parse(given);
}

function openAround(element: Element): void {
  for (let each = element.closest("details"); each !== null; each = each.parentElement?.closest("details") ?? null)
    each.open = true;
}

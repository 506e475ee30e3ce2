/**
 * A form for a value of the configuration, made from its JSON Schema: texts, numbers, switches, choices, lists, maps,
 * alternatives, and objects within each other. What it cannot show it keeps, with a link to the text.
 */
import { link } from "./components.ts";
import { button, el, replace, setText, type Child } from "./dom.ts";
import { isRecord, type JsonPath } from "./json_text.ts";
import { keyMaker } from "./key_maker.ts";
import type { Frame } from "./page.ts";
import {
  alternativesOf,
  fits,
  holdsSecret,
  lineOf,
  membersOf,
  nodeOf,
  schemaOf,
  unitOf,
  valueOfLine,
  type Node,
} from "./schema_nodes.ts";
import { helpOf, type Schema } from "./schema_help.ts";

export interface Control {
  readonly node: HTMLElement;
  /** Undefined: it is left out. */
  read(): unknown;
}

export interface FormOptions {
  readonly frame: Frame;
  readonly root: Schema;
  readonly path: JsonPath;
  readonly value: unknown;
  /** Members that are shown at once, besides those that are required or set. */
  readonly first?: readonly string[];
  /** Members that have forms of their own. */
  readonly omit?: readonly string[];
  /** Where the text has the value at this path. */
  readonly editorAt: (path: JsonPath) => string;
}

interface At {
  readonly name: string;
  readonly path: JsonPath;
  readonly schema: Schema;
  readonly value: unknown;
  /** It has to be there, as all around it are. */
  readonly isRequired: boolean;
}

/** Longer lists, and values that are nested deeper, are edited in the text. */
const MAX_ITEMS = 30;
const MAX_DEPTH = 8;
/** Members that are shown where none is required or set. */
const FIRST = 4;
const ONE_A_LINE = "One a line.";
const QUOTES = 'One a line. A text that looks like a number, or is true or false, is written in quotes: "5".';
const REFERENCE = "A secret is written as a reference: ${env:NAME} or ${file:/path}.";

/** As the gateway writes paths of errors: "services[0].routes". */
export function pathText(path: JsonPath): string {
  return path.reduce<string>(
    (text, step) => (typeof step === "number" ? `${text}[${step}]` : text === "" ? step : `${text}.${step}`),
    "",
  );
}

export class SchemaForm {
  readonly #options: FormOptions;
  /** Where what is wrong is said, by the path. */
  readonly #places = new Map<string, { readonly text: HTMLElement; readonly input: HTMLElement | null }>();
  /** Makes what is shown on demand, by the paths that it has. */
  readonly #closed = new Map<string, () => void>();
  readonly #control: Control;
  #ids = 0;

  constructor(schema: Schema, options: FormOptions) {
    this.#options = options;
    const { path, value } = options;
    this.#control = this.#object({ name: "", path, value, isRequired: true, schema: schemaOf(options.root, schema) });
  }

  get node(): HTMLElement {
    return this.#control.node;
  }

  read(): unknown {
    return this.#control.read();
  }

  /** Says each beside its field; returns whether all of them have one. */
  showFaults(faults: readonly { readonly path: string; readonly message: string }[]): boolean {
    for (const { text, input } of this.#places.values()) {
      setText(text, "");
      input?.removeAttribute("aria-invalid");
    }
    const shown = faults.map(({ path, message }) => this.#showFault(path, message));
    shown.find((input) => input !== null)?.focus();
    return shown.every((input) => input !== null);
  }

  #showFault(path: string, message: string): HTMLElement | null {
    for (const [place, open] of this.#closed) if (isWithin(path, place)) open();
    // What has been removed, or replaced by another alternative, says nothing any more.
    const [found] = [...this.#places]
      .filter(([place, { text }]) => isWithin(path, place) && text.isConnected)
      .sort(([a], [b]) => b.length - a.length);
    if (found === undefined) return null;
    const { text, input } = found[1];
    setText(text, `${text.textContent} ${message}`.trim());
    input?.setAttribute("aria-invalid", "true");
    for (let each = text.closest("details"); each !== null; each = each.parentElement?.closest("details") ?? null)
      each.open = true;
    return input;
  }

  /** `input` and how it is read, under its name. */
  #labelled(at: At, input: HTMLElement, read: () => unknown, ...more: readonly Child[]): Control {
    const { name, path, schema, isRequired } = at;
    const { description, facts: all } = helpOf(alternativesOf(this.#options.root, schema), false);
    const facts = input.matches("select") || all === "string" ? "" : all;
    const id = `field-${++this.#ids}`;
    const text = el("p", { class: "try__problem", id: `${id}-fault`, role: "alert" });
    this.#places.set(pathText(path), { text, input });
    input.id = id;
    input.setAttribute("aria-describedby", `${id}-hint ${text.id}`);
    const unit = unitOf(name);
    const hint = [description, facts, unit === null ? "" : `in ${unit}`].filter((each) => each !== "").join(" · ");
    const label = el("label", { for: id }, name, isRequired && el("span", { class: "muted" }, " required"));
    const hints = el("p", { class: "field__hint", id: `${id}-hint` }, hint);
    const isSwitch = input.matches("[type=checkbox]");
    const line = isSwitch ? el("div", { class: "field__switch" }, input, label) : null;
    const node = line === null ? [label, input] : [line];
    return { node: el("div", { class: "field" }, ...node, hints, ...more, text), read };
  }

  #make(at: At, depth: number): Control {
    const { schema, value } = at;
    if (value !== undefined && !fits(this.#options.root, schema, value)) return this.#kept(at);
    const node = nodeOf(this.#options.root, schema);
    if (node.is === "json" || depth > MAX_DEPTH) return value === undefined ? this.#json(at) : this.#kept(at);
    if (node.is === "lines") return this.#lines(at, node);
    if (node.is === "object") return this.#group(at, depth);
    if (node.is === "list" || node.is === "map") return this.#list(at, node, depth);
    if (node.is === "one of") return this.#oneOf(at, node.schemas, depth);
    if (node.is === "switch") return this.#switch(at);
    if (node.is === "choice") return this.#choice(at, node.values);
    return this.#text(at, node.is === "number" ? node.isWhole : null);
  }

  /** `isWhole`: null for texts. */
  #text(at: At, isWhole: boolean | null): Control {
    const { schema, value, isRequired, name } = at;
    const isDigest = name === "key_sha256";
    const isSecret = schema.writeOnly === true && !isDigest;
    const isWritten = isSecret && typeof value === "string" && !value.includes("${");
    const shown = value === undefined || isWritten ? "" : String(value);
    const common = { autocomplete: "off", spellcheck: "false", required: isRequired && !isWritten };
    const numeric = isWhole !== null && {
      type: "number",
      step: isWhole ? 1 : "any",
      min: schema.minimum,
      max: schema.maximum,
    };
    const secret = isSecret && {
      pattern: ".*\\$\\{(env|file):.+\\}.*",
      title: REFERENCE,
      placeholder: isWritten ? "unchanged" : "${env:NAME}",
    };
    const isLong = isWhole === null && (shown.includes("\n") || /\bPEM\b/.test(schema.description ?? ""));
    const input = isLong
      ? el("textarea", { class: "mono", rows: 4, ...common })
      : el("input", { type: "text", ...common, ...numeric, ...secret });
    input.value = shown;
    // A field has other line ends than the text may have had.
    const before = input.value;
    const read = (): unknown => {
      if (input.value === before) return value;
      if (input.value.trim() === "") return undefined;
      return isWhole === null ? input.value : Number(input.value);
    };
    const maker = isDigest && keyMaker(this.#options.frame, (digest) => (input.value = digest));
    return this.#labelled(at, input, read, isSecret && el("p", { class: "field__hint" }, REFERENCE), maker);
  }

  #switch(at: At): Control {
    const { schema, value } = at;
    const before = value ?? schema.default ?? false;
    const input = el("input", { type: "checkbox" });
    input.checked = before === true;
    return this.#labelled(at, input, () => (input.checked === before ? value : input.checked));
  }

  #choice(at: At, values: readonly unknown[]): Control {
    const { schema, value, isRequired } = at;
    const standard = schema.default === undefined ? "" : `default: ${String(schema.default)}`;
    const none = (!isRequired || value === undefined) && el("option", { value: "" }, standard);
    const options = values.map((each, i) => el("option", { value: i, selected: each === value }, String(each)));
    const input = el("select", { required: isRequired }, none, ...options);
    return this.#labelled(at, input, () => (input.value === "" ? undefined : values[Number(input.value)]));
  }

  /** Plain values, one a line. */
  #lines(at: At, node: Extract<Node, { is: "lines" }>): Control {
    const { value, isRequired, schema } = at;
    const { root } = this.#options;
    const items: readonly unknown[] = value === undefined ? [] : [value].flat();
    if (holdsSecret(root, schema) && items.some((each) => !String(each).includes("${"))) return this.#kept(at);
    const before = items.map((each) => lineOf(node, each));
    const input = el("textarea", {
      class: "mono",
      rows: Math.min(Math.max(before.length, 1) + 1, 8),
      required: isRequired,
    });
    input.value = before.join("\n");
    const valueOf = (line: string): unknown => {
      const known = before.indexOf(line);
      return known >= 0 ? items[known] : valueOfLine(node, line);
    };
    const isAlone = (each: unknown): boolean =>
      node.isSingle && !Array.isArray(value) && schema.anyOf!.some((one) => fits(root, schemaOf(root, one), each));
    const read = (): unknown => {
      const lines = input.value.split("\n").map((line) => line.trim());
      const read = lines.filter((line) => line !== "");
      if (read.join("\n") === before.join("\n")) return value;
      if (read.length === 0) return undefined;
      const values = read.map(valueOf);
      return values.length === 1 && isAlone(values[0]) ? values[0] : values;
    };
    const hint = node.isText && (node.isNumeric || node.isBoolean) ? QUOTES : ONE_A_LINE;
    return this.#labelled(at, input, read, el("p", { class: "field__hint" }, hint));
  }

  #oneOf(at: At, schemas: readonly Schema[], depth: number): Control {
    const { root } = this.#options;
    const given = schemas.findIndex((each) => at.value !== undefined && fits(root, each, at.value, true));
    const options = schemas.map((each, i) => el("option", { value: i, selected: i === given }, nameOf(root, each)));
    const input = el("select", { class: "form__as", "aria-label": `Kind of ${at.name}` }, ...options);
    const inner = el("div");
    let control: Control;
    const draw = (value: unknown): void => {
      const { description = at.schema.description, ...chosen } = schemas[Number(input.value)]!;
      const schema = { ...schemaOf(root, chosen), ...(description !== undefined && { description }) };
      control = this.#make({ ...at, schema, value }, depth + 1);
      replace(inner, control.node);
    };
    input.addEventListener("change", () => draw(undefined));
    draw(at.value);
    return { node: el("div", { class: "form__one-of" }, inner, input), read: () => control.read() };
  }

  /** Of objects or of other items, or with names, as a map is. */
  #list(at: At, { is, item, atLeast }: Extract<Node, { is: "list" | "map" }>, depth: number): Control {
    const { name, path, value } = at;
    const isMap = is === "map";
    const before = Object.entries((value ?? {}) as Readonly<Record<string, unknown>>);
    if (before.length > MAX_ITEMS) return this.#kept(at);
    const items: { readonly key: () => string; readonly control: Control; readonly node: HTMLElement }[] = [];
    const list = el("div", { class: "form__items" });
    const add = (key: string, given: unknown, isFocused = false): void => {
      const step = isMap ? key : items.length;
      const schema = schemaOf(this.#options.root, item);
      const at = { name: isMap ? "value" : `${name}[${step}]`, path: [...path, step], schema, value: given };
      const control = this.#make({ ...at, isRequired: true }, depth + 1);
      const named = el("input", { type: "text", value: key, required: true, "aria-label": `Name in ${name}` });
      const remove = button("Remove", () => drop(own), "small", { "aria-label": `Remove ${at.name}` });
      const node = el("div", { class: "form__item" }, isMap && named, control.node, remove);
      const own = { key: () => named.value.trim(), control, node };
      items.push(own);
      list.append(node);
      if (isFocused) node.querySelector<HTMLElement>("input, select, textarea")?.focus();
    };
    const drop = (own: (typeof items)[number]): void => {
      const first = items.indexOf(own);
      // Those behind it have other numbers from now on: what is wrong with them is said of the list.
      if (!isMap)
        items.forEach((_, i) => {
          const gone = pathText([...path, i]);
          for (const place of this.#places.keys()) if (i >= first && isWithin(place, gone)) this.#places.delete(place);
        });
      items.splice(first, 1);
      own.node.remove();
      more.focus();
    };
    const more = button(`Add to ${name}`, () => add("", undefined, true), "small");
    for (const [key, each] of before) add(key, each);
    if (at.isRequired && !isMap) while (items.length < Math.max(atLeast, 1)) add("", undefined);
    const read = (): unknown => {
      if (items.length === 0) return value !== undefined && before.length === 0 ? value : undefined;
      if (isMap) return Object.fromEntries(items.map(({ key, control }) => [key(), control.read() ?? null]));
      return items.map(({ control }) => control.read() ?? {});
    };
    return { node: this.#fieldset(at, list, more), read };
  }

  /** An object within another one. */
  #group(at: At, depth: number): Control {
    if (at.isRequired || at.value !== undefined) {
      const { node, read } = this.#object({ ...at, isRequired: true }, depth);
      return { node: this.#fieldset(at, node), read };
    }
    let made: Control | null = null;
    const open = (): void => {
      if (made !== null) return;
      made = this.#object({ ...at, isRequired: false }, depth);
      details.append(made.node);
    };
    const details = el(
      "details",
      { ontoggle: () => details.open && open() },
      el("summary", {}, at.name, " ", el("span", { class: "muted" }, at.schema.description ?? "")),
    );
    this.#closed.set(pathText(at.path), open);
    return { node: details, read: () => made?.read() };
  }

  #fieldset({ name, path, schema }: At, ...children: readonly HTMLElement[]): HTMLElement {
    const fault = el("p", { class: "try__problem", role: "alert" });
    const node = el(
      "fieldset",
      { class: "form__group", tabindex: "-1" },
      el("legend", {}, name),
      schema.description !== undefined && el("p", { class: "field__hint" }, schema.description),
      ...children,
      fault,
    );
    this.#places.set(pathText(path), { text: fault, input: node });
    return node;
  }

  #object(at: At, depth = 0): Control {
    const { root, first = [], omit = [] } = this.#options;
    const { path, value, isRequired } = at;
    const given = isRecord(value) ? value : {};
    const { members, required } = membersOf(at.schema, given);
    const names = Object.keys(members).filter((name) => depth > 0 || !omit.includes(name));
    const isShown = (name: string) =>
      required.includes(name) || Object.hasOwn(given, name) || (depth === 0 && first.includes(name));
    const some = names.filter(isShown);
    const shown = some.length > 0 ? some : names.slice(0, FIRST);
    const others = names.filter((name) => !shown.includes(name));
    const controls = new Map<string, Control>();
    const make = (name: string): HTMLElement => {
      const schema = schemaOf(root, members[name]!);
      const isNeeded = isRequired && required.includes(name);
      const inner = { name, path: [...path, name], schema, value: given[name], isRequired: isNeeded };
      const control = this.#make(inner, depth + 1);
      controls.set(name, control);
      return control.node;
    };
    const node = el("div", { class: "form__fields" }, ...shown.map(make));
    if (others.length > 0) {
      const body = el("div", { class: "form__fields" });
      const open = (): void => {
        if (body.childElementCount === 0) body.append(...others.map(make));
      };
      const details = el(
        "details",
        { ontoggle: () => details.open && open() },
        el("summary", {}, `More settings (${others.length})`),
        body,
      );
      for (const name of others) this.#closed.set(pathText([...path, name]), open);
      node.append(details);
    }
    const read = (): unknown => {
      const found: Record<string, unknown> = { ...given };
      for (const [name, control] of controls) {
        const each = control.read();
        if (each === undefined) delete found[name];
        else found[name] = each;
      }
      return Object.keys(found).length === 0 && !isRequired && value === undefined ? undefined : found;
    };
    return { node, read };
  }

  /** Any value, as the schema says no more. */
  #json(at: At): Control {
    const input = el("textarea", { class: "mono", rows: 3, spellcheck: "false", required: at.isRequired });
    const read = (): unknown => (input.value.trim() === "" ? undefined : JSON.parse(input.value));
    input.addEventListener("input", () => {
      try {
        read();
        input.setCustomValidity("");
      } catch {
        input.setCustomValidity("This is not JSON.");
      }
    });
    return this.#labelled(at, input, read, el("p", { class: "field__hint" }, "As JSON."));
  }

  /** It stays as it is. */
  #kept(at: At): Control {
    const { name, path, value } = at;
    const text = JSON.stringify(value) ?? "";
    const start = text.length > 80 ? `${text.slice(0, 80)}…` : text;
    const shown = holdsSecret(this.#options.root, at.schema) ? "" : start;
    const edit = link("#/edit", "Edit it in the text");
    edit.addEventListener("click", () => (edit.href = this.#options.editorAt(path)));
    const node = el(
      "div",
      { class: "field" },
      el("p", {}, name),
      el("p", { class: "mono line" }, shown),
      el("p", {}, edit),
    );
    return { node, read: () => value };
  }
}

/** Whether an error at `path` is one of `place`, or of something in it. "": the whole. */
export function isWithin(path: string, place: string): boolean {
  return path === place || (path.startsWith(place) && /^[.[]/.test(path.slice(place.length))) || place === "";
}

/** Of an alternative: "text", "list", "an object with matches". */
function nameOf(root: Schema, schema: Schema): string {
  const node = nodeOf(root, schemaOf(root, schema));
  if (node.is === "object") return `object (${Object.keys(membersOf(schemaOf(root, schema), {}).members).join(", ")})`;
  if (node.is === "choice") return node.values.map(String).join(" or ");
  return node.is === "lines" ? "list" : node.is;
}

/**
 * Suggests names and values for the place of the caret: fields, enumerated values, kinds of plugins, and names that the
 * text defines.
 */
import { placeAt, textOf, textsAt, type Outline } from "./json_outline.ts";
import { helpOf, schemasAt, type Schema } from "./schema_help.ts";

interface Suggestion {
  readonly label: string;
  readonly detail: string;
  /** Replaces the text of the completion. */
  readonly insert: string;
  /** Where the caret is then, within `insert`. */
  readonly caret: number;
}

export interface Completion {
  readonly from: number;
  readonly to: number;
  readonly suggestions: readonly Suggestion[];
}

/** The fields that name something which is defined elsewhere in the text. */
const NAMES: Readonly<Record<string, string>> = {
  service: "services[].name",
  route: "services[].routes[].name",
  group: "services[].upstreams[].group",
  caller: "callers[].id",
  callers: "callers[].id",
  groups: "callers[].groups[]",
};
/** Of the suggestions. */
const MAX_SHOWN = 100;
const MAX_DETAIL = 140;
const EMPTY: Readonly<Record<string, string>> = { string: '""', object: "{}", array: "[]" };

/**
 * Null: there is nothing to suggest, or what is written is one of the suggestions. `isAsked`: also where nothing has
 * been typed.
 */
export function completionAt(outline: Outline, offset: number, schema: Schema, isAsked: boolean): Completion | null {
  const place = placeAt(outline, offset);
  const { at, token } = place;
  if (at === null || (token === null && !isAsked)) return null;
  const typed = token === null ? "" : textOf(outline.lines.slice(token.start, offset));
  const all = at === "key" ? keys() : values();
  const wanted = typed.toLowerCase();
  const starts = all.filter(({ label }) => label.toLowerCase().startsWith(wanted));
  const contains = all.filter(
    ({ label }) => !label.toLowerCase().startsWith(wanted) && label.toLowerCase().includes(wanted),
  );
  const suggestions = [...starts, ...contains].slice(0, MAX_SHOWN);
  const isComplete =
    !isAsked && suggestions.length > 0 && suggestions[0]!.label === typed && token !== null && offset >= token.end - 1;
  if (suggestions.length === 0 || isComplete) return null;
  return { from: token?.start ?? offset, to: token?.end ?? offset, suggestions };

  function keys(): readonly Suggestion[] {
    const { values: containers, member } = place;
    const container = containers.at(-1)!;
    const schemas = schemasAt(schema, outline, {
      path: place.path.slice(0, containers.length - 1),
      values: containers,
    });
    const required = new Set(schemas.flatMap((each) => each.required ?? []));
    const properties = new Map(schemas.flatMap((each) => Object.entries(each.properties ?? {})));
    const present = new Set(container.members.filter((each) => each !== member).map(({ key }) => key));
    return [...properties.keys()]
      .filter((key) => !present.has(key))
      .map((key) => {
        const own = schemasAt(schema, outline, {
          path: [...place.path.slice(0, containers.length - 1), key],
          values: containers,
        });
        const { description, facts } = helpOf(own, required.has(key));
        const type =
          own.find((each) => typeof each.type === "string")?.type ??
          (own.some((each) => typeof each.enum?.[0] === "string") ? "string" : "");
        const value = EMPTY[String(type)] ?? "";
        const insert = member !== null && member.colon >= 0 ? JSON.stringify(key) : `${JSON.stringify(key)}: ${value}`;
        return {
          label: key,
          detail: shortened(description === "" ? facts : description),
          insert,
          caret: insert.endsWith(`: ${value}`) && value !== "" ? insert.length - 1 : insert.length,
        };
      });
  }

  function values(): readonly Suggestion[] {
    const { values: containers, path } = place;
    // A value that is not there yet has no index.
    const own = containers.at(-1)?.kind === "array" && path.length < containers.length ? [...path, 0] : path;
    const schemas = schemasAt(schema, outline, { path: own, values: containers });
    const name = [...own].reverse().find((step) => typeof step === "string") ?? "";
    const defined =
      Object.hasOwn(NAMES, name) && schemas.some(({ type }) => type === "string") ? textsAt(outline, NAMES[name]!) : [];
    const fixed = schemas.flatMap((each) => [
      ...(each.enum ?? []),
      ...(each.const === undefined ? [] : [each.const]),
      ...(each.type === "boolean" ? [true, false] : []),
      ...(each.type === "null" ? [null] : []),
    ]);
    const standard = schemas.find((each) => each.default !== undefined)?.default;
    const all = [...new Set([...defined, ...fixed, ...(standard === undefined ? [] : [standard])])];
    const empty = schemas.flatMap(({ type }) => (type === "object" || type === "array" ? [EMPTY[type]!] : []));
    return [
      ...all.map((value) => ({
        label: typeof value === "string" ? value : JSON.stringify(value),
        detail: value === standard ? "default" : kindOf(String(name), value),
        insert: JSON.stringify(value),
      })),
      ...[...new Set(empty)].map((insert) => ({ label: insert, detail: "", insert })),
    ].map((each) => ({ ...each, caret: each.insert === "{}" || each.insert === "[]" ? 1 : each.insert.length }));
  }

  /** Of a kind of plugin: what it does. */
  function kindOf(name: string, value: unknown): string {
    const { values: containers, path } = place;
    const conditions = schemasAt(schema, outline, { path: path.slice(0, -1), values: containers }).filter(
      (each) => each.if?.properties?.[name]?.const === value,
    );
    return shortened(conditions[0]?.then?.properties?.config?.description ?? "");
  }
}

function shortened(text: string): string {
  return text.length > MAX_DETAIL ? `${text.slice(0, MAX_DETAIL - 1)}…` : text;
}

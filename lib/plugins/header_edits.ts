/**
 * Changes header lists as configured: remove, rename, set, add, in this order. For `request_headers` and
 * `response_headers`.
 */
import { droppedProblem } from "../config/dropped_names.ts";
import { framingProblem } from "../config/sent_headers.ts";
import { anyOf, array, object, optional, record, string, type ObjectOut, type Path } from "../config/whole_schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { NameMap, nameSet, type HeaderList } from "../http/headers.ts";
import { headerTemplate, type Template } from "./template.ts";

/** Returns the reason why this header (lower case) must not be changed in this way, or undefined. */
export type Refuse = (lower: string, change: "away" | "here") => string | undefined;

const fieldsWith = (secret: boolean) => ({
  remove: optional(array(string({ min: 1, references: "none" }), { describe: "Names of headers to remove." })),
  rename: optional(
    record(string({ min: 1, references: "none" }), {
      describe: "New names by old names; a header that already has the new name is replaced.",
    }),
  ),
  set: optional(
    record(headerTemplate("The value.", secret), {
      describe: "Values by name; existing headers of the name are replaced.",
    }),
  ),
  add: optional(
    record(anyOf([headerTemplate("The value.", secret), array(headerTemplate("A value.", secret), { min: 1 })]), {
      describe: "Values, or lists of values, by name; existing headers of the name are kept.",
    }),
  ),
});

export type HeaderChanges = ObjectOut<ReturnType<typeof fieldsWith>>;

/** "secret": values for upstreams, which may be credentials; "open": values that clients see. */
export function headerChanges(describe: string, values: "secret" | "open", refuse: Refuse) {
  return object(fieldsWith(values === "secret"), {
    describe,
    refine(value, report, context) {
      const { remove = [], rename = {}, set = {}, add = {} } = value;
      if (remove.length + [rename, set, add].flatMap(Object.keys).length === 0)
        report('needs at least one of "remove", "rename", "set" and "add"');
      const check = (name: string, change: "away" | "here", ...under: Path) => {
        const wrong = framingProblem(name) ?? refuse(name.toLowerCase(), change);
        if (wrong !== undefined) report(wrong, ...under);
        return wrong === undefined;
      };
      remove.forEach((name, i) => check(name, "away", "remove", i));
      for (const [field, record] of Object.entries({ rename, set, add })) reportTwice(record, field, report);
      const targets = new Map<string, string>();
      for (const [from, to] of Object.entries(rename)) {
        if (!check(from, "away", "rename", from) || !check(to, "here", "rename", from)) continue;
        const dropped = values === "secret" ? droppedProblem(from, context) : undefined;
        if (dropped !== undefined) report(dropped, "rename", from);
        const first = targets.get(to.toLowerCase());
        if (first !== undefined) report(`gets the same name as ${first}`, "rename", from);
        else targets.set(to.toLowerCase(), from);
      }
      for (const [field, record] of Object.entries({ set, add }))
        for (const name of Object.keys(record)) check(name, "here", field, name);
    },
  });
}

/** All names that the changes mention. */
export function changedNames({ remove = [], rename = {}, set = {}, add = {} }: HeaderChanges): string[] {
  return [...remove, ...Object.entries(rename).flat(), ...Object.keys(set), ...Object.keys(add)];
}

/** Reports names that occur twice in a record of headers, in different cases. */
export function reportTwice(record: object, field: string, report: (message: string, ...under: Path) => void): void {
  const seen = new Set<string>();
  for (const name of Object.keys(record)) {
    if (seen.has(name.toLowerCase())) report("occurs twice, in different cases", field, name);
    seen.add(name.toLowerCase());
  }
}

/** Returns a function that makes a changed copy of a list. An empty value adds no header. */
export function headerEditor(changes: HeaderChanges): (list: HeaderList, exchange: Exchange) => HeaderList {
  const { set = {}, add = {}, remove = [], rename = {} } = changes;
  const values = Object.entries(set);
  for (const [name, given] of Object.entries(add))
    for (const template of [given].flat()) values.push([name, template as Template]);
  const overwritten = nameSet(Object.keys(set));
  const hasRenames = Object.keys(rename).length > 0;
  // New names; null: the header is removed. Of several entries for a name the last one counts.
  const edits = new NameMap<string | null>([
    ...Object.keys(set).map((name) => [name, null] as const),
    ...Object.entries(rename).map(([from, to]) => [from, overwritten.has(to) ? null : to] as const),
    ...remove.map((name) => [name, null] as const),
  ]);

  return (list, exchange) => {
    const replaced = hasRenames ? replacedBy(edits, list) : NONE;
    const result: string[] = [];
    for (let i = 0; i < list.length; i += 2) {
      const name = list[i]!;
      const edit = edits.get(name);
      if (edit === null || (edit === undefined && replaced.has(name))) continue;
      result.push(edit ?? name, list[i + 1]!);
    }
    for (const [name, template] of values) {
      const value = template(exchange);
      if (value !== "") result.push(name, value);
    }
    return result;
  };
}

const NONE = nameSet([]);

/** The new names of renamed headers of the list: existing headers of these names are removed. */
function replacedBy(edits: NameMap<string | null>, list: HeaderList): NameMap<string> {
  const found: string[] = [];
  for (let i = 0; i < list.length; i += 2) {
    const to = edits.get(list[i]!);
    if (typeof to === "string") found.push(to);
  }
  return nameSet(found);
}

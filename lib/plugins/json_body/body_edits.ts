/**
 * The edits of `json_body` as they are configured: JSON Pointers, values with placeholders, and what contradicts what.
 */
import { describeNode, type Json, type JsonNode, type Path } from "../../config/json.ts";
import { plainJson } from "../../config/plain_json.ts";
import {
  array,
  INVALID,
  object,
  optional,
  record,
  report,
  string,
  type CheckContext,
  type Infer,
  type Invalid,
  type Schema,
} from "../../config/whole_schema.ts";
import type { Exchange } from "../../http/exchange.ts";
import { EditedNames } from "./edited_names.ts";
import { isWithin, pointerText, type Edit, type Pointer } from "./json_edits.ts";
import { textTemplate, type Template } from "../template.ts";

/** Steps of a pointer: texts with more levels are not edited. */
const MAX_STEPS = 100;
/** Each edit may look at all members of an object that a client has sent. */
const MAX_EDITS = 100;

const POINTER = string({
  references: "none",
  hint: 'a JSON Pointer, such as "/user/name"',
  check: pointerProblem,
});

const fields = {
  rename: optional(record(POINTER, { describe: "New places of values by their old ones; what is there is replaced." })),
  remove: optional(array(POINTER, { min: 1, describe: "Places of values to remove." })),
  default: optional(record(jsonTemplate("The value."), { describe: "Values by place, where there is none." })),
  set: optional(
    record(jsonTemplate("The value."), {
      describe: "Values by place; existing ones are replaced, missing parents are made.",
    }),
  ),
};

type WrittenEdits = Infer<ReturnType<typeof editsSchema>>;

/** The schema of the edits of a body. */
export function editsSchema(describe: string) {
  return object(fields, {
    describe,
    refine(value, reportIt) {
      const all = configuredEdits(value);
      if (all.length === 0) return reportIt('needs at least one of "rename", "remove", "default" and "set"');
      if (all.length > MAX_EDITS) return reportIt(`has ${all.length} edits: at most ${MAX_EDITS} are allowed`);
      all.forEach(({ field, key, written, edit }, i) => {
        // The schema has looked at pointers that are values, but not at those that are names.
        const wrong = pointerProblem(written);
        if (wrong !== undefined) return reportIt(`is no JSON Pointer: ${wrong}`, field, key);
        const earlier = all.slice(0, i).map((before) => contradiction(before.edit, edit));
        const why = ownContradiction(edit) ?? earlier.find((text) => text !== undefined);
        if (why !== undefined) reportIt(why, field, key);
      });
    },
  });
}

/** Undefined for a valid pointer to a value inside of the body (RFC 6901 §3), else what is wrong. */
function pointerProblem(text: string): string | undefined {
  if (!text.startsWith("/")) return 'it begins with "/"';
  if (/~(?![01])/.test(text)) return 'in a name, "~" is written "~0", and "/" is written "~1"';
  return text.split("/").length - 1 > MAX_STEPS ? `it has more than ${MAX_STEPS} steps` : undefined;
}

function pointerOf(text: string): Pointer {
  return text
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

interface ConfiguredEdit {
  readonly field: string;
  /** In the field: a pointer, or an index. */
  readonly key: string | number;
  readonly written: string;
  readonly edit: Edit;
  /** Null: the edit has no value. */
  readonly value: Template | null;
}

/** All edits in the order in which they are made. Values are filled in for each request. */
function configuredEdits(edits: WrittenEdits): ConfiguredEdit[] {
  const { rename = {}, remove = [], default: defaults = {}, set = {} } = edits;
  const valued = (change: "default" | "set", values: Readonly<Record<string, Template>>) =>
    Object.entries(values).map(([key, value]): ConfiguredEdit => {
      const edit: Edit = { change, at: pointerOf(key), value: "" };
      return { field: change, key, written: key, edit, value };
    });
  return [
    ...Object.entries(rename).map(([key, to]): ConfiguredEdit => {
      const edit: Edit = { change: "rename", at: pointerOf(key), to: pointerOf(to) };
      return { field: "rename", key, written: key, edit, value: null };
    }),
    ...remove.map((written, key): ConfiguredEdit => {
      const edit: Edit = { change: "remove", at: pointerOf(written) };
      return { field: "remove", key, written, edit, value: null };
    }),
    ...valued("default", defaults),
    ...valued("set", set),
  ];
}

/** Why an edit can never do anything; undefined: it can. */
function ownContradiction(edit: Edit): string | undefined {
  if ((edit.change === "remove" || edit.change === "rename") && edit.at.includes("-"))
    return '"-" is the place behind the last item: no value is there';
  if (edit.change !== "rename" || !isWithin(edit.to, edit.at)) return undefined;
  return edit.to.length === edit.at.length ? "is its name already" : "cannot move into itself";
}

/** Why an edit makes an earlier one pointless, or cannot find what that has moved; undefined: it does not. */
function contradiction(earlier: Edit, later: Edit): string | undefined {
  const before = pointerText(earlier.at);
  if (earlier.change === "rename") {
    if (later.change === "rename" && isWithin(earlier.to, later.to)) return `replaces what ${before} is renamed to`;
    if (later.change === "rename" && isWithin(earlier.to, later.at)) return `renames what ${before} is renamed to`;
    if ((later.change === "rename" || later.change === "remove") && isWithin(later.at, earlier.at))
      return `${before} has been renamed before`;
    if (later.change === "remove" && isWithin(earlier.to, later.at)) return `removes what ${before} is renamed to`;
    if (later.change === "set" && isWithin(earlier.to, later.at)) return `replaces what ${before} is renamed to`;
    return undefined;
  }
  const isAbove = isWithin(earlier.at, later.at);
  if (earlier.change === "remove" && later.change === "remove") {
    if (isAbove && earlier.at.length === later.at.length) return "is removed twice";
    if (isAbove) return `removes ${before}, too: leave that one out`;
    return isWithin(later.at, earlier.at) ? `is removed with ${before}` : undefined;
  }
  if (!isAbove) return undefined;
  const isSame = earlier.at.length === later.at.length;
  if (later.change === "default") {
    if (earlier.change === "default") return `never counts: the default of ${before} makes it`;
    return isSame ? 'is removed before: that is what "set" does' : undefined;
  }
  if (later.change !== "set" || (earlier.change === "set" && isSame)) return undefined;
  return earlier.change === "set"
    ? `replaces ${before}, which is set before`
    : `sets it anyway: leave ${before} out of "${earlier.change}"`;
}

export interface BodyEdits {
  /** Those for one request, in their order. */
  readonly of: (exchange: Exchange) => readonly Edit[];
  /** Whether values are taken out, which a recipient is not meant to see. */
  readonly removes: boolean;
  readonly names: EditedNames;
}

/** Null: there are none. */
export function compiledEdits(written: WrittenEdits | undefined): BodyEdits | null {
  if (written === undefined) return null;
  const all = configuredEdits(written);
  const of: BodyEdits["of"] = (exchange) =>
    all.map(({ edit, value }) => (value === null ? edit : ({ ...edit, value: value(exchange) } as Edit)));
  const names = new EditedNames(all.map(({ edit }) => edit));
  return { of, removes: written.remove !== undefined, names };
}

/** A value of JSON whose texts may have placeholders. It becomes its text, with the digits of its numbers. */
function jsonTemplate(describe: string): Schema<Template, Json> {
  const text = textTemplate(describe);
  const expects = "a JSON value";
  const compiled = (node: JsonNode, at: Path, context: CheckContext): Template | Invalid => {
    switch (node.kind) {
      case "object":
        return joined(
          "{}",
          [...node.members].map(([key, member]) => {
            return [`${JSON.stringify(key)}:`, compiled(member, [...at, key], context)];
          }),
        );
      case "array":
        return joined(
          "[]",
          node.items.map((item, i) => ["", compiled(item, [...at, i], context)]),
        );
      case "string": {
        if (node.value === "") return () => '""';
        const read = text.check(node, at, context);
        return read === INVALID ? INVALID : (exchange) => JSON.stringify(read(exchange));
      }
      case "number":
        return () => node.text;
      case "other":
        return report(context, at, node, `expected ${expects}, found ${describeNode(node)}`);
      default: {
        const constant = JSON.stringify(plainJson(node));
        return () => constant;
      }
    }
  };
  return {
    expects,
    describe,
    kinds: ["null", "boolean", "number", "string", "array", "object"],
    check: compiled,
    show: plainJson,
    jsonSchema: () => ({ description: describe }),
  };
}

function joined(
  brackets: string,
  parts: readonly (readonly [head: string, value: Template | Invalid])[],
): Template | Invalid {
  const values: Template[] = [];
  for (const [head, value] of parts) {
    if (value === INVALID) return INVALID;
    values.push((exchange) => head + value(exchange));
  }
  return (exchange) => `${brackets[0]}${values.map((value) => value(exchange)).join(",")}${brackets[1]}`;
}

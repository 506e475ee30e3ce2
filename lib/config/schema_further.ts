/**
 * Schemas that only features need: files, records, and choices between schemas.
 */
import { isContent, whyUnreadable } from "../base/regular_file.ts";
import type { Issue, JsonNode } from "./json.ts";
import { IS_RELATIVE, namedPath } from "./named_path.ts";
import { define, INVALID, mismatch, report } from "./schema_core.ts";
import type {
  AnySchema,
  Described,
  Infer,
  InputOf,
  Invalid,
  NamedFile,
  ReferenceReader,
  Schema,
} from "./schema_core.ts";
import { string } from "./schema_values.ts";

/** The path of a file that need not exist, relative to the configuration's folder; the output is absolute. */
export function filePath(options: Described = {}): Schema<string, string> {
  const path = pathText(options);
  return {
    ...path,
    check(node, at, context) {
      const given = path.check(node, at, context);
      if (given === INVALID) return INVALID;
      const absolute = namedPath(context.sources.folder, given);
      return absolute ?? report(context, at, node, `${given} ${IS_RELATIVE}`);
    },
  };
}

function pathText({ describe }: Described): Schema<string, string> {
  return string({ min: 1, hint: "the path of a file", describe, references: "value" });
}

export interface FileOptions extends Described {
  /** Returns undefined if the content is valid, else an error text, which must not quote the content. */
  readonly check?: (content: Buffer) => string | undefined;
}

/**
 * The path of a file, relative to the configuration's folder. A file that cannot be read or has the wrong content is
 * reported here.
 */
export function file(options: FileOptions = {}): Schema<NamedFile, string> {
  const path = pathText(options);
  return {
    ...path,
    check(node, at, context) {
      const given = path.check(node, at, context);
      if (given === INVALID) return INVALID;
      if (isContent(given)) {
        return report(
          context,
          at,
          node,
          `expected ${path.expects}, found the content of a file: save it to a file and write its path here`,
        );
      }
      const absolute = namedPath(context.sources.folder, given);
      if (absolute === null) return report(context, at, node, `${given} ${IS_RELATIVE}`);
      const { placeholders } = context.sources;
      if (node.kind === "string" && placeholders !== undefined && !placeholders.isKnown(node.value, at, context.root)) {
        placeholders.unknown.push(at);
        return INVALID;
      }
      try {
        const content = Buffer.from(context.sources.readFile(absolute));
        const wrong = options.check?.(content);
        if (wrong !== undefined) return report(context, at, node, `${absolute}: ${wrong}`);
        const named = { path: absolute, content };
        context.files?.set(absolute, named);
        return named;
      } catch (error) {
        const shown =
          node.kind === "string" && context.sources.references?.hasReference(node.value) ? node.value : absolute;
        return report(context, at, node, `cannot read ${shown}: ${whyUnreadable(error)}`);
      }
    },
  };
}

/** An object with arbitrary keys, which are kept unchanged. */
export function record<S extends AnySchema>(
  value: S,
  options: Described = {},
): Schema<Readonly<Record<string, Infer<S>>>, Readonly<Record<string, InputOf<S>>>> {
  return define({
    expects: "an object",
    describe: options.describe,
    kinds: ["object"],
    secret: value.secret === true,
    check(node, at, context) {
      const before = context.issues.length;
      const entries = [...node.members].map(
        ([key, member]) => [key, value.check(member, [...at, key], context)] as const,
      );
      // fromEntries defines properties: a key named __proto__ is data like any other.
      if (context.issues.length > before || entries.some(([, value]) => value === INVALID)) return INVALID;
      return Object.fromEntries(entries) as Record<string, Infer<S>>;
    },
    show: (node) => Object.fromEntries([...node.members].map(([key, member]) => [key, value.show(member)])),
    jsonSchema: (definitions) => ({ type: "object", additionalProperties: value.jsonSchema(definitions) }),
  });
}

/**
 * The first of the schemas that accepts the node. If only one accepts nodes of this kind, its own errors are reported.
 */
export function anyOf<const S extends readonly AnySchema[]>(
  schemas: S,
  options: Described = {},
): Schema<Infer<S[number]>, InputOf<S[number]>> {
  const likely = (node: JsonNode) => schemas.filter((schema) => schema.kinds.includes(node.kind));
  const schema: Schema<Infer<S[number]>, InputOf<S[number]>> = define({
    expects: schemas.map((each) => each.expects).join(" or "),
    describe: options.describe,
    kinds: [...new Set(schemas.flatMap((each) => each.kinds))],
    secret: schemas.some((each) => each.secret === true),
    check(node, at, context) {
      const candidates = likely(node);
      if (candidates.length === 1) return candidates[0]!.check(node, at, context);
      let isOpen = false;
      for (const candidate of candidates) {
        const issues: Issue[] = [];
        const value: Infer<S[number]> | Invalid = candidate.check(node, at, { ...context, issues });
        if (value !== INVALID) return value;
        isOpen ||= issues.length === 0;
      }
      // Without an issue nobody can tell, see `Placeholders`.
      return isOpen ? INVALID : mismatch(schema, node, at, context);
    },
    show: (node) => (likely(node).find((candidate) => accepts(candidate, node)) ?? likely(node)[0]!).show(node),
    jsonSchema: (definitions) => ({ anyOf: schemas.map((each) => each.jsonSchema(definitions)) }),
  });
  return schema;
}

/**
 * Whether the node is valid by itself, with references unresolved. Without `references`, a text that has `${` is not.
 */
export function accepts(schema: AnySchema, node: JsonNode, references?: ReferenceReader): boolean {
  return (
    schema.check(node, [], { issues: [], sources: { environment: {}, readFile: () => "", folder: "", references } }) !==
    INVALID
  );
}

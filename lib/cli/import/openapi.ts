/**
 * Imports an OpenAPI document (3.0, 3.1, 3.2): a route for each operation, with `request_validation` for its parameters
 * and body.
 */
import { compileJsonSchema, type CompiledSchema } from "../../json_schema/json_schema.ts";
import { isObject } from "../../json_schema/values.ts";
import { Failure } from "../failure.ts";
import type { Draft, DraftPlugin, DraftRoute, DraftTarget } from "./draft.ts";
import { SchemaReader, type OpenApiSchema } from "./openapi_schema.ts";
import { freeName, literal, SourceValue } from "./source_value.ts";

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

export function importOpenApi(root: SourceValue, draft: Draft, upstream: DraftTarget, checksFormats = false): void {
  const paths = root.entries("paths").filter(([path]) => !path.startsWith("x-"));
  if (paths.length === 0) throw new Failure('the document has no "paths": there is nothing to route', 2);
  const served = serverPath(root);
  noteOutgoing(root.get("webhooks"));
  const routes = new OperationReader(root, draft, checksFormats).routes(paths);
  const { protocol, host, port } = upstream;
  const prefix = upstream.path !== "" && { upstream_path: upstream.path };
  const name = draft.serviceName(root.get("info").text("title") ?? "api");
  draft.config.services.push(
    draft.from([], {
      name,
      base_path: served || "/",
      ...prefix,
      protocol,
      upstreams: [{ host, port }],
      routes,
    }),
  );
}

function noteOutgoing(place: SourceValue): void {
  if (place.entries().length > 0) place.note("are requests of the upstream to others, which do not pass the gateway");
}

/** The path of the first server, with the defaults of its variables. */
function serverPath(root: SourceValue): string {
  const [first, ...others] = root.items("servers");
  const pathOf = (server: SourceValue) => {
    const text = (server.text("url") ?? "/").replace(
      /\{([^{}]*)\}/g,
      (_, name: string) => server.get("variables").get(name).text("default") ?? "",
    );
    try {
      const { pathname, search, hash } = new URL(text, "http://localhost/");
      const path = literal(decodeURI(pathname)).replace(/\/+$/, "");
      if (search + hash !== "") server.note("its query and fragment are not carried over: clients send their own");
      return path;
    } catch {
      server.note("is no URL: the base_path is /");
      return "";
    }
  };
  const path = first === undefined ? "" : pathOf(first);
  for (const other of others)
    if (pathOf(other) !== path)
      other.note("has another path than the first server: only that of the first is the base_path");
  return path;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly place: SourceValue;
}

class OperationReader {
  readonly #root: SourceValue;
  readonly #draft: Draft;
  readonly #schemas: SchemaReader;
  readonly #names = new Map<string, number>();
  /** How many operations have routes of one shape, such as "GET /orders/{}". */
  readonly #shapes = new Map<string, number>();
  /** Those that have a route. */
  readonly #taken = new Set<string>();

  constructor(root: SourceValue, draft: Draft, checksFormats: boolean) {
    this.#root = root;
    this.#draft = draft;
    this.#schemas = new SchemaReader(root.value, draft.notes, checksFormats);
  }

  routes(paths: readonly (readonly [string, SourceValue])[]): DraftRoute[] {
    const all = paths.flatMap(([path, given]) => {
      const item = this.#resolved(given);
      return item === null
        ? []
        : [{ ...patternOf(path), item, methods: METHODS.filter((method) => isObject(item.get(method).value)) }];
    });
    for (const { nearest, why, methods } of all) {
      for (const shape of methods.map((method) => shapeOf(nearest, method))) {
        this.#shapes.set(shape, (this.#shapes.get(shape) ?? 0) + 1);
        if (why === undefined) this.#taken.add(shape);
      }
    }
    return all.flatMap((each) => this.#ofPath(each));
  }

  #ofPath({
    nearest,
    why,
    item,
    methods,
  }: Pattern & { readonly item: SourceValue; readonly methods: readonly string[] }): DraftRoute[] {
    for (const part of [item, ...METHODS.map((method) => item.get(method))]) {
      if (part.items("servers").length > 0) part.get("servers").note("only the servers of the whole document are used");
    }
    if (item.has("additionalOperations"))
      item.get("additionalOperations").note("has no counterpart here: add routes with these methods");
    return methods.flatMap((method) => {
      // What leads nowhere is noted, and has a route for its path and method.
      const operation = this.#resolved(item.get(method)) ?? new SourceValue({}, item.get(method).at, this.#draft.notes);
      const shape = shapeOf(nearest, method);
      if (why !== undefined && this.#taken.has(shape)) {
        operation.leaveOut(
          `the route is not carried over: ${why}, and another path here matches its requests: they go there`,
        );
        return [];
      }
      if (why !== undefined) {
        this.#taken.add(shape);
        operation.note(`${why}: it is "${nearest}" here, and the upstream has to refuse other requests`);
      }
      const id = operation.text("operationId");
      const name = id === undefined ? undefined : freeName(id, this.#names);
      if (name !== id)
        operation.get("operationId").note("is no name, or the name of another operation: the route has a number more");
      this.#noteSecurity(operation);
      noteOutgoing(operation.get("callbacks"));
      const parameters = this.#parameters(item, operation);
      const checks = this.#validation(operation, parameters, method);
      const isShared = this.#shapes.get(shape)! > 1;
      if (isShared && checks.length > 0)
        operation.note("gets the requests of several operations: they are not checked");
      const plugins = isShared ? [] : checks;
      const route = {
        name,
        path: nearest,
        methods: [method.toUpperCase()],
        plugins: plugins.length === 0 ? undefined : plugins,
      };
      return [this.#draft.from(operation.at, route)];
    });
  }

  /** What a `$ref` leads to. */
  #resolved(place: SourceValue): SourceValue | null {
    if (!isObject(place.value) || typeof place.value.$ref !== "string") return place;
    const found = this.#schemas.resolve(place.value, place.at);
    return found === undefined ? null : new SourceValue(found.value, found.at, place.notes);
  }

  /** Those of the operation replace those of its path. */
  #parameters(item: SourceValue, operation: SourceValue): Parameter[] {
    const found = new Map<string, Parameter>();
    for (const given of [...item.items("parameters"), ...operation.items("parameters")]) {
      const place = this.#resolved(given);
      const [name, where] = [place?.text("name"), place?.text("in")];
      if (place !== null && name !== undefined && where !== undefined)
        found.set(`${where} ${name}`, { name, in: where, place });
      else if (place !== null) given.note('is no parameter: it needs "name" and "in"');
    }
    return [...found.values()];
  }

  #validation(operation: SourceValue, parameters: readonly Parameter[], method: string): DraftPlugin[] {
    const config: Record<string, unknown> = {};
    const add = (field: string, schema: OpenApiSchema | undefined) =>
      void (schema === undefined || (config[field] = schema));
    add(
      "query",
      this.#parametersSchema(
        operation,
        parameters.filter((each) => each.in === "query"),
        (name) => name,
      ),
    );
    const headers = parameters.filter(
      (each) => each.in === "header" && !/^(accept|content-type|authorization)$/i.test(each.name),
    );
    add(
      "headers",
      this.#parametersSchema(operation, headers, (name) => name.toLowerCase()),
    );
    for (const { name, in: where, place } of parameters) {
      if (where === "header" && name.includes("_")) this.#draft.allowUnderscores(place.at);
      if (where === "cookie") place.note("cookies are not checked: request_validation has no schema for them");
      const { type, ...others } = (place.get("schema").value ?? {}) as Record<string, unknown>;
      const isFree =
        (type ?? "string") === "string" &&
        !["enum", "pattern", "format", "minLength", "maxLength", "$ref"].some((keyword) => keyword in others);
      if (where === "path" && !isFree) place.note("placeholders of paths are not checked: the upstream has to");
    }
    if (operation.has("requestBody")) this.#addBody(this.#resolved(operation.get("requestBody")), config, method);
    return Object.keys(config).length === 0
      ? []
      : [this.#draft.from(operation.at, { name: "request_validation", config })];
  }

  #addBody(body: SourceValue | null, config: Record<string, unknown>, method: string): void {
    const types = body?.entries("content") ?? [];
    if (body === null || types.length === 0) return;
    const others = types.map(([type]) => type).filter((type) => !JSON_TYPE.test(type));
    if (others.length > 0 || types.length > 1) {
      const seen =
        others.length === types.length
          ? "only JSON is checked"
          : "request_validation would refuse what is not JSON, or JSON of another type";
      return body.note(
        `the body may have ${types.length > 1 ? "several types" : "another type than JSON"}: ` +
          `it is not checked (${seen})`,
      );
    }
    const { value, at } = types[0]![1].get("schema");
    if (value === undefined) return;
    const converted = this.#schemas.convert(value, at);
    const schema = converted.schema === true ? undefined : this.#schemas.whole(converted, at);
    if (schema === undefined) return;
    config.body = schema;
    if (body.flag("required") !== true && !["get", "head", "delete", "options", "trace"].includes(method))
      config.body_required = false;
  }

  /** A schema of an object with these parameters; undefined if there is nothing to check. */
  #parametersSchema(
    operation: SourceValue,
    parameters: readonly Parameter[],
    spelled: (name: string) => string,
  ): OpenApiSchema | undefined {
    const made = new Map<string, ReturnType<SchemaReader["convert"]>>();
    const required: string[] = [];
    for (const { name, in: where, place } of parameters) {
      const isWhole = this.#isOneText(place, where);
      if (isWhole && place.flag("required") === true) required.push(spelled(name));
      const given = place.get("schema");
      if (isWhole && given.value !== undefined && place.flag("allowEmptyValue") !== true)
        made.set(spelled(name), this.#schemas.convert(given.value, given.at));
    }
    const build = () => {
      const parts = [...made].filter(([, { schema }]) => schema !== true);
      const properties = Object.fromEntries(parts.map(([name, { schema }]) => [name, schema]));
      const schema = { ...(parts.length === 0 ? {} : { properties }), ...(required.length === 0 ? {} : { required }) };
      const sum = {
        schema,
        size: parts.reduce((size, [, part]) => size + part.size, 0),
        uses: parts.flatMap(([, part]) => part.uses),
      };
      return Object.keys(schema).length === 0 ? undefined : this.#schemas.whole(sum, operation.at);
    };
    const schema = build();
    const compiled = schema === undefined ? [] : compileJsonSchema(schema);
    if (!("check" in compiled)) return schema;
    let isReadable = true;
    for (const { name, place } of parameters) {
      if (!made.has(spelled(name)) || isText(compiled, spelled(name))) continue;
      place.note("its schema does not say by one type how its text is read: its value is not checked");
      made.delete(spelled(name));
      isReadable = false;
    }
    return isReadable ? schema : build();
  }

  /** Whether each value arrives as one text, or an array as several of them, as `request_validation` reads them. */
  #isOneText(place: SourceValue, where: string): boolean {
    const { value: given } = this.#schemas.resolve(place.get("schema").value, place.get("schema").at) ?? {};
    const types = isObject(given) ? [given.type].flat() : [];
    const isList = types.includes("array");
    const isSplit = where === "query" && (place.text("style") ?? "form") === "form" && place.flag("explode") !== false;
    if (!place.has("content") && !types.includes("object") && (!isList || isSplit)) return true;
    place.note("request_validation does not read parameters in this form: it is not checked");
    return false;
  }

  #noteSecurity(operation: SourceValue): void {
    const security = operation.has("security") ? operation.get("security") : this.#root.get("security");
    for (const requirement of security.items()) {
      for (const [name] of requirement.entries()) {
        const scheme = this.#resolved(this.#root.get("components").get("securitySchemes").get(name));
        const kind = scheme?.text("type") ?? "unknown";
        const isDropped = scheme?.get("in").value === "header" && scheme.text("name")?.includes("_") === true;
        if (isDropped) this.#draft.allowUnderscores(scheme.at);
        const plugin =
          kind === "http"
            ? /^basic$/i.test(scheme?.text("scheme") ?? "")
              ? "basic_auth"
              : "jwt"
            : Object.hasOwn(PLUGINS, kind)
              ? PLUGINS[kind]
              : "an authentication plugin";
        this.#draft.notes.add(
          security.at,
          `the security scheme "${name}" (${kind}) is left to the upstream: ` +
            `add ${plugin} if the gateway is to check it`,
        );
      }
    }
  }
}

interface Pattern {
  /** The pattern whose requests are those of the path, or more. */
  readonly nearest: string;
  /** Why they are more. */
  readonly why: string | undefined;
}

function patternOf(path: string): Pattern {
  const bare = path.replace(/[?#].*$/s, "");
  const named = bare.replace(
    /\{([^{}/+*]+)\}/g,
    (_, name: string) => `{${name.replace(/\W/g, "_").replace(/^(?=\d)/, "_")}}`,
  );
  const written = named.replace(/\{[^{}]*\}|[^{}]+/g, (part) => (part.startsWith("{") ? part : literal(part)));
  // The nearest pattern of /orders/{id}.pdf is /orders/{id}.
  const nearest = written
    .split("/")
    .map((segment) =>
      /^[^{}]*(?:\{\w+\}[^{}]*)+$/.test(segment)
        ? `{${[...segment.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).join("_")}}`
        : segment,
    )
    .join("/");
  if (bare !== path) return { nearest, why: 'its path goes on with "?" or "#", which is no part of a path' };
  const isMixed = nearest !== written;
  return { nearest, why: isMixed ? "its path mixes text and placeholders in a segment" : undefined };
}

function shapeOf(path: string, method: string): string {
  return `${method} ${path.replace(/\{[^{}]*\}/g, "{}")}`;
}

const PLUGINS: Readonly<Record<string, string>> = {
  apiKey: "key_auth",
  oauth2: "jwt",
  openIdConnect: "jwt",
  mutualTLS: "mtls",
};
const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\s*(?:;\s*charset="?utf-8"?\s*)?$/i;

/** Whether a text can be read by the schema of this property: its type is known, and so is that of its items. */
function isText({ typesOf }: CompiledSchema, property: string): boolean {
  const { types, itemTypes } = typesOf(property);
  return (
    types !== null &&
    !types.includes("object") &&
    (!types.includes("array") || (itemTypes !== null && !itemTypes.some((type) => /array|object/.test(type))))
  );
}

/** Throws a `Failure` if the document is of another kind, or of a version that cannot be imported. */
export function checkOpenApi(root: SourceValue): void {
  if (root.has("swagger")) {
    throw new Failure(
      "this is Swagger 2.0: convert it to OpenAPI 3 first, as with: npx swagger2openapi FILE.json -o openapi.json",
      2,
    );
  }
  const version = root.get("openapi").value;
  if (typeof version !== "string") throw new Failure('this is no OpenAPI document: it has no "openapi": "3.…"', 2);
  if (!/^3\.\d/.test(version))
    throw new Failure(`OpenAPI ${JSON.stringify(version.slice(0, 20))} is not known here: 3.0, 3.1 and 3.2 are`, 2);
}

/**
 * Configured texts with placeholders: `{param}` of the route's pattern, `${request.id}`, `${client.ip}`, `${claim.sub}`
 * and others. Compiled once; values from requests are escaped for their context.
 *
 * `${env:…}` and `${file:…}` are resolved first, and placeholders in them are plain text. `{{x}}` and `$${x}` stand for
 * `{x}` and `${x}`; braces around anything but a name are plain text. Missing claims and parameters are empty.
 */
import { suggest } from "../base/suggest.ts";
import { nodeAt, type JsonNode, type Path } from "../config/json.ts";
import { hasReference, maskLiterals, nameIn, readReferences, resolveReferences } from "../config/references.ts";
import { conceal, INVALID, report, string, type CheckContext, type Invalid, type Schema } from "../config/schema.ts";
import { givenAuthority, givenPrefix, type ForwardedRequest } from "../http/given_origin.ts";
import { trimmed } from "../http/headers.ts";
import { groupsOf, type Exchange } from "../http/exchange.ts";
import { claimReader, claimText, utf8 } from "./claims.ts";

/** The parts of an exchange that placeholders read. */
export type TemplateSource = Pick<
  Exchange,
  "requestId" | "method" | "path" | "params" | "clientAddress" | "identity" | "claims" | "groups" | "route"
> &
  ForwardedRequest;

/** Returns the value for one exchange. */
export type Template = (exchange: TemplateSource) => string;

/**
 * A header's value, in UTF-8; control characters of requests become "?". `secret`: configurations are shown without its
 * literal text.
 */
export function headerTemplate(describe: string, secret = false): Schema<Template, string> {
  return templateSchema(describe, compileHeader, secret);
}

/**
 * The value of Location (RFC 9110 §10.2.2): a path that starts with "/", or an http(s) URL. No value of a request
 * chooses the host, except `${request.host}`, the host of the client's URL without its port. Claims and the like are
 * percent-encoded.
 */
export function locationTemplate(describe: string): Schema<LocationTemplate, string> {
  return templateSchema(describe, compileLocation);
}

/** For a place to which a client is led. */
export interface LocationTemplate {
  readonly read: Template;
  /** Whether it may contain what trusted proxies say of the client's URL. */
  readonly isGiven: boolean;
}

/** A text that is compared with another one. */
export interface ComparedText {
  /** With placeholders as they are written. */
  readonly written: string;
  /** Null if a placeholder has no value: no text is equal to one with a gap. */
  readonly read: (exchange: TemplateSource) => string | null;
}

export function comparedTemplate(describe: string): Schema<ComparedText, string> {
  return templateSchema(describe, compileCompared);
}

/** A text in a body: control characters and any other ones pass, and parameters of the path are decoded. */
export function textTemplate(describe: string): Schema<Template, string> {
  return templateSchema(describe, compileText);
}

type Part = { readonly text: string } | Placeholder;

interface Placeholder {
  /** As written: `{id}`, `${claim.sub}`. */
  readonly written: string;
  readonly of: "param" | "path" | "host" | "other";
  readonly read: (exchange: TemplateSource) => string;
}

/** Returns the compiled template, or an error text. */
type Compile<T> = (parts: readonly Part[]) => T | string;

function templateSchema<T extends object>(describe: string, compile: Compile<T>, secret = false): Schema<T, string> {
  const text = string({ min: 1, describe, secret });
  const read = (node: JsonNode & { kind: "string" }, at: Path, context: CheckContext) => {
    const parts = partsOf(node, at, context);
    if (parts === INVALID) return INVALID;
    const made = compile(parts);
    if (typeof made !== "string") return made;
    if (context.sources.substitute !== undefined) return INVALID;
    // The message may quote the text, so it is replaced for texts with secrets.
    return report(context, at, node, hasReference(node.value) ? "the value of the reference is not valid here" : made);
  };
  return {
    ...text,
    check(node, at, context): T | Invalid {
      if (node.kind !== "string" || node.value === "") return text.check(node, at, context) as Invalid;
      if (secret && holdsText(node.value)) conceal(node, at, context, maskLiterals);
      return hasReference(node.value)
        ? readReferences(node, at, "text", context, (each) => read(node, at, each))
        : read(node, at, context);
    },
  };
}

/** Whether it contains literal text: placeholders do not reveal their values. */
function holdsText(value: string): boolean {
  return value.replace(TOKEN, (written) => (/^(?:\$\$|\{\{)/.test(written) ? written : "")).trim() !== "";
}

const TOKEN = /\$\{(?:env|file):[^}]*\}?|\$\$\{[^}]*\}|\$\{([^}]*)(\}?)|\{\{[A-Za-z_]\w*\}\}|\{([A-Za-z_]\w*)(\*?)\}/g;

function partsOf(node: JsonNode & { kind: "string" }, at: Path, context: CheckContext): Part[] | Invalid {
  const { value } = node;
  const params = routeParams(at, context);
  const parts: Part[] = [];
  const problems: string[] = [];
  const add = (text: string) => {
    const last = parts.at(-1);
    if (last !== undefined && "text" in last) parts[parts.length - 1] = { text: last.text + text };
    else if (text !== "") parts.push({ text });
  };
  let end = 0;
  for (const match of value.matchAll(TOKEN)) {
    const [written, variable, brace, param, star] = match;
    add(value.slice(end, match.index));
    end = match.index + written.length;
    if (variable !== undefined) {
      const found =
        brace === "" ? "a placeholder that begins with ${ lacks its closing brace" : variableNamed(variable);
      if (typeof found === "string") problems.push(found);
      else parts.push(found);
    } else if (param !== undefined) {
      const wrong = star === "" ? unknownParam(param, params) : `${written} is written {${param}} here`;
      if (wrong !== undefined) problems.push(wrong);
      else
        parts.push({
          written,
          of: "param",
          read: ({ params: given }) => (Object.hasOwn(given, param) ? given[param]! : ""),
        });
    } else if (hasReference(written) && !written.startsWith("$$")) {
      const { text, problems: unresolved } = resolveReferences(written, context.sources);
      problems.push(...unresolved);
      add(text);
    } else add(written.startsWith("$$") ? written.slice(1) : written.slice(1, -1));
  }
  add(value.slice(end));
  for (const message of problems) report(context, at, node, message);
  return problems.length > 0 ? INVALID : parts;
}

const VARIABLES: Readonly<
  Record<string, { readonly of?: "path" | "host"; readonly read: (exchange: TemplateSource) => string }>
> = {
  "request.id": { read: (exchange) => exchange.requestId },
  "request.method": { read: (exchange) => exchange.method },
  "request.host": { of: "host", read: ({ authority }) => withoutPort(authority) },
  "request.path": { of: "path", read: (exchange) => exchange.path },
  "client.ip": { read: (exchange) => exchange.clientAddress },
  "caller.id": { read: (exchange) => exchange.identity ?? "" },
  "caller.groups": { read: (exchange) => claimText(groupsOf(exchange)) },
};

function withoutPort(authority: string): string {
  return authority.replace(/:\d*$/, "");
}

function variableNamed(name: string): Placeholder | string {
  const written = `\${${name}}`;
  if (name.startsWith("claim.") && name.length > 6) {
    const readClaim = claimReader(name.slice(6));
    return { written, of: "other", read: ({ claims }) => (claims === null ? "" : claimText(readClaim(claims))) };
  }
  if (Object.hasOwn(VARIABLES, name)) return { written, of: "other", ...VARIABLES[name]! };
  const known = [...Object.keys(VARIABLES), "claim.sub"];
  const dot = name.indexOf(".");
  const group = dot > 0 ? suggest(name.slice(0, dot), ["claim", "param"]) : undefined;
  const nearest = suggest(name, known) ?? (group === "claim" ? `claim.${name.slice(dot + 1)}` : undefined);
  if (nearest !== undefined) return `${written} is not known here; did you mean \${${nearest}}?`;
  if (group === "param") return `${written} is not known here; did you mean {${name.slice(dot + 1)}}?`;
  return (
    `${written} is not known here (known: ${known.slice(0, -1).join(", ")}, claim.NAME, env:NAME, file:PATH; ` +
    `write $${written} for the text itself)`
  );
}

function unknownParam(name: string, params: readonly string[] | null): string | undefined {
  if (params === null || params.includes(name)) return undefined;
  const nearest = suggest(name, params);
  const help =
    nearest !== undefined
      ? `; did you mean {${nearest}}?`
      : ` (it has ${params.map((each) => `{${each}}`).join(", ") || "none"}; write {{${name}}} for the text itself)`;
  return `{${name}} is no placeholder of this route's path${help}`;
}

/**
 * The parameters of the plugin's route; null for a plugin of a service or all services, or when the patterns cannot be
 * read.
 */
export function routeParams(at: Path, { root }: CheckContext): readonly string[] | null {
  if (root === undefined || at[0] !== "services" || at[2] !== "routes") return null;
  const texts = [nodeAt(root, [...at.slice(0, 2), "base_path"]), nodeAt(root, [...at.slice(0, 4), "path"])];
  const names: string[] = [];
  for (const node of texts) {
    if (nameIn(node) === undefined) return null;
    for (const match of (nameIn(node) ?? "").matchAll(/[{<]([A-Za-z_]\w*)\*?[}>]/g)) names.push(match[1]!);
  }
  return names;
}

function compileCompared(parts: readonly Part[]): ComparedText {
  const valueOf = (part: Part, exchange: TemplateSource) =>
    "text" in part ? part.text : part.of === "param" ? decodedParam(part.read(exchange)) : part.read(exchange);
  return {
    written: parts.map((part) => ("text" in part ? part.text : part.written)).join(""),
    read(exchange) {
      let text = "";
      for (const part of parts) {
        const value = valueOf(part, exchange);
        if (value === null || value === "") return null;
        text += value;
      }
      return text;
    },
  };
}

/** A parameter of a path without percent-encoding; null if it is not UTF-8. */
export function decodedParam(param: string): string | null {
  try {
    return decodeURIComponent(param);
  } catch {
    return null;
  }
}

function compileText(parts: readonly Part[]): Template {
  const piece = (part: Part): string | Template => {
    if ("text" in part) return part.text;
    if (part.of !== "param") return part.read;
    return (exchange) => {
      const param = part.read(exchange);
      return decodedParam(param) ?? param;
    };
  };
  return joined(parts.map(piece), (text) => text);
}

function compileHeader(parts: readonly Part[]): Template | string {
  for (const part of parts) {
    if ("text" in part && CONTROLS.test(part.text))
      return "contains a control character or line break, which a header cannot contain";
  }
  return joined(
    parts.map((part) => ("text" in part ? utf8(part.text) : (exchange) => headerText(part.read(exchange)))),
    withoutBlanks,
  );
}

const CONTROLS = /[\x00-\x08\x0a-\x1f\x7f]/;
const NOT_PLAIN = /[^\t\x20-\x7e]/;

function headerText(text: string): string {
  return NOT_PLAIN.test(text) ? utf8(text.replace(/[\x00-\x08\x0a-\x1f\x7f]/g, "?")) : text;
}

/**
 * Blanks around a value are not part of it (RFC 9110 §5.5). `trim` would also cut 0xA0, the last byte of "à" in UTF-8.
 */
const withoutBlanks = (text: string) => trimmed(text, 0, text.length);

function compileLocation(parts: readonly Part[]): LocationTemplate | string {
  let before = "";
  let hostEnd = -1;
  const pieces: (string | Template)[] = [];
  for (const part of parts) {
    if ("text" in part) {
      const wrong = NOT_URI.exec(part.text)?.[0];
      if (wrong !== undefined)
        return `contains ${JSON.stringify(wrong)}, which a URL cannot contain: write it percent-encoded`;
      before += part.text;
      pieces.push(part.text);
    } else {
      const wrong = whyMisplaced(part, before);
      if (wrong !== undefined) return wrong;
      pieces.push(locationPiece(part, before.includes("?")));
      if (part.of === "host" && IN_AUTHORITY.test(before)) hostEnd = pieces.length;
      before += STANDS_FOR_SOMETHING;
    }
  }
  if (!START.test(before))
    return 'expected a path that starts with "/" or a URL that starts with "http://" or "https://"';
  if (OWN_PATH.test(before)) {
    const below = joined(pieces, withoutDoubleSlash);
    return { read: (exchange) => givenPrefix(exchange) + below(exchange), isGiven: true };
  }
  if (hostEnd > 0) addPrefix(pieces, hostEnd);
  const isGiven = parts.some((part) => "of" in part && part.of === "host");
  return { read: joined(pieces, (text) => text), isGiven };
}

/** Puts the prefix behind the client's host and a port, unless the text goes on with another host. */
function addPrefix(pieces: (string | Template)[], hostEnd: number): void {
  const next = pieces[hostEnd];
  const text = typeof next === "string" ? next : "";
  const port = PORT_AT_END.exec(text)?.[0];
  if (port !== undefined) pieces.splice(hostEnd, text === next ? 1 : 0, port, givenPrefix, text.slice(port.length));
}

const PORT_AT_END = /^(?::\d*)?(?=[/?#]|$)/;
const STANDS_FOR_SOMETHING = "\0";
/** After more than two slashes, browsers still look for a host. */
const START = /^(?:\/(?!\/)|(?:https?:)?\/\/[^/?#]|\0)/i;
const OWN_PATH = /^(?:\/(?!\/)|\0)/;
const IN_AUTHORITY = /^(?:https?:)?\/\/[^/?#]*$/i;
const NOT_URI = /[^\x21-\x7e]|["<>\\^`{|}]/;

function whyMisplaced({ of, written }: Placeholder, before: string): string | undefined {
  // A path starts with a slash: after another slash, its first segment would be read as a host.
  if (of === "path") {
    if (before.endsWith("/") && (before === "/" || IN_AUTHORITY.test(before)))
      return `${written} starts with a slash: leave out the one before it`;
    return undefined;
  }
  if (before === "") return `${written} would choose where to redirect: write "/" or a whole "https://host/" before it`;
  if (!IN_AUTHORITY.test(before) || (of === "host" && before.endsWith("//"))) return undefined;
  return `${written} would choose the host to redirect to: after "//" only \${request.host} is allowed`;
}

function locationPiece({ of, read }: Placeholder, inQuery: boolean): Template {
  // Half a surrogate pair has no encoding.
  if (of === "other") return (exchange) => encodeURIComponent(Buffer.from(read(exchange), "utf8").toString("utf8"));
  if (of === "host") return (exchange) => escapedUri(withoutPort(givenAuthority(exchange)));
  // A parameter or path is percent-encoded as matched; in a query, more characters have a meaning.
  const reserved = inQuery ? /[&+=;#?]/g : /[?#]/g;
  return (exchange) => escapedUri(read(exchange)).replace(reserved, percent);
}

/** Percent-encodes characters that are not allowed in a URL; one character is one byte. */
export function escapedUri(text: string): string {
  return NOT_URI.test(text) ? text.replace(/[^\x21-\x7e]|["<>\\^`{|}]/g, percent) : text;
}

function percent(character: string): string {
  const code = character.charCodeAt(0);
  return code > 0xff
    ? encodeURIComponent(Buffer.from(character, "utf8").toString("utf8"))
    : `%${code.toString(16).toUpperCase().padStart(2, "0")}`;
}

/** An absent parameter must not leave two slashes in front, after which a host would be read. */
function withoutDoubleSlash(text: string): string {
  return text.startsWith("//") ? text.replace(/^\/+/, "/") : text;
}

function joined(pieces: readonly (string | Template)[], finish: (text: string) => string): Template {
  if (pieces.every((piece) => typeof piece === "string")) {
    const constant = finish(pieces.join(""));
    return () => constant;
  }
  return (exchange) => {
    let text = "";
    for (const piece of pieces) text += typeof piece === "string" ? piece : piece(exchange);
    return finish(text);
  };
}

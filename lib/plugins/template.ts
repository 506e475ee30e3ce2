/**
 * Values of a configuration with placeholders: `{param}` of the route's pattern, `${request.id}`, `${client.ip}`, `${claim.sub}` and
 * the like. Compiled once, when the configuration is read; what comes from outside is made safe for where the value goes.
 * Which header or Location that is, is said by the kinds that use them.
 *
 * `${env:…}` and `${file:…}` are resolved first, and what they stand for is not looked into again. `{{x}}` and `$${x}` stand for `{x}` and
 * `${x}` themselves; braces around anything but a name are text. What is not there, a claim or a parameter, is empty.
 */
import { suggest } from "../base/suggest.ts";
import { nodeAt, type JsonNode, type Path } from "../config/json.ts";
import { hasReference, maskLiterals, resolveReferences } from "../config/references.ts";
import { conceal, INVALID, report, string, type CheckContext, type Invalid, type Schema } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";

/** Gives the value for one exchange; "" when nothing of it is there. */
export type Template = (exchange: Exchange) => string;

/**
 * A header's value: a single line of text. Text beyond ASCII goes out in UTF-8, control characters become "?". `secret`: text that stands
 * in it itself is nobody's but the receiver's.
 */
export function headerTemplate(describe: string, secret = false): Schema<Template, string> {
  return templateSchema(describe, compileHeader, secret);
}

/**
 * What a Location holds (RFC 9110 §10.2.2): a path from "/" on, or an http(s) URL. Nothing that comes from outside chooses the host, except
 * `${request.host}`, the host that was asked for without its port; claims and the like are percent-encoded.
 */
export function locationTemplate(describe: string): Schema<Template, string> {
  return templateSchema(describe, compileLocation);
}

type Part = { readonly text: string } | Placeholder;

interface Placeholder {
  /** As it is written: `{id}`, `${claim.sub}`. */
  readonly written: string;
  readonly name: string;
  readonly of: "param" | "path" | "host" | "other";
  readonly read: (exchange: Exchange) => string;
}

/** Compiles, or says what is wrong. */
type Compile = (parts: readonly Part[]) => Template | string;

function templateSchema(describe: string, compile: Compile, secret = false): Schema<Template, string> {
  const text = string({ min: 1, describe, secret });
  return {
    ...text,
    check(node, at, context): Template | Invalid {
      if (node.kind !== "string" || node.value === "") return text.check(node, at, context) === INVALID ? INVALID : empty;
      if (secret && holdsText(node.value)) conceal(node, at, context, maskLiterals);
      const parts = partsOf(node, at, context);
      if (parts === INVALID) return INVALID;
      const made = compile(parts);
      if (typeof made !== "string") return made;
      // The complaint may quote the text, so it is for texts without secrets only.
      return report(context, at, node, hasReference(node.value) ? "what the reference stands for does not fit here" : made);
    },
  };
}

/** Whether there is more in it than placeholders, which tell nobody what they stand for. */
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
  let behind = 0;
  for (const match of value.matchAll(TOKEN)) {
    const [written, variable, brace, param, star] = match;
    add(value.slice(behind, match.index));
    behind = match.index + written.length;
    if (variable !== undefined) {
      const found = brace === "" ? "a placeholder that begins with ${ lacks its closing brace" : variableNamed(variable);
      if (typeof found === "string") problems.push(found);
      else parts.push(found);
    } else if (param !== undefined) {
      const wrong = star === "" ? unknownParam(param, params) : `${written} is spelt {${param}} here`;
      if (wrong !== undefined) problems.push(wrong);
      else parts.push({ written, name: param, of: "param", read: (exchange) => own(exchange.params, param) ?? "" });
    } else if (hasReference(written) && !written.startsWith("$$")) {
      const { text, problems: unresolved } = resolveReferences(written, context.sources);
      problems.push(...unresolved);
      add(text);
    } else add(written.startsWith("$$") ? written.slice(1) : written.slice(1, -1));
  }
  add(value.slice(behind));
  for (const message of problems) report(context, at, node, message);
  return problems.length > 0 ? INVALID : parts;
}

const VARIABLES: Readonly<Record<string, { readonly of?: "path" | "host"; readonly read: (exchange: Exchange) => string }>> = {
  "request.id": { read: (exchange) => exchange.requestId },
  "request.method": { read: (exchange) => exchange.method },
  "request.host": { of: "host", read: ({ authority }) => authority.replace(/:\d*$/, "") },
  "request.path": { of: "path", read: (exchange) => exchange.path },
  "client.ip": { read: (exchange) => exchange.clientAddress },
  "caller.id": { read: (exchange) => exchange.identity ?? "" },
};

function variableNamed(name: string): Placeholder | string {
  const written = `\${${name}}`;
  if (name.startsWith("claim.") && name.length > 6) {
    const claim = name.slice(6);
    const steps = claim.split(".");
    return { written, name, of: "other", read: ({ claims }) => (claims === null ? "" : claimText(own(claims, claim) ?? descend(claims, steps))) };
  }
  if (Object.hasOwn(VARIABLES, name)) return { written, name, of: "other", ...VARIABLES[name]! };
  const known = [...Object.keys(VARIABLES), "claim.sub"];
  const dot = name.indexOf(".");
  const group = dot > 0 ? suggest(name.slice(0, dot), ["claim", "param"]) : undefined;
  const nearest = suggest(name, known) ?? (group === "claim" ? `claim.${name.slice(dot + 1)}` : undefined);
  if (nearest !== undefined) return `${written} is not known here; did you mean \${${nearest}}?`;
  if (group === "param") return `${written} is not known here; did you mean {${name.slice(dot + 1)}}?`;
  return `${written} is not known here (known: ${known.slice(0, -1).join(", ")}, claim.NAME, env:NAME, file:PATH; write $${written} for the text itself)`;
}

function unknownParam(name: string, params: readonly string[] | null): string | undefined {
  if (params === null || params.includes(name)) return undefined;
  const nearest = suggest(name, params);
  const help = nearest !== undefined ? `; did you mean {${nearest}}?` : ` (it has ${params.map((each) => `{${each}}`).join(", ") || "none"}; write {{${name}}} for the text itself)`;
  return `{${name}} is no placeholder of this route's path${help}`;
}

/** The placeholders of the route that a plugin stands at; null where it stands further out, or the patterns cannot be read. */
function routeParams(at: Path, { root, sources }: CheckContext): readonly string[] | null {
  if (root === undefined || at[0] !== "services" || at[2] !== "routes") return null;
  const texts = [nodeAt(root, [...at.slice(0, 2), "base_path"]), nodeAt(root, [...at.slice(0, 4), "path"])];
  const names: string[] = [];
  for (const node of texts) {
    if (node?.kind !== "string") return null;
    const { text, problems } = resolveReferences(node.value, sources);
    if (problems.length > 0) return null;
    for (const match of text.matchAll(/[{<]([A-Za-z_]\w*)\*?[}>]/g)) names.push(match[1]!);
  }
  return names;
}

/** Never what an object inherits: `constructor` is no claim. */
function own(object: object, name: string): any {
  return Object.hasOwn(object, name) ? (object as Record<string, unknown>)[name] : undefined;
}

function descend(claims: object, steps: readonly string[]): unknown {
  let found: unknown = claims;
  for (const step of steps) {
    if (typeof found !== "object" || found === null) return undefined;
    found = own(found, step);
  }
  return found;
}

/** A list is joined by commas; a comma within an item must not pass for another item. */
function claimText(claim: unknown): string {
  if (claim === undefined || claim === null) return "";
  if (Array.isArray(claim)) return claim.map((item) => claimText(item).replace(/[%,]/g, (c) => (c === "," ? "%2C" : "%25"))).join(",");
  return typeof claim === "object" ? JSON.stringify(claim) : String(claim);
}

function compileHeader(parts: readonly Part[]): Template | string {
  for (const part of parts) {
    if ("text" in part && CONTROLS.test(part.text)) return "holds a control character or line break, which a header cannot";
  }
  return joined(parts.map((part) => ("text" in part ? utf8(part.text) : (exchange) => headerText(part.read(exchange)))), trimmed);
}

const CONTROLS = /[\x00-\x08\x0a-\x1f\x7f]/;
const NOT_PLAIN = /[^\t\x20-\x7e]/;

function headerText(text: string): string {
  return NOT_PLAIN.test(text) ? utf8(text.replace(/[\x00-\x08\x0a-\x1f\x7f]/g, "?")) : text;
}

/** Header lists hold a character a byte. */
function utf8(text: string): string {
  return NOT_PLAIN.test(text) ? Buffer.from(text, "utf8").toString("latin1") : text;
}

/** Blanks around a value are no part of it (RFC 9110 §5.5), and HTTP/2 refuses them. */
function trimmed(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  // Not what else JavaScript takes for a space: 0xA0 ends the UTF-8 of "à".
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
  return end - start === text.length ? text : text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 9;
}

function compileLocation(parts: readonly Part[]): Template | string {
  let before = "";
  const pieces: (string | Template)[] = [];
  for (const part of parts) {
    if ("text" in part) {
      const wrong = NOT_URI.exec(part.text)?.[0];
      if (wrong !== undefined) return `holds ${JSON.stringify(wrong)}, which a URL cannot: write it percent-encoded`;
      before += part.text;
      pieces.push(part.text);
    } else {
      const wrong = whyMisplaced(part, before);
      if (wrong !== undefined) return wrong;
      pieces.push(locationPiece(part, before.includes("?")));
      before += STANDS_FOR_SOMETHING;
    }
  }
  if (!START.test(before)) return 'expected a path that starts with "/" or a URL that starts with "http://" or "https://"';
  return joined(pieces, before.startsWith("//") ? same : withoutDoubleSlash);
}

const STANDS_FOR_SOMETHING = "\0";
/** Behind more slashes than two, browsers still look for a host. */
const START = /^(?:\/(?!\/)|(?:https?:)?\/\/[^/?#]|\0)/i;
const IN_AUTHORITY = /^(?:https?:)?\/\/[^/?#]*$/i;
const NOT_URI = /[^\x21-\x7e]|["<>\\^`{|}]/;

function whyMisplaced({ of, written }: Placeholder, before: string): string | undefined {
  // It begins with a slash: behind another one the first segment would be a host, behind a host the path begins.
  if (of === "path") {
    if (before.endsWith("/") && (before === "/" || IN_AUTHORITY.test(before))) return `${written} starts with a slash: leave out the one before it`;
    return undefined;
  }
  if (before === "") return `${written} would choose where to redirect: write "/" or a whole "https://host/" before it`;
  if (!IN_AUTHORITY.test(before) || (of === "host" && before.endsWith("//"))) return undefined;
  return `${written} would choose the host to redirect to: behind "//" only \${request.host} may stand`;
}

function locationPiece({ of, read }: Placeholder, inQuery: boolean): Template {
  switch (of) {
    case "host":
      return (exchange) => escapedUri(read(exchange));
    case "param":
    case "path":
      // Percent-encoded as it was matched; in a query, more characters have a meaning.
      return inQuery ? (exchange) => escapedUri(read(exchange)).replace(/[&+=;#?]/g, percent) : (exchange) => escapedUri(read(exchange)).replace(/[?#]/g, percent);
    case "other":
      // Half a surrogate pair has no encoding.
      return (exchange) => encodeURIComponent(Buffer.from(read(exchange), "utf8").toString("utf8"));
  }
}

/** What cannot stand in a URL percent-encoded, a byte a character. */
export function escapedUri(text: string): string {
  return NOT_URI.test(text) ? text.replace(/[^\x21-\x7e]|["<>\\^`{|}]/g, percent) : text;
}

function percent(character: string): string {
  const code = character.charCodeAt(0);
  return code > 0xff ? encodeURIComponent(Buffer.from(character, "utf8").toString("utf8")) : `%${code.toString(16).toUpperCase().padStart(2, "0")}`;
}

/** A parameter that is not there must not leave two slashes in front, behind which a host would be read. */
function withoutDoubleSlash(text: string): string {
  return text.startsWith("//") ? text.replace(/^\/+/, "/") : text;
}

function same(text: string): string {
  return text;
}

function joined(pieces: readonly (string | Template)[], finish: (text: string) => string): Template {
  if (pieces.every((piece) => typeof piece === "string")) {
    const constant = finish(pieces.join(""));
    return () => constant;
  }
  if (pieces.length === 1) {
    const only = pieces[0] as Template;
    return (exchange) => finish(only(exchange));
  }
  return (exchange) => {
    let text = "";
    for (const piece of pieces) text += typeof piece === "string" ? piece : piece(exchange);
    return finish(text);
  };
}

function empty(): string {
  return "";
}

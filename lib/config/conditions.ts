/**
 * The schema of conditions on the headers, the query, the cookies and the scheme of a request.
 */
import { FIELD_VALUE, FORWARDING, HOP_BY_HOP, TOKEN } from "../base/http_grammar.ts";
import { charactersUpTo } from "../base/linear_pattern.ts";
import { isSecretName } from "../base/secret_names.ts";
import { droppedProblem } from "./dropped_names.ts";
import { byHeader, byName, matches, NULL } from "./expected.ts";
import { nodeAt, type JsonNode, type Path } from "./json.ts";
import { maskLiterals } from "./references.ts";
import * as s from "./whole_schema.ts";
import { define, mismatch } from "./schema_core.ts";

/** Each is a record, empty where nothing is configured; header names in the case in which they are written. */
export type ConditionsConfig = s.Infer<typeof CONDITIONS>;

const TRUE: s.Schema<true, true> = define({
  expects: "true",
  kinds: ["boolean"],
  check: (node, at, context) =>
    node.value ? true : mismatch(TRUE, node, at, context, "write null if it must be absent"),
  jsonSchema: () => ({ const: true }),
});

/** An exact text, a pattern, null: absent, true: present with any value; or that one of these does not hold. */
function condition(hint: string, fits: (text: string) => boolean, alphabet?: string) {
  return orNot(
    s.anyOf([
      s.string({ hint, check: (text) => (fits(text) ? undefined : ""), secret: masked, references: "none" }),
      matches(alphabet, "none"),
      NULL,
      TRUE,
    ]),
  );
}

type OrNot<S extends s.AnySchema> = s.Schema<
  s.Infer<S> | { readonly not: s.Infer<S> },
  s.InputOf<S> | { readonly not: s.InputOf<S> }
>;

/** The schema, or `{ "not": … }` around it. It does not nest. */
function orNot<S extends s.AnySchema>(plain: S): OrNot<S> {
  const negated = s.object({ not: plain });
  const chosen = (node: JsonNode) =>
    node.kind === "object" && (node.members.has("not") || !plain.kinds.includes("object")) ? negated : plain;
  return define({
    expects: `${plain.expects} or {"not": condition}`,
    kinds: [...new Set([...plain.kinds, "object" as const])],
    secret: plain.secret === true,
    check: (node, at, context) => chosen(node).check(node, at, context),
    show: (node) => chosen(node).show(node),
    jsonSchema: (definitions) => ({ anyOf: [plain.jsonSchema(definitions), negated.jsonSchema(definitions)] }),
  }) as OrNot<S>;
}

/**
 * Messages repeat no value; where the configuration is displayed, those are masked whose names say that they are
 * secret.
 */
function masked(text: string, at: Path): string {
  const isNegated = at.at(-1) === "not" && !PLACES.includes(String(at.at(-2)));
  return isSecretName(String(at.at(isNegated ? -2 : -1))) ? maskLiterals(text) : text;
}

/** Below them names stand, of which one may be "not". */
const PLACES = ["headers", "query", "cookies"];

/** Parsers cut spaces off at both ends (RFC 9110 §5.5). */
const isHeaderText = (text: string) => FIELD_VALUE.test(text) && text === text.trim();
const OF_HEADERS = [...charactersUpTo(0xff)].filter((character) => FIELD_VALUE.test(character)).join("");

const HEADER = condition("a text that a header can carry, without spaces at its ends", isHeaderText, OF_HEADERS);
const COOKIE = condition(
  'a text that a cookie can carry, without ";" and without spaces at its ends',
  (text) => isHeaderText(text) && !text.includes(";"),
  OF_HEADERS.replace(";", ""),
);
const PARAMETER = condition("a text", () => true);

export const CONDITIONS = s.object(
  {
    headers: s.withDefault(
      byHeader(
        HEADER,
        'By name: the exact value, a pattern, true: present, null: absent; {"not": …}: none of these.',
        headerProblem,
      ),
      {},
    ),
    query: s.withDefault(
      byName(PARAMETER, "The same for parameters of the query, percent-decoded.", parameterProblem),
      {},
    ),
    cookies: s.withDefault(byName(COOKIE, "The same for cookies.", cookieProblem), {}),
    scheme: s.optional(orNot(s.oneOf(["http", "https"], { describe: "The scheme by which the client has asked." }))),
  },
  {
    describe: "Conditions that a request has to fulfil, all of them; at least one.",
    refine({ headers, query, cookies, scheme }, report) {
      if (scheme === undefined && [headers, query, cookies].every((names) => Object.keys(names).length === 0)) {
        report('needs at least one condition, such as "headers": { "X-Version": "2" }');
      }
    },
  },
);

/**
 * Some headers are never seen by the conditions, see `isDropped` in `server/request_head.ts` and `receiveHead` in
 * `server/inbound.ts`.
 */
function headerProblem(name: string, context: s.CheckContext): string | undefined {
  const lower = name.toLowerCase();
  if (lower === "host") return 'cannot be a condition: write the host into the "hosts" of the service';
  if (lower === "cookie") return 'contains all cookies in one line: write each of them under "cookies"';
  const proxies = context.root && nodeAt(context.root, ["global", "trusted_proxies"]);
  if (FORWARDING.includes(lower) && !(proxies?.kind === "array" && proxies.items.length > 0)) {
    return (
      'cannot be a condition: it counts only from proxies that "trusted_proxies" of "global" ' +
      "names, and there are none"
    );
  }
  const read = lower.replaceAll("_", "-");
  if (HOP_BY_HOP.some((each) => each === read))
    return "cannot be a condition: it concerns one connection only, not the request";
  if (REMOVED.test(read)) return "cannot be a condition: the gateway removes this header from every request";
  if (read === lower) return undefined;
  if (RESERVED.test(read))
    return 'cannot be a condition: the gateway removes this header from every request; the one with "-" can be one';
  const problem = droppedProblem(lower, context);
  return problem && `cannot be a condition: ${problem}`;
}

const REMOVED = /^(?:proxy$|x-client-cert-)/;
const RESERVED = /^(?:content-length$|x-forwarded-|x-real-ip$|x-request-id$)/;

function cookieProblem(name: string): string | undefined {
  return TOKEN.test(name) ? undefined : 'has a key that is not the name of a cookie: write "name": "value"';
}

function parameterProblem(name: string): string | undefined {
  return name !== "" ? undefined : 'has an empty key: write "name": "value"';
}

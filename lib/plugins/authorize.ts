/**
 * The plugin kind `authorize`: admits requests for which all members of one of its rules hold. It identifies nobody: it
 * runs behind a plugin that does.
 */
import { boundedPattern } from "../base/linear_pattern.ts";
import { isMatches, MATCHES } from "../config/expected.ts";
import { METHOD } from "../config/fields.ts";
import {
  anyOf,
  array,
  boolean,
  INVALID,
  number,
  object,
  optional,
  record,
  report,
  string,
  type Infer,
} from "../config/whole_schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { quotedString } from "../http/headers.ts";
import { problem } from "../http/reply.ts";
import { claimReader, claimValues } from "./claims.ts";
import type { Plugin, Tools } from "./plugin.ts";
import { comparedTemplate, decodedParam, routeParams, type ComparedText } from "./template.ts";

const names = (describe: string) =>
  optional(array(string({ min: 1, max: 200, references: "none" }), { min: 1, describe }));

const CLAIM = anyOf([string({ min: 1 }), number(), boolean(), MATCHES]);
const TEXTS = record(comparedTemplate("The text that the parameter has to be, such as ${caller.id}."), {
  describe: "Parameters of the route's path, percent-decoded, each with the text that it has to be.",
});

const PARAMS: typeof TEXTS = {
  ...TEXTS,
  check(node, at, context) {
    const known = routeParams(at, context);
    const before = context.issues.length;
    for (const [name, value] of node.kind === "object" ? node.members : []) {
      if (known === null || known.includes(name)) continue;
      const there = known.map((each) => `{${each}}`).join(", ") || "none";
      report(
        context,
        [...at, name],
        value,
        `{${name}} is no placeholder of this route's path (it has ${there}): the rule would never hold`,
      );
    }
    return context.issues.length > before ? INVALID : TEXTS.check(node, at, context);
  },
};

const MEMBERS = {
  groups: names("Groups, in one of which the caller has to be."),
  callers: names("Identities, one of which has to be the caller's."),
  claims: optional(
    record(CLAIM, {
      describe:
        "Values that claims of the token have to be, or to contain if they are lists. " +
        "scope is read as a space-separated list.",
    }),
  ),
  methods: optional(
    array(METHOD, { min: 1, describe: "Methods, one of which the request has to have. GET implies HEAD." }),
  ),
  params: optional(PARAMS),
};

const RULE = object(MEMBERS, {
  describe: "Members that have to hold, all of them.",
  refine(rule, complain) {
    const isEmpty = Object.values(rule).every(
      (member) => typeof member === "object" && Object.keys(member).length === 0,
    );
    if (isEmpty)
      complain(`needs at least one of ${Object.keys(MEMBERS).join(", ")}: without any it would admit everybody`);
  },
});

const schema = object(
  { rules: array(RULE, { min: 1, describe: "Rules, one of which has to hold." }) },
  { describe: "Requires that the caller is in a group, has a claim, or the like." },
);

type Rule = Infer<typeof RULE>;
type Holds = (exchange: Exchange) => boolean;

export const authorize: Plugin<typeof schema> = {
  name: "authorize",
  schema,
  guards: true,
  create({ rules }, { gatewayName, groupsOf }) {
    const tests = rules.map((rule) => ruleTest(rule, groupsOf));
    const why =
      rules.length === 1 ? "authorize: its rule does not hold" : `authorize: none of ${rules.length} rules holds`;
    const rule = rules.length === 1 ? "rules[0]" : "rules";
    const refused = { detail: "No rule admits this caller to this request.", why, rule };
    // RFC 9110 §15.5.2 requires a challenge; which scheme another plugin would take is not known here.
    const unknown = {
      detail: "Only known callers are admitted here.",
      rule,
      headers: ["WWW-Authenticate", `Bearer realm=${quotedString(gatewayName)}`],
    };
    return (next) => (exchange) => {
      for (const holds of tests) if (holds(exchange)) return next(exchange);
      const { call, identity, claims } = exchange;
      const isKnown = identity !== null || claims !== null || call.personal;
      return isKnown ? problem(call, "forbidden", refused) : problem(call, "identity_required", unknown);
    };
  },
};

/** The cheapest members first. */
function ruleTest({ methods, callers, groups, params = {}, claims = {} }: Rule, groupsOf: Tools["groupsOf"]): Holds {
  const tests: Holds[] = [];
  if (methods !== undefined)
    tests.push(({ method }) => methods.includes(method) || (method === "HEAD" && methods.includes("GET")));
  if (callers !== undefined) {
    const ids = new Set(callers);
    tests.push(({ identity }) => identity !== null && ids.has(identity));
  }
  if (groups !== undefined) {
    const known = new Set(groups);
    tests.push((exchange) => groupsOf(exchange).some((group) => known.has(group)));
  }
  for (const [name, text] of Object.entries(params)) tests.push(paramTest(name, text));
  for (const [name, wanted] of Object.entries(claims)) tests.push(claimTest(name, wanted));
  return (exchange) => {
    for (const holds of tests) if (!holds(exchange)) return false;
    return true;
  };
}

/** A placeholder without a value, such as the id of nobody, is no text. */
function paramTest(name: string, { read }: ComparedText): Holds {
  return (exchange) => {
    const { params } = exchange;
    const text = Object.hasOwn(params, name) ? read(exchange) : null;
    return text !== null && decodedParam(params[name]!) === text;
  };
}

function claimTest(name: string, wanted: Infer<typeof CLAIM>): Holds {
  const read = claimReader(name);
  const pattern = isMatches(wanted) ? boundedPattern(wanted.matches) : null;
  const fits =
    pattern === null
      ? (value: unknown) => value === wanted
      : (value: unknown) => typeof value === "string" && pattern.test(value);
  return ({ claims }) => {
    if (claims === null) return false;
    pattern?.begin();
    return claimValues(read(claims), name).some(fits);
  };
}

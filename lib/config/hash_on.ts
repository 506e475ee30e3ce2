/**
 * The schema of `hash_on`: the part of a request that decides which upstream, or which group, gets it.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { suggest } from "../base/suggest.ts";
import * as s from "./schema.ts";

/** What can stand alone, and what has a name behind it. */
const ALONE = ["client_ip", "credential"];
const NAMED: { readonly [kind: string]: string } = { header: "X-Tenant", cookie: "session", param: "user_id" };

export const HASH_ON = s.string({
  hint: '"client_ip", "credential", "header:<name>", "cookie:<name>" or "param:<name>"',
  describe: "Part of a request: equal ones go to the same upstream. By address (IPv6 by /64), identity, header, cookie or path parameter.",
  check(text) {
    if (ALONE.includes(text)) return undefined;
    const colon = text.indexOf(":");
    const [kind, name] = colon < 0 ? [text, ""] : [text.slice(0, colon), text.slice(colon + 1)];
    const example = NAMED[kind];
    if (example === undefined) {
      const nearest = suggest(kind, [...ALONE, ...Object.keys(NAMED)]);
      return nearest === undefined ? "" : `did you mean "${nearest}${nearest in NAMED && name !== "" ? `:${name}` : ""}"?`;
    }
    if (name === "") return `write a name behind it, as in "${kind}:${example}"`;
    if (kind === "param") return PARAMETER.test(name) ? undefined : `write the placeholder's name alone, as in "param:${example}"`;
    return TOKEN.test(name) ? undefined : `"${name}" cannot be the name of a ${kind}`;
  },
});

/** As in patterns, without the braces. */
const PARAMETER = /^[A-Za-z_]\w*$/;

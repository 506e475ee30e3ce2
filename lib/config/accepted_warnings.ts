/**
 * The warnings about configurations that an operator can accept, and the field that does so. Each entry accepts one.
 */
import { suggest } from "../base/suggest.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const ACCEPTABLE_WARNINGS = [
  "route_unreachable",
  "guard_bypassed",
  "cache_outside_guard",
  "limit_before_identity",
  "authorize_before_identity",
  "mcp_before_identity",
  "token_before_identity",
  "session_cookie_shared",
  "group_unknown",
  "token_for_anyone",
  "guard_fails_open",
  "plain_http_secret",
  "proxy_header_optional",
  "placeholder_secret",
  "limit_by_any_header",
  "redirect_loop",
  "caller_unused",
  "retries_unused",
  "errors_unused",
  "names_mixed",
] as const;

export type AcceptableWarning = (typeof ACCEPTABLE_WARNINGS)[number];

export const ACCEPTED_WARNING = s.string({
  references: "none",
  hint: 'a code and a path, like "route_unreachable:services.shop.routes.items"',
  check(text) {
    const [code = "", path] = text.split(/:(.*)/s);
    if (!(ACCEPTABLE_WARNINGS as readonly string[]).includes(code)) {
      const meant = suggest(code, ACCEPTABLE_WARNINGS);
      return meant === undefined ? `the codes are ${ACCEPTABLE_WARNINGS.join(", ")}` : `did you mean "${meant}"?`;
    }
    return path === undefined || path === ""
      ? `add what the warning is about: "${code}:services.NAME.routes.NAME"`
      : undefined;
  },
});

export const fields: FeatureFields = { schemas: { accepted_warning: ACCEPTED_WARNING } };

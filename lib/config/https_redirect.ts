/**
 * The schema of `global.https_redirect`.
 */
import { boundedInteger } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const HTTPS_REDIRECT = s.object(
  {
    status: s.withDefault(
      s.oneOf([301, 302, 307, 308], { describe: "Status; with 307 and 308 clients keep method and body." }),
      308,
    ),
    port: boundedInteger(1, 65_535, 443, "The port of HTTPS as clients reach it."),
  },
  { describe: "Redirects requests over plain HTTP to HTTPS, before a route is looked up." },
);

export const fields: FeatureFields = { schemas: { https_redirect: HTTPS_REDIRECT } };

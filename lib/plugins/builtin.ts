/**
 * The built-in plugin kinds.
 */
import { acl } from "./acl.ts";
import { authorize } from "./authorize.ts";
import { basicAuth } from "./basic_auth.ts";
import { botProtection } from "./bot_protection.ts";
import { concurrency } from "./concurrency.ts";
import { compress } from "./compress.ts";
import { cors } from "./cors.ts";
import { fault } from "./fault.ts";
import { forwardAuth } from "./forward_auth.ts";
import { httpLog } from "./http_log.ts";
import { identityToken } from "./identity_token.ts";
import { introspection } from "./introspection.ts";
import { jsonBody } from "./json_body/json_body.ts";
import { jwt } from "./jwt.ts";
import { keyAuth } from "./key_auth.ts";
import { mcp } from "./mcp/mcp.ts";
import { mirror } from "./mirror.ts";
import { mtls } from "./mtls.ts";
import { oidc } from "./oidc.ts";
import type { AnyPlugin } from "./plugin.ts";
import { quota } from "./quota.ts";
import { rateLimit } from "./rate_limit.ts";
import { redirect } from "./redirect.ts";
import { requestHeaders } from "./request_headers.ts";
import { requestSizeLimit } from "./request_size_limit.ts";
import { requestTermination } from "./request_termination.ts";
import { requestValidation } from "./request_validation.ts";
import { responseCache } from "./cache/response_cache.ts";
import { responseHeaders } from "./response_headers.ts";

/** By their names, in the order in which messages list them. */
export const BUILTIN = {
  key_auth: keyAuth,
  rate_limit: rateLimit,
  mtls,
  jwt,
  introspection,
  oidc,
  identity_token: identityToken,
  forward_auth: forwardAuth,
  http_log: httpLog,
  basic_auth: basicAuth,
  acl,
  bot_protection: botProtection,
  cors,
  request_size_limit: requestSizeLimit,
  request_termination: requestTermination,
  request_headers: requestHeaders,
  response_headers: responseHeaders,
  redirect,
  compress,
  response_cache: responseCache,
  request_validation: requestValidation,
  json_body: jsonBody,
  mirror,
  fault,
  concurrency,
  quota,
  authorize,
  mcp,
};

export const builtinPlugins: readonly AnyPlugin[] = Object.values(BUILTIN);

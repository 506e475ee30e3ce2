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
import { jwt } from "./jwt.ts";
import { keyAuth } from "./key_auth.ts";
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

export const builtinPlugins: readonly AnyPlugin[] = [
  keyAuth,
  rateLimit,
  mtls,
  jwt,
  introspection,
  oidc,
  identityToken,
  forwardAuth,
  httpLog,
  basicAuth,
  acl,
  botProtection,
  cors,
  requestSizeLimit,
  requestTermination,
  requestHeaders,
  responseHeaders,
  redirect,
  compress,
  responseCache,
  requestValidation,
  mirror,
  fault,
  concurrency,
  quota,
  authorize,
];

/**
 * The plugin kinds that every gateway knows. An embedder's own kinds are added by `gateway/`.
 */
import { forwardAuth } from "./forward_auth.ts";
import { httpLog } from "./http_log.ts";
import { jwt } from "./jwt.ts";
import { keyAuth } from "./key_auth.ts";
import { mtls } from "./mtls.ts";
import type { AnyPlugin } from "./plugin.ts";
import { rateLimit } from "./rate_limit.ts";

export const builtinPlugins: readonly AnyPlugin[] = [keyAuth, rateLimit, mtls, jwt, forwardAuth, httpLog];

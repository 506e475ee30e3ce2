/**
 * The plugin kinds that every gateway knows. An embedder's own kinds are added by `gateway/`.
 */
import { keyAuth } from "./key_auth.ts";
import { mtls } from "./mtls.ts";
import type { AnyPlugin } from "./plugin.ts";
import { rateLimit } from "./rate_limit.ts";

export const builtinPlugins: readonly AnyPlugin[] = [keyAuth, rateLimit, mtls];

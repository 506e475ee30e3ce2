/**
 * What only some requests of the admin interface need: how each is loaded.
 */
import type { OnRequest } from "../admin/endpoints.ts";

export const OF_ADMIN: OnRequest = {
  session: () => import("../admin/session.ts"),
  login: () => import("../admin/login.ts"),
  shown: () => import("../admin/shown_request.ts"),
  decision: () => import("../admin/decision_request.ts"),
  now: () => import("../admin/now.ts"),
  figures: () => import("../admin/figures_request.ts"),
  fleet: () => import("../admin/fleet_request.ts"),
  process: () => import("../admin/process_request.ts"),
  callers: () => import("../admin/caller_request.ts"),
  explain: () => import("../admin/explain_request.ts"),
  reload: () => import("../admin/reload_request.ts"),
  schema: () => import("../admin/schema_request.ts"),
  settings: () => import("../admin/settings_request.ts"),
  docs: () => import("../admin/docs_request.ts"),
  tail: () => import("../admin/tail_request.ts"),
  purge: () => import("../admin/purge_request.ts"),
  rollover: () => import("../admin/rollover_request.ts"),
  upstream: () => import("../admin/upstream_request.ts"),
};

/**
 * Opens the admin interface of a gateway.
 */
import type { OnRequest } from "../admin/endpoints.ts";
import { createAdmin, type Admin } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings.ts";
import type { Gateway } from "../embed/gateway.ts";
import type { LastReload } from "../gateway/gateway.ts";
import type { OperatorTls } from "../operator/operator_server.ts";
import { Failure } from "./failure.ts";
import { metricsOf, opened, refresh, type Opened } from "./operators.ts";

interface AdminParts {
  readonly gateway: Gateway;
  /** Null: there is no certificate. */
  readonly tls: OperatorTls | null;
  readonly onRequest: OnRequest;
  readonly reload: () => Promise<LastReload>;
  readonly log: Log;
}

/** Throws a `Failure`. */
export function openAdmin(admin: NonNullable<Settings["admin"]>, settings: Settings, { gateway, tls, onRequest, reload, log }: AdminParts): Opened<Admin> {
  try {
    const server = createAdmin({
      ...admin,
      tls: admin.tls ? tls : null,
      clock: systemClock,
      log,
      version,
      metricsToken: settings.metricsToken,
      paths: settings,
      onRequest,
      source: {
        config: (secrets) => (secrets === "shown" ? gateway.shownConfig : gateway.maskedConfig) as never,
        ready: () => gateway.ready,
        refresh: (extent) => refresh(gateway, extent),
        status: () => gateway.status,
        health: () => gateway.health,
        stats: (extent) => gateway.recentStats(extent),
        explain: (question, secrets) => gateway.explain(question, secrets),
        routePlugins: (service, route) => gateway.routePlugins(service, route),
        tests: () => gateway.lastTests,
        metrics: () => metricsOf(gateway),
        reload,
        dryRun: (text) => gateway.dryRun(text),
      },
    });
    return opened(server, admin, "ADMIN");
  } catch (error) {
    throw new Failure((error as Error).message, 2);
  }
}

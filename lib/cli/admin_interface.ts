/**
 * Opens the admin interface of a gateway.
 */
import { createAdmin, type Admin, type AdminOptions } from "../admin/server.ts";
import type * as WritingPart from "../admin/writing.ts";
import { systemClock } from "../base/clock.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings_types.ts";
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { OF_ADMIN } from "./admin_requests.ts";
import { Failure } from "./failure.ts";
import { metricsOf, opened, refresh, type Opened } from "./operators.ts";

/** `tls`: null: there is no certificate. */
interface AdminParts extends Pick<AdminOptions, "tls" | "reload" | "fleet" | "log"> {
  /** False: there is no STATE_DIR. */
  readonly kept: false | { readonly sessions: NonNullable<AdminOptions["keptSessions"]> };
  readonly users: NonNullable<AdminOptions["users"]> | null;
  readonly gateway: ReportedGateway;
  /** Null: nothing can be changed. */
  readonly writing: typeof WritingPart | null;
}

/** `followGateway`: see `Writing`. Throws a `Failure`. */
export function openAdmin(
  admin: NonNullable<Settings["admin"]>,
  settings: Settings,
  { gateway, tls, users, kept, fleet = null, writing, reload, log }: AdminParts,
): Opened<Admin> & { readonly followGateway: () => void } {
  try {
    const { redactSecrets } = admin;
    const { audit } = GatewayCore.internalsOf(gateway);
    const shared = { clock: systemClock, log, audit: audit?.sink ?? null };
    const tools = {
      ...shared,
      gateway,
      reload,
      refresh: (extent: "counts" | "all") => refresh(gateway, extent),
      onRequest: OF_ADMIN,
    };
    const changing = writing && new writing.Writing({ ...tools, settings, redactSecrets });
    const server = createAdmin({
      ...admin,
      ...tools,
      users,
      fleet,
      keptSessions: kept ? kept.sessions : null,
      tls: admin.tls ? tls : null,
      version,
      metricsToken: settings.metricsToken,
      paths: settings,
      writing: changing?.at ?? null,
      metrics: () => metricsOf(gateway),
    });
    const reporting = ReportedGateway.reportingOf(gateway);
    reporting.openHistory = async () => {
      const { FigureHistory } = await loadCode(OF_ADMIN.figures);
      return (reporting.history ??= new FigureHistory(GatewayCore.internalsOf(gateway)));
    };
    return { ...opened(server, admin, "ADMIN"), followGateway: () => changing?.followGateway() };
  } catch (error) {
    throw new Failure((error as Error).message, 2);
  }
}

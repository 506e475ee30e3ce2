/**
 * The schema of `service.proxy_protocol`.
 */
import type { FeatureFields, Report } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const UPSTREAM_PROXY_PROTOCOL = s.oneOf(["v1", "v2"], {
  describe: "Connections to upstreams begin with a header of this version of the PROXY protocol: whose they are.",
});

function checkService(
  { protocol, proxyProtocol }: { readonly protocol: string; readonly proxyProtocol?: string },
  report: Report,
): void {
  if (proxyProtocol !== undefined && protocol !== "http" && protocol !== "https")
    report(
      `is for protocol "http" and "https", whose connections serve one request at a time; ` +
        `this service has "${protocol}"`,
      "proxy_protocol",
    );
}

export const fields: FeatureFields = { schemas: { proxy_protocol: UPSTREAM_PROXY_PROTOCOL }, checkService };

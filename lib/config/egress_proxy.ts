/**
 * The schema of `global.egress_proxy`.
 */
import { isRange } from "../base/egress_proxy.ts";
import { parseCidr } from "../base/cidr.ts";
import { certificatesProblem } from "../base/pem.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { flag, hostProblem } from "./fields.ts";
import { serverUrl } from "./server_url.ts";
import * as s from "./whole_schema.ts";

const PROXY_URL = serverUrl({
  schemes: ["http", "https"],
  ports: [80, 443],
  describe: "http://user:password@host:port of the proxy; https:// for TLS to it.",
  complete(url, path) {
    if (path !== "/") return "has a path: write the URL of the proxy without one";
    // RFC 7617 §2: the colon ends the user.
    return url.user?.includes(":") === true ? "has a user with a colon, which Basic authentication cannot carry" : url;
  },
});

const EXEMPT = s.string({
  references: "none",
  hint: 'an address, a range such as 10.0.0.0/8, a host name, or ".internal" for all names below it',
  describe: "A host, a domain with a dot before it, an address, or a range of addresses.",
  check(text) {
    if (isRange(text)) {
      const block = parseCidr(text);
      return typeof block === "string" ? block : undefined;
    }
    if (text.startsWith("*.")) return `write "${text.slice(1)}" for all names below it`;
    return hostProblem(text.startsWith(".") ? text.slice(1) : text);
  },
});

export const EGRESS_PROXY = s.object(
  {
    url: PROXY_URL,
    except: s.withDefault(s.array(EXEMPT, { describe: "What is connected to directly." }), []),
    tls: s.optional(
      s.object(
        {
          ca: s.optional(
            s.file({
              describe: "CA certificates that sign the proxy's certificate, a PEM file; default: the system's.",
              check: certificatesProblem,
            }),
          ),
        },
        { describe: "TLS settings for a proxy with an https:// URL." },
      ),
    ),
    all: flag("Whether Redis is reached through it as well.", false),
  },
  {
    describe: "An HTTP proxy through which the gateway reaches upstreams and all that plugins and traces ask.",
    refine({ url, tls }, report) {
      if (tls !== undefined && !url.secure) report("applies to https:// URLs; this one starts with http://", "tls");
    },
  },
);

export const fields: FeatureFields = { schemas: { egress_proxy: EGRESS_PROXY } };

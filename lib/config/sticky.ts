/**
 * The schema of `sticky`: cookies that lead clients back to their upstream.
 */
import { TOKEN } from "../base/http_grammar.ts";
import { boundedInteger } from "./fields.ts";
import type { Path } from "./json.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./schema.ts";

export const STICKY = s.object(
  {
    cookie: s.withDefault(
      s.string({
        references: "none",
        max: 200,
        hint: "the name of a cookie",
        describe: "Name of the cookie.",
        check(text) {
          if (!TOKEN.test(text)) return "";
          return /^__Host-/i.test(text)
            ? "browsers refuse it with the path of a service; leave __Host- out"
            : undefined;
        },
      }),
      "route",
    ),
    ttl_s: boundedInteger(
      0,
      31_536_000,
      0,
      "How long a client stays with its upstream, in seconds; 0: until its browser is closed.",
    ),
    secret: s.optional(
      s.string({
        min: 32,
        max: 1000,
        secret: true,
        describe: "Signs the cookies; default: random, for as long as the gateway runs.",
      }),
    ),
  },
  { describe: "A cookie leads each client back to the upstream that answered it." },
);

interface Cookied {
  readonly name: string;
  readonly basePath: string;
  readonly hosts: readonly string[];
  readonly sticky?: { readonly cookie: string };
}

/** Reports services whose cookies a browser would take for one: each would replace the other's. */
function checkCookies(services: readonly Cookied[], report: (message: string, ...under: Path) => void): void {
  services.forEach(({ basePath, hosts, sticky }, i) => {
    if (sticky === undefined) return;
    const isSame = (other: Cookied) =>
      other.sticky?.cookie === sticky.cookie &&
      other.basePath === basePath &&
      (hosts.length === 0 ? other.hosts.length === 0 : hosts.some((host) => other.hosts.includes(host)));
    const first = services.slice(0, i).find(isSame);
    if (first === undefined) return;
    report(
      `replaces the cookie of service "${first.name}", which has the same name and base_path: set another "cookie"`,
      "services",
      i,
      "sticky",
    );
  });
}

export const fields: FeatureFields = { schemas: { sticky: STICKY }, checkServices: checkCookies };

/**
 * The schema of `health`: health checks and ejection.
 */
import { isIP } from "node:net";
import { isForeignName } from "../base/ip_address.ts";
import { flag, boundedInteger, milliseconds, NO_HEALTH } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./whole_schema.ts";

const STATUS = s.integer({ min: 100, max: 599, describe: "An HTTP status." });
/** Statuses below 400 are not failures. */
export const FAILURE_STATUS = s.integer({ min: 400, max: 599, describe: "An HTTP status of 400 or above." });

const STATUS_RANGE = s.string({
  references: "none",
  hint: 'statuses such as "200-399" or "204"',
  check(text) {
    const found = /^([1-5]\d\d)(?:-([1-5]\d\d))?$/.exec(text);
    if (found === null) return "";
    return Number(found[1]) > Number(found[2] ?? found[1]) ? "write the lower status first" : undefined;
  },
});

const { passive: PASSIVE_DEFAULTS } = NO_HEALTH;

const PASSIVE = s.object(
  {
    max_failures: boundedInteger(
      0,
      10_000,
      PASSIVE_DEFAULTS.max_failures,
      "Failed requests within window_ms that eject an upstream; 0: none do.",
    ),
    window_ms: milliseconds(1, PASSIVE_DEFAULTS.window_ms, "Time within which they count"),
    eject_ms: milliseconds(
      1,
      PASSIVE_DEFAULTS.eject_ms,
      "How long it gets no requests; doubles while it repeats, to ten times",
    ),
    statuses: s.withDefault(
      s.array(FAILURE_STATUS, { describe: "Statuses of responses that count as failures." }),
      PASSIVE_DEFAULTS.statuses,
    ),
    slow_start_ms: milliseconds(
      0,
      PASSIVE_DEFAULTS.slow_start_ms,
      "After its return: time from a tenth of its share to the whole; 0: at once",
    ),
  },
  { describe: "Judges upstreams by their responses to client requests." },
);

const PROBE_PATH = s.string({
  references: "none",
  hint: 'a path that starts with "/"',
  describe: "The path that probes request with GET.",
  check: (text) => (/^\/[\x21-\x7e]*$/.test(text) ? undefined : ""),
});

const STATUSES = s.array(s.anyOf([STATUS, STATUS_RANGE]), { min: 1 });
const EXPECTED = s.anyOf([STATUS_RANGE, STATUSES], { describe: "Statuses with which a probe passes." });

const ADDRESSES = s.oneOf(["each", "one"], {
  describe: "Whether each address of a host name is an upstream of its own, or all of them are one.",
});

export const HEALTH = s.object(
  {
    enabled: flag("Whether upstreams are probed.", NO_HEALTH.enabled),
    path: s.withDefault(PROBE_PATH, NO_HEALTH.path),
    interval_ms: milliseconds(100, NO_HEALTH.interval_ms, "Time from probe to probe"),
    timeout_ms: milliseconds(1, NO_HEALTH.timeout_ms, "Longest wait for the head of the response, connecting included"),
    healthy_threshold: boundedInteger(
      1,
      1000,
      NO_HEALTH.healthy_threshold,
      "Probes in a row that have to pass for healthy.",
    ),
    unhealthy_threshold: boundedInteger(
      1,
      1000,
      NO_HEALTH.unhealthy_threshold,
      "Probes in a row that have to fail for unhealthy.",
    ),
    expect_status: s.withDefault(EXPECTED, NO_HEALTH.expect_status),
    request_headers: s.optional(
      s.boolean({ describe: 'Whether probes have the "request_headers" of their upstream.' }),
    ),
    addresses: s.withDefault(ADDRESSES, NO_HEALTH.addresses),
    passive: s.withDefault(PASSIVE, {}),
  },
  { describe: "Which upstreams are healthy enough to get requests." },
);

interface WithNames {
  readonly upstreams: readonly { readonly id: string; readonly host?: string; readonly port?: number }[];
  readonly health: { readonly addresses: "each" | "one" };
}

export const fields: FeatureFields = {
  schemas: { health: HEALTH },
  checkService({ upstreams, health }: WithNames, report) {
    if (health.addresses === "one") return;
    upstreams.forEach(({ id }, i) => {
      const [, owner, address = "", port] = /^(.+)\/\[?([^[\]/]+?)\]?:(\d+)$/.exec(id) ?? [];
      const isOf = upstreams.some(
        (each) => each.id === owner && each.port === Number(port) && isForeignName(each.host ?? "localhost"),
      );
      if (isOf && isIP(address) !== 0)
        report(`is what an address of the upstream "${owner}" is called: choose another`, "upstreams", i, "id");
    });
  },
};

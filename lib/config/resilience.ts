/**
 * What a service says of upstreams that fail: health checks, ejection, circuit breaker and retries, with their defaults. What is
 * done about it is `upstream/`.
 */
import * as s from "./schema.ts";

const STATUS = s.integer({ min: 100, max: 599, describe: "An HTTP status." });
/** Passed on as ordinary answers otherwise: nothing below 400 is a failure. */
const FAILURE_STATUS = s.integer({ min: 400, max: 599, describe: "An HTTP status of 400 or above." });

const STATUS_RANGE = s.string({
  hint: 'statuses such as "200-399" or "204"',
  check(text) {
    const found = /^([1-5]\d\d)(?:-([1-5]\d\d))?$/.exec(text);
    if (found === null) return "";
    return Number(found[1]) > Number(found[2] ?? found[1]) ? "the lower one stands first" : undefined;
  },
});

export interface StatusRange {
  readonly from: number;
  readonly to: number;
}

/** The ranges that an `expect_status` names. */
export function statusRanges(expected: string | readonly (string | number)[]): readonly StatusRange[] {
  const list = typeof expected === "string" ? [expected] : expected;
  return list.map((item) => {
    const [from, to] = String(item).split("-").map(Number);
    return { from: from!, to: to ?? from! };
  });
}

const milliseconds = (min: number, describe: string) => s.integer({ min, max: 86_400_000, describe: `${describe}, in milliseconds.` });

const PASSIVE = s.object(
  {
    max_failures: s.withDefault(s.integer({ min: 0, max: 10_000, describe: "Failed requests within window_ms that eject an upstream; 0: none do." }), 5),
    window_ms: s.withDefault(milliseconds(1, "Time within which they count"), 10_000),
    eject_ms: s.withDefault(milliseconds(1, "How long it gets no requests; doubles while it repeats, to ten times"), 10_000),
    statuses: s.withDefault(s.array(FAILURE_STATUS, { describe: "Statuses of responses that count as failures." }), []),
    slow_start_ms: s.withDefault(milliseconds(0, "After its return: time from a tenth of its share to the whole; 0: at once"), 0),
  },
  { describe: "Judges upstreams by how they answer clients." },
);

export const HEALTH = s.object(
  {
    enabled: s.withDefault(s.boolean({ describe: "Whether upstreams are probed." }), false),
    path: s.withDefault(
      s.string({
        hint: 'a path that starts with "/"',
        describe: "What probes ask for, with GET.",
        check: (text) => (/^\/[\x21-\x7e]*$/.test(text) ? undefined : ""),
      }),
      "/",
    ),
    interval_ms: s.withDefault(milliseconds(100, "Time from probe to probe"), 5000),
    timeout_ms: s.withDefault(milliseconds(1, "Longest wait for the head of the response, connecting included"), 2000),
    healthy_threshold: s.withDefault(s.integer({ min: 1, max: 1000, describe: "Probes in a row that have to pass for healthy." }), 2),
    unhealthy_threshold: s.withDefault(s.integer({ min: 1, max: 1000, describe: "Probes in a row that have to fail for unhealthy." }), 3),
    expect_status: s.withDefault(
      s.anyOf([STATUS_RANGE, s.array(s.anyOf([STATUS, STATUS_RANGE]), { min: 1 })], {
        describe: "Statuses with which a probe passes.",
      }),
      "200-399",
    ),
    passive: s.withDefault(PASSIVE, {}),
  },
  { describe: "Which upstreams are well enough to get requests." },
);

export const CIRCUIT_BREAKER = s.object(
  {
    error_ratio: s.withDefault(s.number({ min: 0.01, max: 1, describe: "Share of failed requests that opens the circuit." }), 0.5),
    min_requests: s.withDefault(s.integer({ min: 1, max: 1_000_000, describe: "Fewer requests within window_ms say nothing." }), 20),
    window_ms: s.withDefault(milliseconds(10, "Time within which they count"), 10_000),
    open_ms: s.withDefault(milliseconds(1, "How long requests are refused before probes are let through"), 10_000),
    probes: s.withDefault(s.integer({ min: 1, max: 1000, describe: "Requests that are let through then, all of which have to pass." }), 1),
  },
  { describe: "Refuses requests at once while too many of them fail; off unless given." },
);

export const RETRIES = s.object(
  {
    attempts: s.withDefault(s.integer({ min: 0, max: 10, describe: "Tries beyond the first, each on another upstream." }), 2),
    on: s.withDefault(
      s.array(s.anyOf([s.oneOf(["connect", "reset", "timeout"]), FAILURE_STATUS]), {
        min: 1,
        describe: "What is tried again.",
      }),
      ["connect", "reset", "timeout"],
    ),
    per_try_ms: s.withDefault(milliseconds(0, "Longest time for one try up to the head of its response; 0: no limit"), 0),
    budget_ratio: s.withDefault(s.number({ min: 0, max: 1, describe: "Retries are no more than this share of the requests." }), 0.2),
    max_replay_bytes: s.withDefault(s.integer({ min: 0, max: 16_777_216, describe: "Longest body that is kept to be sent again." }), 65_536),
  },
  { describe: "Sends failed requests to another upstream; off unless given." },
);

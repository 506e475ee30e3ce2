/**
 * The schema of `retries`.
 */
import { METHODS } from "node:http";
import { IDEMPOTENT } from "../base/http_grammar.ts";
import { boundedInteger, METHOD, milliseconds, share } from "./fields.ts";
import { FAILURE_STATUS } from "./health.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./whole_schema.ts";

const RETRIED = s.array(s.anyOf([s.oneOf(["connect", "reset", "timeout"]), FAILURE_STATUS]), {
  min: 1,
  describe: "Failures that are retried.",
});

/** Of which a Node may not know the latest. */
const REPEATABLE = [...IDEMPOTENT].filter((method) => METHODS.includes(method));

export const RETRIES = s.object(
  {
    attempts: boundedInteger(
      0,
      10,
      2,
      "Tries beyond the first, each on another upstream; 0: none, not even if the connection is refused.",
    ),
    on: s.withDefault(RETRIED, ["connect", "reset", "timeout"]),
    methods: s.withDefault(
      s.array(METHOD, { min: 1, describe: "Methods that are sent again after a reset, a timeout or a status." }),
      REPEATABLE,
    ),
    per_try_ms: milliseconds(0, 0, "Longest time for one try up to the head of its response; 0: no limit"),
    budget_ratio: share(0, 0.2, "Retries are no more than this share of the requests."),
    max_replay_bytes: boundedInteger(0, 16_777_216, 65_536, "Longest body that is kept to be sent again."),
  },
  {
    describe:
      "Sends failed requests to another upstream; unless given, only if no connection could be opened, " +
      "at once and to each upstream once.",
  },
);

export const fields: FeatureFields = { schemas: { retries: RETRIES } };

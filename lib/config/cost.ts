/**
 * The schema of `cost`: where the cost of a request is found in its reply.
 */
import { TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { MAX_LIMIT } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { integer, object, optional, string, withDefault } from "./schema.ts";

export const COST = object(
  {
    response_header: optional(
      string({
        references: "none",
        pattern: new RegExp(`^[${TOKEN_CHARACTERS}]{1,256}$`),
        hint: "the name of a header",
        describe: "A header of the reply whose value is the cost.",
      }),
    ),
    response_json: optional(
      string({
        references: "none",
        pattern: /^(?=.{1,256}$)[^."\\]+(?:\.[^."\\]+){0,15}$/,
        hint: 'names of members, separated by dots, such as "usage.total_tokens"',
        describe: "The member of a JSON reply that is the cost; of an event stream, or of JSON lines, the last one.",
      }),
    ),
    default: withDefault(
      integer({ min: 0, max: MAX_LIMIT, describe: "The cost of a request whose reply has none, or no valid one." }),
      1,
    ),
    failed: optional(
      integer({
        min: 0,
        max: MAX_LIMIT,
        describe: "The cost of a request whose reply is an error: a status from 400 on. Default: as other replies.",
      }),
    ),
    reserve: withDefault(
      integer({
        min: 0,
        max: MAX_LIMIT,
        describe: "What a request holds of the limit until its reply ends, and costs at least if its client leaves.",
      }),
      0,
    ),
  },
  {
    describe: "Counts costs that replies state instead of requests.",
    refine({ responseHeader, responseJson }, report) {
      if ((responseHeader === undefined) === (responseJson === undefined))
        report('needs "response_header" or "response_json", and not both');
    },
  },
);

export const fields: FeatureFields = { schemas: { cost: COST } };

/** A cost, rounded up, and at most the largest one that is counted; null for what is none. */
export function costOf(text: string): number | null {
  const value = /^\s*\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$/.test(text) ? Number(text) : NaN;
  return value >= 0 ? Math.ceil(Math.min(value, MAX_LIMIT)) : null;
}

/**
 * `limits_by_group`: limits for callers of some groups, in place of those for all others.
 */
import { MAX_LIMIT, NO_WINDOW, WINDOW_FIELDS } from "./fields.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./whole_schema.ts";

/** Limits of type `T` by group, in the order of the configuration. */
export type GroupLimits<T> = readonly { readonly group: string; readonly limits: T }[];

/** The schema of limits by group. `limits`: those of one group. */
export function byGroup<S extends s.AnySchema>(
  limits: S,
  describe: string,
): s.Schema<GroupLimits<s.Infer<S>>, Readonly<Record<string, s.InputOf<S>>>> {
  const values = s.record(limits, { describe });
  return {
    ...values,
    check(node, at, context) {
      const names = node.kind === "object" ? [...node.members.keys()] : [];
      const before = context.issues.length;
      if (node.kind === "object" && names.length === 0) s.report(context, at, node, "expected at least one group");
      const number = names.length > 1 ? names.find((name) => WHOLE_NUMBER.test(name)) : undefined;
      if (number !== undefined)
        s.report(
          context,
          at,
          node,
          `has a group "${number}": JSON does not keep the order of such names, and the first group counts`,
        );
      const checked = values.check(node, at, context);
      if (checked === s.INVALID || context.issues.length > before) return s.INVALID;
      return names.map((group) => ({ group, limits: checked[group]! }));
    },
  };
}

const WHOLE_NUMBER = /^(?:0|[1-9]\d*)$/;

const WINDOWS = s.object(WINDOW_FIELDS, {
  describe: "Limits of a group.",
  refine(value, complain) {
    if (Object.keys(value).length === 0) complain(NO_WINDOW);
  },
});

export const RATE_LIMITS_BY_GROUP = byGroup(
  WINDOWS,
  "Limits for callers of a group, in place of the others: by group, the first that a caller has.",
);

const QUOTA_LIMIT = s.integer({
  min: 1,
  max: MAX_LIMIT,
  describe: "Allowed requests, or costs, of callers of the group.",
});
const QUOTA = s.object({ limit: QUOTA_LIMIT }, { describe: "The limit of a group." });

export const QUOTAS_BY_GROUP = byGroup(
  QUOTA,
  "Limits for callers of a group, in place of the other: by group, the first that a caller has.",
);

export const fields: FeatureFields = {
  schemas: { limits_by_group: RATE_LIMITS_BY_GROUP, quotas_by_group: QUOTAS_BY_GROUP },
};

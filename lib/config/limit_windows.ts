/**
 * The windows of a rate limit, as the fields of its configuration say.
 */
import type { WINDOW_FIELDS } from "./fields.ts";
import type { ObjectOut } from "./schema.ts";

export type WindowLimits = ObjectOut<typeof WINDOW_FIELDS>;

/** From the shortest to the longest; `ms`: how long each is. */
export function windowsOf({ limitSecond, limitMin, limitHour, limitDay }: WindowLimits) {
  const window = (name: string, limit: number | undefined, ms: number) =>
    limit === undefined ? [] : [{ name, limit, ms }];
  return [
    ...window("second", limitSecond, 1_000),
    ...window("minute", limitMin, 60_000),
    ...window("hour", limitHour, 3_600_000),
    ...window("day", limitDay, 86_400_000),
  ];
}

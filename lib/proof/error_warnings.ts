/**
 * Finds entries of `errors` that no error can reach, because entries before them take all of theirs.
 */
import { isDeepStrictEqual } from "node:util";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Config } from "../config/model.ts";
import type { Path } from "../config/json.ts";
import type { ErrorEntry, ValidConfig } from "../gateway/compile_types.ts";
import type { ConfigWarning } from "../gateway/status.ts";

type Written = NonNullable<Config["global"]["errors"]>;

export function ofErrors({ config: { global, services }, routing }: ValidConfig): readonly ConfigWarning[] {
  if (routing === null) return [];
  const inList = (list: Written = [], service: string | null, owner: Path) =>
    unusedIn(list, routing.errorEntries(list), service, owner);
  return [
    ...inList(global.errors, null, ["global"]),
    ...services.flatMap(({ name, errors }, i) => inList(errors, name, ["services", i])),
  ];
}

/** Entries of `global` come behind those of each service, and are for all services. */
function unusedIn(
  list: Written,
  entries: readonly ErrorEntry[],
  service: string | null,
  owner: Path,
): readonly ConfigWarning[] {
  const place = service === null ? "global" : `services.${service}`;
  const nameOf = (i: number) => `${place}.errors[${i}]`;
  return list.flatMap((entry, i): ConfigWarning[] => {
    const takers = takersOf(entry, entries[i]!, entries.slice(0, i));
    if (takers.length === 0) return [];
    return [
      {
        code: "errors_unused",
        path: nameOf(i),
        message:
          `${nameOf(i)} is never sent: ${takers.map(nameOf).join(", ")} before it ` +
          `${takers.length === 1 ? "takes" : "take"} all of its errors.`,
        example: null,
        remedy: "Remove the entry, or put it in front of those that take more errors.",
        service,
        route: null,
        at: [...owner, "errors", i],
      },
    ];
  });
}

/** The places of those that take its errors, each the first of an error; none: it gets some. */
function takersOf(
  { codes = [], statuses = [] }: Written[number],
  entry: ErrorEntry,
  earlier: readonly ErrorEntry[],
): readonly number[] {
  // A code may be a plugin's own, whose status is not known, and a status that of codes which nobody names.
  const named = [
    ...codes.map((code) => ({ code, status: Object.hasOwn(ERRORS, code) ? ERRORS[code as ErrorCode].status : NaN })),
    ...statuses.map((status) => ({ code: "", status })),
  ];
  const cases = entry.fits === null ? [{ code: "", status: NaN }] : named;
  const takers = cases.map((error) =>
    earlier.findIndex((each) => (each.fits === null || each.fits(error)) && takesRequests(each, entry)),
  );
  return takers.includes(-1) ? [] : [...new Set(takers)].sort((a, b) => a - b);
}

/** Whether the first takes every request that the other one may answer, by its method and by what it accepts. */
function takesRequests(first: ErrorEntry, other: ErrorEntry): boolean {
  const { methods } = first;
  if (methods !== null && (other.methods === null || ![...other.methods].every((method) => methods.has(method))))
    return false;
  return first.always || (!other.always && isDeepStrictEqual(first.type, other.type));
}

/**
 * Finds entries of `errors` that no error can reach, because entries before them take all of theirs.
 */
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { Config } from "../config/model.ts";
import type { Path } from "../config/json.ts";
import type { ConfigWarning } from "../gateway/status.ts";

type Entry = NonNullable<Config["global"]["errors"]>[number];

export function ofErrors({ global, services }: Pick<Config, "global" | "services">): readonly ConfigWarning[] {
  return [
    ...inList(global.errors, null, ["global"]),
    ...services.flatMap(({ name, errors }, i) => inList(errors, name, ["services", i])),
  ];
}

/** Entries of `global` come behind those of each service, and are for all services. */
function inList(list: readonly Entry[] = [], service: string | null, owner: Path): readonly ConfigWarning[] {
  const place = service === null ? "global" : `services.${service}`;
  const nameOf = (i: number) => `${place}.errors[${i}]`;
  return list.flatMap((entry, i): ConfigWarning[] => {
    const takers = takersOf(entry, list.slice(0, i));
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
function takersOf(entry: Entry, earlier: readonly Entry[]): readonly number[] {
  const { codes = [], statuses = [] } = entry;
  const errors = [...codes, ...statuses];
  // An entry without both is for every error.
  const cases: readonly (string | number | null)[] = errors.length === 0 ? [null] : errors;
  const takers = cases.map((error) => earlier.findIndex((each) => takes(each, error) && takesRequests(each, entry)));
  return takers.includes(-1) ? [] : [...new Set(takers)].sort((a, b) => a - b);
}

function takes({ codes, statuses }: Entry, error: string | number | null): boolean {
  if (codes === undefined && statuses === undefined) return true;
  if (typeof error === "number") return statuses?.includes(error) === true;
  if (error === null) return false;
  if (codes?.includes(error) === true) return true;
  return Object.hasOwn(ERRORS, error) && statuses?.includes(ERRORS[error as ErrorCode].status) === true;
}

/** Whether the first takes every request that the other one may answer, by its method and by what it accepts. */
function takesRequests(first: Entry, other: Entry): boolean {
  const { methods } = first;
  if (methods !== undefined && other.methods?.every((method) => hasMethod(methods, method)) !== true) return false;
  return first.always || (!other.always && typeOf(first) === typeOf(other));
}

/** GET implies HEAD. */
function hasMethod(methods: readonly string[], method: string): boolean {
  return methods.includes(method) || (method === "HEAD" && methods.includes("GET"));
}

/** As Accept is compared with it. */
function typeOf({ contentType }: Entry): string {
  return contentType
    .toLowerCase()
    .replace(/ ?; ?/g, ";")
    .replace(/;charset=[^;]*/g, "");
}

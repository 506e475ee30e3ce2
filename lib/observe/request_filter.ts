/**
 * Filters of requests that have ended: what a query asks for, and which of them fit. The list of remembered requests
 * and the live tail have the same.
 */

/** By the names of a query. `RequestFilter` says what each accepts. */
export const FILTER_FIELDS = [
  "status",
  "code",
  "service",
  "route",
  "upstream",
  "caller",
  "client",
  "method",
  "by",
  "path",
  "min_ms",
  "max_ms",
] as const;

export type FilterField = (typeof FILTER_FIELDS)[number];

/**
 * What is asked for; absent: all. `status`: "4xx", "404" or "none", several with commas, as of `code` and `method`;
 * `client`: an address, or its beginning with the last "." or ":"; `path`: its beginning if it begins with "/", else a
 * part of it; `min_ms`, `max_ms`: bounds, both included.
 */
export type RequestFilter = { readonly [Name in FilterField]?: string };

/** Of a request that has ended. A text whose last character is "…" is the beginning of a longer one. */
export interface FilteredFacts {
  readonly status: number | null;
  readonly code: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** All that were asked. */
  readonly upstreams: readonly (string | null)[];
  readonly caller: string | null;
  readonly client: string | null;
  readonly method: string | null;
  readonly by: string | null;
  readonly path: string | null;
  readonly ms: number;
}

const MAX_CHARACTERS = 1_024;
const MAX_MEMBERS = 50;

/** A sentence if it asks for something impossible. `others`: what the query may have besides. */
export function readRequestFilter(query: URLSearchParams, others: readonly string[] = []): RequestFilter | string {
  const filter: { [Name in FilterField]?: string } = {};
  for (const [name, value] of query) {
    const isField = (FILTER_FIELDS as readonly string[]).includes(name);
    if (!isField && !others.includes(name)) return `The query can have ${[...FILTER_FIELDS, ...others].join(", ")}.`;
    if (query.getAll(name).length > 1 || value.length > MAX_CHARACTERS)
      return `"${name}" must be there once, with at most ${MAX_CHARACTERS} characters.`;
    if (!isField) continue;
    const wrong = problemOf(name as FilterField, value);
    if (wrong !== null) return `"${name}" must be ${wrong}.`;
    filter[name as FilterField] = value;
  }
  const { min_ms: min, max_ms: max } = filter;
  if (min !== undefined && max !== undefined && Number(min) > Number(max))
    return '"min_ms" must not be above "max_ms".';
  return filter;
}

/** What the value of a field must be, if it is not; null: it is. */
function problemOf(name: FilterField, value: string): string | null {
  if (value === "") return "a text, or left out";
  if (LISTS.has(name) && value.split(",").length > MAX_MEMBERS) return `at most ${MAX_MEMBERS} values`;
  if (name === "status" && !STATUSES.test(value))
    return "a status (404), a class of statuses (4xx), or none, or several of them with commas";
  if ((name === "min_ms" || name === "max_ms") && !MILLISECONDS.test(value)) return "milliseconds, such as 250 or 0.5";
  return null;
}

const LISTS: ReadonlySet<FilterField> = new Set(["status", "code", "method"]);
const STATUSES = /^(?:[1-5](?:xx|\d\d)|none)(?:,(?:[1-5](?:xx|\d\d)|none))*$/;
const MILLISECONDS = /^\d{1,9}(?:\.\d{1,6})?$/;

/** A field and whether a request fits what is asked of it. */
export type FieldTest = readonly [FilterField, (facts: FilteredFacts) => boolean];

/** Those of a filter that `readRequestFilter` has accepted. */
export function fieldTests(filter: RequestFilter): readonly FieldTest[] {
  return FILTER_FIELDS.flatMap((field) => {
    const asked = filter[field];
    return asked === undefined ? [] : [[field, testOf(field, asked)] as const];
  });
}

export function isFitting(tests: readonly FieldTest[], facts: FilteredFacts): boolean {
  return tests.every(([, fits]) => fits(facts));
}

function testOf(field: FilterField, asked: string): FieldTest[1] {
  const members = asked.split(",");
  switch (field) {
    case "status":
      return ({ status }) => members.includes(String(status ?? "none")) || members.includes(statusClass(status));
    case "code":
    case "method":
      return ({ [field]: found }) => members.some((member) => isText(found, member));
    case "upstream":
      return ({ upstreams }) => upstreams.includes(asked);
    case "client":
      return ({ client }) => (/[.:]$/.test(asked) ? client?.startsWith(asked) === true : client === asked);
    case "path":
      return ({ path }) => (asked.startsWith("/") ? begins(path, asked) : path?.includes(asked) === true);
    case "min_ms":
      return ({ ms }) => ms >= Number(asked);
    case "max_ms":
      return ({ ms }) => ms <= Number(asked);
    default:
      return ({ [field]: found }) => isText(found, asked);
  }
}

/** "4xx", or "none": the client disconnected before a reply. */
export function statusClass(status: number | null): string {
  return status === null ? "none" : `${Math.floor(status / 100)}xx`;
}

function isText(found: string | null, asked: string): boolean {
  return found === asked || (found?.endsWith("…") === true && asked.startsWith(found.slice(0, -1)));
}

/** Of a path that is cut, what is left of it decides. */
function begins(path: string | null, asked: string): boolean {
  return path?.startsWith(asked) === true || (path?.endsWith("…") === true && asked.startsWith(path.slice(0, -1)));
}

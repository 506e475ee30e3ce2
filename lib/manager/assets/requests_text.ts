/**
 * What the page Requests works out: the filter in an address, choices among counted values, the bars of the histogram,
 * and the request as a command.
 */
import type { AccessLine, RequestList, RequestDecision } from "./api.ts";
import { number } from "./format.ts";
import { queryIn } from "./url_hash.ts";

/** Each filter, its label and an example; those after the first five are shown on demand. */
export const FILTERS = [
  ["status", "Status", "4xx,5xx, 404, none"],
  ["code", "Code", "rate_limited"],
  ["service", "Service", ""],
  ["route", "Route", ""],
  ["path", "Path begins with", "/items"],
  ["caller", "Caller", ""],
  ["upstream", "Upstream", ""],
  ["by", "Answered by", "key_auth, upstream"],
  ["client", "Client", "10.1.2.3, 10.1."],
  ["method", "Method", "POST"],
  ["min_ms", "Took at least, ms", "250"],
  ["max_ms", "Took at most, ms", ""],
  ["since", "Ended from", "2027-01-31T12:00:00Z"],
  ["until", "Ended before", "2027-01-31T12:30:00Z"],
] as const;

export type FilterName = (typeof FILTERS)[number][0];
export type Filter = Partial<Readonly<Record<FilterName, string>>>;

/** Of an address: what is blank asks for nothing. */
export function filterIn(hash: string): Filter {
  const query = queryIn(hash);
  const texts = FILTERS.map(([name]) => [name, query.get(name)?.trim() ?? ""]);
  return Object.fromEntries(texts.filter(([, text]) => text !== ""));
}

/** Several of them may be chosen, with commas. */
const LISTS: ReadonlySet<string> = new Set(["status", "code", "method"]);

function chosenIn(name: FilterName, text: string): readonly string[] {
  return LISTS.has(name) ? text.split(",").filter((each) => each !== "") : [text];
}

export function isChosen(name: FilterName, text: string, value: string): boolean {
  return chosenIn(name, text).includes(value);
}

/** The text of a filter when a value is chosen, or no longer: "4xx" and "5xx" become "4xx,5xx". */
export function toggled(name: FilterName, text: string, value: string): string {
  if (!LISTS.has(name)) return text === value ? "" : value;
  const chosen = chosenIn(name, text);
  return (chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value]).join(",");
}

/** A row of the list. */
export type ListedRequest = Pick<
  RequestDecision,
  "id" | "time" | "status" | "code" | "method" | "path" | "service" | "route" | "client" | "caller" | "ms"
>;

export function listedLine(line: AccessLine): ListedRequest {
  const { request_id: id, client_ip: client, duration_ms: ms, ...others } = line;
  return { ...others, id, client, ms };
}

export interface Bar {
  /** Its place from the left. */
  readonly place: number;
  readonly at: string;
  readonly count: number;
  readonly status: Readonly<Record<string, number>>;
  /** Heights of replies without a failure, 4xx, and 5xx or none, of 1 for the highest bar. */
  readonly parts: readonly [good: number, refused: number, failed: number];
}

/** The bars, and how many fit beside each other. */
export function barsOf({ histogram, since }: Pick<RequestList, "histogram" | "since">): {
  readonly bars: readonly Bar[];
  readonly places: number;
} {
  const { bars, step_s: stepS } = histogram;
  const last = bars.at(-1);
  if (last === undefined) return { bars: [], places: 0 };
  const placeOf = (at: string): number => Math.floor(Date.parse(at) / 1000 / stepS);
  const first = placeOf(since ?? bars[0]!.at);
  const most = Math.max(...bars.map(({ count }) => count));
  const made = bars.map(({ at, count, status }): Bar => {
    const refused = status["4xx"] ?? 0;
    const failed = (status["5xx"] ?? 0) + (status.none ?? 0);
    return {
      place: placeOf(at) - first,
      at,
      count,
      status,
      parts: [(count - refused - failed) / most, refused / most, failed / most],
    };
  });
  return { bars: made, places: placeOf(last.at) - first + 1 };
}

/** "12 4xx, 3 5xx, 1 without a reply" */
export function statusesText(status: Readonly<Record<string, number>>): string {
  const sorted = Object.entries(status).sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([name, count]) => `${number(count)} ${name === "none" ? "without a reply" : name}`).join(", ");
}

/** "10 s", "5 min", "2 h" */
export function stepText(seconds: number): string {
  if (seconds < 60) return `${number(seconds)} s`;
  return seconds < 3600 ? `${number(seconds / 60)} min` : `${number(seconds / 3600)} h`;
}

type Asked = Pick<RequestDecision, "method" | "host" | "path">;

/** "http://shop.example/items"; the scheme is not remembered. */
export function urlOf({ host, path }: Asked): string {
  return host === null ? (path ?? "/") : `http://${host}${path ?? "/"}`;
}

/** As a command for a shell, without query, headers and body, which are not remembered. */
export function curlOf(asked: Asked): string {
  const { method } = asked;
  const how = method === "HEAD" ? "-I" : method === null || method === "GET" ? "-i" : `-i -X ${quoted(method)}`;
  return `curl ${how} ${quoted(urlOf(asked))}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Where a plugin stands among those of a route, in the order in which they run; -1: it is not among them. */
export function placeOfAnswer(
  plugins: readonly { readonly level: string; readonly name: string; readonly id?: string | null }[],
  { by, plugin }: Pick<RequestDecision, "by" | "plugin">,
): number {
  if (plugin === null) return -1;
  const [level, which] = splitPlace(plugin);
  const ofLevel = plugins.filter((each) => each.level === level && each.name === by);
  const nth = ofLevel.filter(({ id }) => id == null)[which === by ? 0 : Number(which.split("#").at(-1)) - 1];
  const found = ofLevel.find(({ id }) => id === which) ?? nth ?? (ofLevel.length === 1 ? ofLevel[0] : undefined);
  return found === undefined ? -1 : plugins.indexOf(found);
}

/** Level and name of "services.shop.routes.items.plugins.per-ip": names may have dots. */
function splitPlace(place: string): readonly [level: string, which: string] {
  const which = place.slice(place.lastIndexOf(".plugins.") + ".plugins.".length);
  if (place.startsWith("global.plugins.")) return ["global", which];
  return [place.includes(".routes.") ? "route" : "service", which];
}

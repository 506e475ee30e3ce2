/**
 * Answers `GET /gateway/settings`: the settings of one service, route, upstream or caller with secrets masked, each
 * with its place in the text of the configuration in force, or marked as a default.
 */
import { inSlices, paced } from "../base/time_slices.ts";
import { formatPath, type Json, type Path, type Position } from "../config/json.ts";
import { placeSteps } from "../config/places.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { problem, type Reply } from "../http/reply.ts";
import { isObject } from "../json_schema/values.ts";
import type { Inbound } from "../server/inbound.ts";
import { json, queryOf } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

/** Settings of one answer. */
const MAX_SETTINGS = 1_000;

type Named = readonly Readonly<Record<string, Json>>[];

interface Setting {
  /** Within the item. */
  readonly path: Path;
  readonly value: Json;
}

export async function settingsRequest(
  { call, target }: Inbound,
  { gateway }: Pick<InterfaceOptions, "gateway">,
): Promise<Reply> {
  const query = queryOf(target);
  const [service, route, upstream, caller] = ["service", "route", "upstream", "caller"].map((name) => query.get(name));
  const named = [route, upstream, caller].filter((name) => name !== null).length;
  if (named > 1 || (service === null) === (caller === null))
    return problem(call, "request_invalid", {
      detail: 'Name one item: "?service=…", with "&route=…" or "&upstream=…" one of its, or "?caller=…".',
    });
  const found = itemAt(gateway.maskedConfig, [
    ...(service === null ? ([["callers", "id", caller]] as const) : ([["services", "name", service]] as const)),
    ...(route == null ? [] : ([["routes", "name", route]] as const)),
    ...(upstream == null ? [] : ([["upstreams", "id", upstream]] as const)),
  ]);
  if (found === null)
    return problem(call, "route_not_found", { detail: "The file of the configuration in force has no such item." });
  const { configuration } = GatewayCore.internalsOf(gateway as ReportedGateway);
  const { digest, source } = configuration.snapshot;
  const { item, at } = found;
  // Routes and upstreams are items themselves.
  const own = Object.entries(item).filter(([name]) => at.length > 2 || (name !== "routes" && name !== "upstreams"));
  const settings: Setting[] = [];
  const isWhole = addSettings(Object.fromEntries(own), [], settings);
  const paths = settings.flatMap(({ path }) => [path.slice(0, -1), path]).map((path) => [...at, ...path]);
  // A text of thousands of services is long.
  const [place, ...places] = await inSlices(placeSteps(source, [at, ...paths]), paced());
  return json(200, {
    digest,
    path: formatPath(at),
    ...placeOf(place),
    settings: settings.map(({ path, value }, i) => {
      const [outer, inner] = places.slice(2 * i, 2 * i + 2);
      const isDefault = inner != null && inner.line === outer!.line && inner.column === outer!.column;
      return {
        name: formatPath(path),
        value,
        default: inner == null ? null : isDefault,
        ...placeOf(isDefault ? null : inner),
      };
    }),
    complete: isWhole,
  });
}

/** By lists and the names in them; null: there is no such item. */
function itemAt(
  config: Json,
  steps: readonly (readonly [list: string, by: string, name: string | null | undefined])[],
) {
  let item = config as Readonly<Record<string, Json>>;
  const at: (string | number)[] = [];
  for (const [list, by, name] of steps) {
    const all = (item[list] ?? []) as Named;
    const i = all.findIndex((each) => each[by] === name);
    if (i < 0) return null;
    item = all[i]!;
    at.push(list, i);
  }
  return { item, at };
}

/** Lists of plain values are one setting. False: there are more than an answer has. */
function addSettings(value: Json, path: Path, to: Setting[]): boolean {
  const isList = Array.isArray(value) && value.some((each) => typeof each === "object" && each !== null);
  const members = isList || isObject(value) ? Object.entries(value as Readonly<Record<string, Json>>) : [];
  if (members.length > 0)
    return members.every(([name, each]) => addSettings(each, [...path, isList ? Number(name) : name], to));
  if (to.length === MAX_SETTINGS) return false;
  to.push({ path, value });
  return true;
}

function placeOf(place: Position | null | undefined) {
  return { line: place?.line ?? null, column: place?.column ?? null };
}

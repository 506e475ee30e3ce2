/**
 * `edge-gateway diff`: compares what two configurations do with requests, guards that are lost first.
 */
import { view } from "../admin/views.ts";
import type { View } from "../operator/json_view.ts";
import type { Candidate } from "../proof/candidate.ts";
import type { RoutePlace } from "../proof/guards_lost.ts";
import { routeDiff, type RouteDiff } from "../proof/route_diff.ts";
import type { RunCommand } from "./arguments.ts";
import { namedConfig, openCandidate } from "./config_file.ts";
import { Failure } from "./failure.ts";
import { printable } from "./terminal.ts";

/** 0: nothing differs. 1: something does. 2: the command line or a configuration is wrong. */
export const diff: RunCommand = async (given) => {
  const [old, next] = given.operands;
  if (old === undefined || next === undefined)
    throw new Failure("diff needs two configurations: edge-gateway diff OLD NEW", 2);
  const [before, after] = await openBoth(
    async () => openCandidate(await namedConfig(given, old)),
    async () => openCandidate(await namedConfig(given, next)),
  );
  try {
    const found = view(await routeDiff(before.configuration.snapshot, after.configuration.snapshot));
    const lines = diffLines(found);
    if (given.flags.json !== undefined) process.stdout.write(`${JSON.stringify(found, null, 2)}\n`);
    else process.stdout.write(printable(lines.length === 0 ? ["nothing differs"] : lines));
    return lines.length === 0 ? 0 : 1;
  } finally {
    await Promise.all([before.close(), after.close()]);
  }
};

/** Throws a `ConfigError` or a `Failure`; if neither can be opened, one with the errors of both. */
async function openBoth(
  openOld: () => Promise<Candidate>,
  openNext: () => Promise<Candidate>,
): Promise<readonly [Candidate, Candidate]> {
  const opened = await Promise.allSettled([openOld(), openNext()]);
  const [before, after] = opened;
  if (before.status === "fulfilled" && after.status === "fulfilled") return [before.value, after.value];
  const errors: unknown[] = [];
  for (const each of opened) {
    if (each.status === "fulfilled") await each.value.close();
    else errors.push(each.reason);
  }
  if (errors.length < 2) throw errors[0];
  throw new Failure(
    `neither configuration is valid:\n${errors.map((error) => (error as Error).message.trimEnd()).join("\n")}`,
    2,
  );
}

/** None when nothing differs. Routes of one service to which the same applies share a line. */
export function diffLines({ guards_lost: lost, added, removed, changed, other }: View<RouteDiff>): string[] {
  return [
    ...section(
      "guards lost",
      sharedLines(lost, lossOf, ({ example }) => (example === null ? "" : ` (${example})`)),
    ),
    ...section("routes added", sharedLines(added)),
    ...section("routes removed", sharedLines(removed)),
    ...section(
      "routes changed",
      sharedLines(changed, ({ changes }) => `: ${changes.join("; ")}`),
    ),
    ...section(
      "other changes",
      other.map((each) => `  ${each}`),
    ),
  ];
}

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [`${title}:`, ...lines];
}

const MAX_NAMED = 5;

/** `detail` is equal for the routes of a line, `extra` is that of the first one. */
function sharedLines<T extends RoutePlace>(
  list: readonly T[],
  detail: (entry: T) => string = () => "",
  extra: (entry: T) => string = () => "",
): string[] {
  const groups = new Map<string, T[]>();
  for (const entry of list) {
    const key = JSON.stringify([entry.service, detail(entry)]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key)!.push(entry);
  }
  return [...groups.values()].map((entries) => {
    const [first] = entries as [T];
    const more = entries.length > MAX_NAMED ? ` and ${entries.length - MAX_NAMED} more` : "";
    return `  ${first.service} / ${entries
      .slice(0, MAX_NAMED)
      .map(({ route }) => route)
      .join(", ")}${more}${detail(first)}${extra(first)}`;
  });
}

/** ": key_auth, acl (configured differently), as shop / items had them" */
function lossOf({ service, route, guards, altered, before }: RouteDiff["guardsLost"][number]): string {
  const names = guards
    .map((guard) => (altered.includes(guard) ? `${guard} (configured differently)` : guard))
    .join(", ");
  const isSame = before.service === service && before.route === route;
  return `: ${names}${isSame ? "" : `, which ${before.service} / ${before.route} had`}`;
}

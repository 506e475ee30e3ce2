/**
 * `edge-gateway compare`: runs two versions on one configuration and the same requests, and prints what they do
 * differently.
 */
import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import type { RunCommand } from "./arguments.ts";
import { IS_SOURCE } from "./audit_modules.ts";
import { Differences, HEADINGS, type Difference } from "./compare/differences.ts";
import { loggedRequests, type LoggedRequests } from "./compare/logged_requests.ts";
import { samplesOf, type Sample } from "./compare/samples.ts";
import { VersionProcess } from "./compare/version_process.ts";
import { namedFile } from "./config_file.ts";
import { counted } from "./counted.ts";
import { Failure } from "./failure.ts";
import { printable } from "./terminal.ts";

/**
 * 0: nothing differs. 1: something does, or one version refuses the configuration. 2: a version cannot be run, or both
 * refuse it.
 */
export const compareVersions: RunCommand = async (given) => {
  const {
    operands: [old, next],
    flags: { "access-log": log, json },
  } = given;
  if (!old || !next)
    throw new Failure("compare needs the folders of two versions: edge-gateway compare OLD NEW --config gw.json", 2);
  if (IS_SOURCE)
    throw new Failure(
      "compare runs what is in dist/, and this is the program as its sources: npm run build, " +
        "and run dist/bin/edge-gateway.js",
      2,
    );
  const config = resolve(namedFile({ ...given, operands: [] }));
  const text = await readable(config, () => readRegularFile(config).toString());
  const value = await readable(config, () => JSON.parse(text) as unknown);
  const logged = log === undefined ? null : await readable(String(log), () => loggedRequests(String(log)));
  const environment = environmentNamedBy(text);
  const all = [...samplesOf(value, config), ...(logged?.samples ?? [])];
  const samples = [...new Map(all.map((sample) => [JSON.stringify(sample.question), sample])).values()];
  const options = {
    config,
    environment,
    files: filesNamedBy([value, environment], config),
    questions: samples.map(({ question }) => question),
  };
  const versions: VersionProcess[] = [];
  const end = () => versions.forEach((version) => version.end());
  // A version that hangs would not see that its input has ended.
  const onSignal = (signal: NodeJS.Signals) => {
    end();
    process.kill(process.pid, signal);
  };
  for (const signal of SIGNALS) process.once(signal, onSignal);
  try {
    for (const folder of [old, next]) versions.push(new VersionProcess(folder, options));
    const found = await compared(versions as [VersionProcess, VersionProcess], samples, logged);
    process.stdout.write(json !== undefined ? `${JSON.stringify(found, null, 2)}\n` : printable(linesOf(found)));
    return found.differences.length === 0 ? 0 : 1;
  } finally {
    end();
    for (const signal of SIGNALS) process.off(signal, onSignal);
  }
};

/** They end the program. */
const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

async function readable<T>(file: string, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw new Failure(`cannot read ${file}: ${whyUnreadable(error)}`, 2);
  }
}

/** A version gets no other variables: they may be secrets. */
function environmentNamedBy(text: string): Record<string, string> {
  const names = Array.from(text.matchAll(/\$\{env:([^}]+)\}/g), ([, name]) => name!);
  return Object.fromEntries(
    names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])),
  );
}

/** Files outside of the folder of the configuration. */
function filesNamedBy(value: unknown, config: string): string[] {
  if (typeof value === "object" && value !== null)
    return Object.values(value).flatMap((each) => filesNamedBy(each, config));
  const [, path = ""] = /^(?:\$\{file:)?((?:\/|\.\.).*?)\}?$/.exec(String(value)) ?? [];
  const file = resolve(dirname(config), path);
  // A path of a route can be that of a folder.
  return path.split("/").length > 2 && !/[,*\0]/.test(file) && existsSync(file) ? [file] : [];
}

/** Requests that have not been compared by then are left out, and said. */
const MAX_MS = 240_000;

/** As --json prints it. */
type Compared = Awaited<ReturnType<typeof compared>>;

async function compared(
  versions: readonly [VersionProcess, VersionProcess],
  samples: readonly Sample[],
  logged: LoggedRequests | null,
) {
  const until = performance.now() + MAX_MS;
  const ofBoth = <T>(ask: (version: VersionProcess) => Promise<T>) => Promise.all([ask(versions[0]), ask(versions[1])]);
  const reports = await ofBoth((version) => version.report());
  const sideOf = (i: 0 | 1) => {
    const { name: version, folder } = versions[i];
    const { issues, warnings } = reports[i];
    return { version, folder, accepts: issues.length === 0, issues, warnings: Object.keys(warnings) };
  };
  const old = sideOf(0);
  const next = sideOf(1);
  const differences = new Differences();
  const requests: Record<string, number> = {};
  const notCompared: string[] = [];
  if (old.accepts && next.accepts) {
    differences.ofReports(...reports);
    let asked = 0;
    for (; asked < samples.length && performance.now() < until; asked++) {
      const sample = samples[asked]!;
      requests[sample.form] = (requests[sample.form] ?? 0) + 1;
      differences.ofAnswers(sample, ...(await ofBoth((version) => version.answer())));
    }
    for (const [i, { silent }] of reports.entries())
      if (silent.length > 0) notCompared.push(`${silent.join(", ")}, which ${versions[i]!.name} does not say`);
    if (asked < samples.length) notCompared.push(`${counted(samples.length - asked, "request")}, for lack of time`);
  } else {
    const [ofOld, ofNext] = [old, next].map(({ issues }) => issues.join("\n").trimEnd());
    if (old.accepts === next.accepts)
      throw new Failure(
        `both versions refuse the configuration:\n${old.version}: ${ofOld}\n${next.version}: ${ofNext}`,
        2,
      );
    differences.add("acceptance", `${(old.accepts ? next : old).version} refuses it`, [
      ofOld || "accepted",
      ofNext || "accepted",
    ]);
    notCompared.push("requests, as one version refuses the configuration");
  }
  const log = logged && { lines: logged.lines, unreadable: logged.unreadable };
  return {
    old,
    new: next,
    requests,
    access_log: log,
    differences: differences.list,
    more: differences.more,
    not_compared: notCompared,
  };
}

/** Of one kind. */
const MAX_PRINTED = 10;
/** Characters of a value. */
const MAX_SHOWN = 300;

function linesOf({
  old,
  new: next,
  requests,
  access_log: log,
  differences,
  more,
  not_compared: notCompared,
}: Compared): string[] {
  const asked = Object.values(requests).reduce((sum, each) => sum + each, 0);
  const sections = Object.entries(HEADINGS).flatMap(([kind, heading]) => {
    const all = differences.filter((each) => each.kind === kind);
    if (all.length === 0) return [];
    return [
      `${heading}:`,
      ...all.slice(0, MAX_PRINTED).flatMap(entry),
      ...(all.length > MAX_PRINTED ? [`  and ${all.length - MAX_PRINTED} more: --json has them`] : []),
    ];
  });
  return [
    `${old.version} (${old.folder}) and ${next.version} (${next.folder}): ${counted(asked, "request")} compared`,
    ...(log === null ? [] : [`access log: ${counted(log.lines, "line")}, of which ${log.unreadable} cannot be read`]),
    ...sections,
    ...(more === 0 ? [] : [`and ${counted(more, "request")} with further differences`]),
    ...notCompared.map((each) => `not compared: ${each}`),
    differences.length === 0
      ? "nothing differs"
      : `${counted(differences.length, "difference")}: read them before you upgrade`,
  ];
}

function entry({ what, old, new: now, routes, requests, example }: Difference): string[] {
  const by = example === null ? [] : [`    ${counted(requests, "request")}, such as ${example.slice(0, MAX_SHOWN)}`];
  return [
    `  ${routes.length === 0 ? "" : `${routes.join(", ")}: `}${what}`,
    ...by,
    ...shown("old", old),
    ...shown("new", now),
  ];
}

function shown(name: string, text: string | null): string[] {
  const [first = "", ...others] = (text ?? "").split("\n", MAX_PRINTED).map((line) => line.slice(0, MAX_SHOWN));
  return [`    ${name}: ${first}`, ...others.map((line) => `      ${line}`)];
}

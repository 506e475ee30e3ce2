/**
 * `edge-gateway reload`: asks a running gateway to reload its configuration, or only to try it, and prints the changes
 * or the errors.
 */
import { MAX_POSTED_BYTES } from "../admin/json_body.ts";
import type { dryRunView } from "../admin/reload_request.ts";
import { readClientSettings } from "../config/command_settings.ts";
import { linesOf } from "../gateway/refusal.ts";
import type { ShownIssue } from "../gateway/status.ts";
import { changeLine, type Change } from "../gateway/config_diff.ts";
import type { RoutePlace } from "../proof/guards_lost.ts";
import { asAdmin, unexpected, type AdminAnswer } from "./admin_client.ts";
import type { RunCommand } from "./arguments.ts";
import { counted } from "./counted.ts";
import { diffLines } from "./diff.ts";
import { accepted, Failure, type ExitCode } from "./failure.ts";
import { readAuthorities, readNamedFile } from "./named_files.ts";
import { printable, withoutControls } from "./terminal.ts";
import { warningLines } from "./warning_text.ts";

/**
 * 0: reloaded. 2: refused, the old configuration stays in force. 1: the gateway cannot be asked, or the dry run was
 * refused.
 */
export const reload: RunCommand = async (given) => {
  const { "dry-run": dryRun, ...shared } = given.flags;
  const [file] = given.operands;
  if (file !== undefined && dryRun === undefined)
    throw new Failure("the gateway reloads the file that it was started with; another FILE is for --dry-run", 2);
  const { url, user, password, caPath } = accepted(readClientSettings(shared, process.env));
  const text = file === undefined ? undefined : readNamedFile(file, "FILE", "configuration");
  // An empty body would stand for the gateway's own file.
  if (text?.length === 0) throw new Failure(`${file} is empty`, 2);
  // Asked here: a gateway that refuses a body closes the connection, perhaps before its answer can be read.
  if (text !== undefined && text.length > MAX_POSTED_BYTES)
    throw new Failure(`${file} has more than ${MAX_POSTED_BYTES} bytes: no gateway accepts it`, 1);
  const ca = caPath === null ? null : readAuthorities(caPath, "ADMIN_CA_PATH");
  return asAdmin({ url, user, password, ca }, async (ask) => {
    if (dryRun !== undefined) return printDryRun(await ask("POST", DRY_RUN, text), file ?? null, url);
    const answer = await ask("POST", "/gateway/reload");
    // Usually the gateway has already reloaded the changed file when the command runs: then the last change is printed.
    const status =
      Array.isArray(answer.json.changes) && answer.json.changes.length === 0
        ? await ask("GET", "/gateway/status")
        : null;
    return print(answer, status?.json.last_change, url);
  });
};

const DRY_RUN = "/gateway/reload?dry_run=true";

type DryRunJson = ReturnType<typeof dryRunView>;

/** `file`: the one that was sent; null: the gateway's own. */
function printDryRun({ status, json, ...rest }: AdminAnswer, file: string | null, url: string): ExitCode {
  if (status >= 400 && typeof json.detail === "string" && REFUSED_REQUESTS.has(String(json.code))) {
    throw new Failure(withoutControls(`${url} refused the request: ${json.detail}`), 1);
  }
  if (status !== 200 || (json.outcome !== "accepted" && json.outcome !== "refused"))
    throw unexpected({ status, json, ...rest }, `POST ${DRY_RUN}`, url);
  const { outcome, file: ofIssues, issues, warnings, tests, untested, diff, requests } = json as unknown as DryRunJson;
  const name = file ?? "the gateway's configuration file";
  const ran =
    tests === null
      ? []
      : [
          `${tests.passed} of ${counted(tests.passed + tests.failed + tests.not_run, "test")} ` +
            `passed${tests.not_run === 0 ? "" : `, ${tests.not_run} not run`}`,
        ];
  const facts = [...ran, ...(warnings.length === 0 ? [] : [counted(warnings.length, "warning")])];
  const lines = [
    ...issueLines(issues, typeof ofIssues === "string" ? (file ?? ofIssues) : null),
    ...warningLines(
      warnings.map((warning) => ({ ...warning, line: null })),
      file,
    ),
    ...(untested === null ? [] : [untested]),
    ...(diff === null ? [] : diffLines(diff)),
    ...(requests === null ? [] : requestLines(requests)),
    `${name} would be ` +
      (`${outcome}${untested === null || outcome === "refused" ? "" : " if all tests pass"}` +
        `${facts.length === 0 ? "" : ` (${facts.join("; ")})`}; nothing has been changed`),
  ];
  process[outcome === "accepted" ? "stdout" : "stderr"].write(printable(lines));
  return outcome === "accepted" ? 0 : 1;
}

const REFUSED_REQUESTS = new Set(["bad_request", "request_invalid", "body_too_large", "overloaded"]);

function requestLines({
  checked,
  other_route: other,
  no_route: none,
  undecided,
  examples,
}: NonNullable<DryRunJson["requests"]>): string[] {
  const open =
    undecided === 0 ? "" : `; of ${undecided} the route depends on headers, query or cookies, which are not kept`;
  if (other + none === 0) return [`of the last ${counted(checked, "request")} none would get another route${open}`];
  const nameOf = (place: RoutePlace | null) => (place === null ? "no route" : `${place.service} / ${place.route}`);
  return [
    `of the last ${counted(checked, "request")}, ${other} would get another route and ${none} none${open}:`,
    ...examples.map(({ request, before, after }) => `  ${request}: ${nameOf(after)} instead of ${nameOf(before)}`),
  ];
}

function print(answer: AdminAnswer, lastChange: unknown, url: string): ExitCode {
  const { digest, changes, file, issues } = answer.json;
  if (answer.status === 200 && Array.isArray(changes)) {
    const lines = changeLines(changes);
    if (lines.length === 0) lines.push("the text has not changed; its secrets were resolved again");
    const { at, by, changes: earlier } = (lastChange ?? {}) as Readonly<Record<string, unknown>>;
    if (Array.isArray(earlier))
      lines.push(`the last change was at ${String(at)} (${String(by)}):`, ...changeLines(earlier));
    process.stdout.write(printable([...lines, `configuration ${String(digest)} is in force`]));
    return 0;
  }
  if (answer.status === 422 && Array.isArray(issues)) {
    process.stderr.write(
      printable([
        ...issueLines(issues, typeof file === "string" ? file : null),
        `The configuration was refused; ${String(digest)} stays in force.`,
      ]),
    );
    return 2;
  }
  throw unexpected(answer, "POST /gateway/reload", url);
}

/** As `validate` prints them, those about the whole text first. Gateways before 0.3 send lines. */
function issueLines(issues: readonly (Partial<ShownIssue> | string | null)[], file: string | null): string[] {
  const shown = issues.map((issue): ShownIssue => {
    const {
      path = "",
      line = null,
      column = null,
      message,
      ...rest
    } = typeof issue === "string" ? { message: issue } : (issue ?? {});
    return { path: String(path), line, column, message: String(message), ...rest };
  });
  const isOfText = ({ path, line }: ShownIssue) => path === "" && line === null;
  const ofText = shown.filter(isOfText).flatMap((issue) => linesOf({ file, issues: [issue] }));
  return [...ofText, ...linesOf({ file, issues: shown.filter((issue) => !isOfText(issue)) })];
}

/** Gateways before 0.3 send no fields. */
function changeLines(changes: readonly (Partial<Change> | null)[]): string[] {
  return changes.map((each) =>
    changeLine({
      change: String(each?.change),
      name: String(each?.name),
      fields: Array.isArray(each?.fields) ? each.fields.map(String) : [],
    }),
  );
}

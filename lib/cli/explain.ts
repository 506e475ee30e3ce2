/**
 * `edge-gateway explain`: prints what would happen to a request, by a configuration file or by a running gateway, or
 * with an id what became of one.
 * Nothing is forwarded.
 */
import { isIP } from "node:net";
import { explanationView } from "../admin/views.ts";
import { FIELD_VALUE, TOKEN } from "../base/http_grammar.ts";
import { addressOf } from "../base/ip_address.ts";
import { readClientSettings } from "../config/command_settings.ts";
import { CLIENT_TABLE } from "../config/settings_table.ts";
import type { Question } from "../proof/explain.ts";
import { asAdmin, unexpected, type AdminTarget } from "./admin_client.ts";
import type { Arguments, RunCommand } from "./arguments.ts";
import { namedConfig, openCandidate } from "./config_file.ts";
import { askForRequest, checkId, rememberedText } from "./explain_id.ts";
import { accepted, Failure } from "./failure.ts";
import { paintFor, withoutAnyControls, withoutControls, type Paint } from "./terminal.ts";
import { readAuthorities } from "./named_files.ts";

/** In the form of the admin interface. */
type ExplanationJson = ReturnType<typeof explanationView>;

/**
 * 0: explained, also if the request would be, or was, refused. 1: the gateway cannot be asked, or does not know the id.
 */
export const explain: RunCommand = async (given) => {
  if (given.flags.id !== undefined) return explainId(String(given.flags.id), given);
  const question = questionOf(given);
  const asksGateway =
    given.flags.admin !== undefined ||
    Object.values(CLIENT_TABLE).some(({ flag }) => flag !== null && given.flags[flag] !== undefined);
  const explanation = asksGateway ? await byGateway(question, given) : await byFile(question, given);
  const isJson = given.flags.json !== undefined;
  process.stdout.write(
    isJson
      ? `${JSON.stringify(explanation, null, 2)}\n`
      : explanationText(question, explanation, paintFor(process.stdout)),
  );
  return 0;
};

async function explainId(id: string, given: Arguments): Promise<0> {
  const {
    flags: { json, from },
    operands,
    repeated,
  } = given;
  if (operands.length > 0 || from !== undefined || repeated.header !== undefined) {
    throw new Failure("--id asks about a request that a gateway has had: leave out method, URL, --from and -H", 2);
  }
  checkId(id);
  const remembered = await askForRequest(id, adminTarget(given));
  process.stdout.write(
    json === undefined
      ? rememberedText(remembered, paintFor(process.stdout))
      : `${JSON.stringify(remembered.decision, null, 2)}\n`,
  );
  return 0;
}

function questionOf({ operands: [method, url], flags: { from }, repeated }: Arguments): Question {
  if (method === undefined || url === undefined)
    throw new Failure("explain needs a method and a URL: edge-gateway explain GET /orders/7", 2);
  if (!TOKEN.test(method))
    throw new Failure(`${JSON.stringify(method)} is not a method such as GET: edge-gateway explain METHOD URL`, 2);
  if (!/^(?:\/|https?:\/\/[^/?#])/i.test(url)) {
    throw new Failure(`${JSON.stringify(url)} is neither a path that starts with "/" nor an http or https URL`, 2);
  }
  if (from !== undefined && isIP(String(from)) === 0) {
    throw new Failure(`--from: expected an IP address such as 203.0.113.9, found ${JSON.stringify(from)}`, 2);
  }
  const headers = new Map<string, string[]>();
  for (const line of repeated.header ?? []) {
    const [, name = "", value] = /^([^:]*):[ \t]*(.*?)[ \t]*$/s.exec(line) ?? [];
    // The value is not repeated: it may be a credential.
    if (value === undefined)
      throw new Failure("-H: expected a header such as 'Host: api.example.com', found no colon", 2);
    if (!TOKEN.test(name)) throw new Failure(`-H: ${JSON.stringify(name)} is not the name of a header`, 2);
    if (!FIELD_VALUE.test(value))
      throw new Failure(`-H: the value of ${name} has a character that no header may have`, 2);
    headers.set(name, [...(headers.get(name) ?? []), value]);
  }
  return { method, url, headers: Object.fromEntries(headers), ...(from !== undefined && { clientIp: String(from) }) };
}

/** Nothing is dialled; upstreams have their shares as configured. */
async function byFile(question: Question, given: Arguments): Promise<ExplanationJson> {
  const candidate = await openCandidate(await namedConfig({ ...given, operands: [] }));
  try {
    return explanationView(await candidate.explain(question));
  } finally {
    await candidate.close();
  }
}

/** Of the running gateway that is asked. */
function adminTarget(given: Arguments): AdminTarget {
  const { config, "config-key": keys, json, from, header, id, admin, ...shared } = given.flags;
  if (config !== undefined || keys !== undefined)
    throw new Failure("name a file with --config or a running gateway with --admin, not both", 2);
  if (admin !== undefined && shared["admin-url"] !== undefined)
    throw new Failure("--admin and --admin-url are the same flag: give one of them", 2);
  const { parse, expects } = CLIENT_TABLE.adminUrl;
  if (admin !== undefined && parse(String(admin)) === null) throw new Failure(`--admin: expected ${expects}`, 2);
  const client = accepted(
    readClientSettings({ ...shared, ...(admin !== undefined && { "admin-url": admin }) }, process.env),
  );
  const { url, user, password, caPath } = client;
  return { url, user, password, ca: caPath === null ? null : readAuthorities(caPath, "ADMIN_CA_PATH") };
}

async function byGateway({ clientIp, ...question }: Question, given: Arguments): Promise<ExplanationJson> {
  const target = adminTarget(given);
  const { url } = target;
  return asAdmin(target, async (ask) => {
    const answer = await ask("POST", "/gateway/explain", JSON.stringify({ ...question, client_ip: clientIp }));
    const { status, json: value } = answer;
    if (status === 200 && LISTS.every((name) => Array.isArray(value[name]))) return value as unknown as ExplanationJson;
    if ((status === 400 || status === 413) && typeof value.detail === "string")
      throw new Failure(`${url} refused the question: ${value.detail}`, 2);
    throw unexpected(answer, "POST /gateway/explain", url);
  });
}

const LISTS = ["reasons", "candidates", "plugins", "upstreams"];

/** For people; `paint` colours it. */
export function explanationText(
  { method, url }: Pick<Question, "method" | "url">,
  raw: ExplanationJson,
  paint: Paint,
): string {
  const explanation = withoutAnyControls(raw);
  const {
    outcome,
    status,
    code,
    service,
    route,
    pattern,
    reasons,
    candidates,
    plugins,
    strategy,
    hash_on: on,
    sticky,
    forwarded,
    upstreams,
  } = explanation;
  const isMatched = outcome === "matched";
  const found = isMatched
    ? paint("good", `route "${route}" of service "${service}" (${pattern})`)
    : paint("bad", code === null ? `${status}` : `${status} ${code}`);
  // Other reasons are the verdicts of candidates.
  const own = reasons.filter((reason) => !candidates.some(({ verdict }) => reason.endsWith(` ${verdict}.`)));
  // An older gateway says neither.
  const balancing = `${strategy}${on ? ` on ${on}` : ""}${sticky ? `, sticky by the cookie ${sticky}` : ""}`;
  return [
    `${withoutControls(`${method} ${url}`)} gets ${found}\n`,
    ...own.map((reason) => `  ${reason}\n`),
    ...table(
      "Candidates",
      candidates.map((each) => [`${each.service} / ${each.route}`, each.verdict]),
      (verdict) => paint(verdict === "takes the request" ? "good" : "faint", verdict),
    ),
    ...table(
      "Plugins",
      plugins.map(({ level, name, id, verdict }) => [level, id === null ? name : `${name} (${id})`, verdict]),
      (verdict, i) => paint(styleOf(plugins[i]!), verdict),
    ),
    ...table(`Upstreams, ${balancing}, asked for ${forwarded}`, upstreams.map(upstreamRow), (text) => text),
  ].join("");
}

function styleOf({ action }: ExplanationJson["plugins"][number]): "good" | "bad" | "faint" {
  if (action === "not_reached") return "faint";
  return action === "answers" ? "bad" : "good";
}

function upstreamRow(upstream: ExplanationJson["upstreams"][number]): string[] {
  const { id, group, backup, share, state } = upstream;
  const address = addressOf(upstream);
  const notes = [
    group === null ? "" : `group ${group}`,
    // An older gateway says nothing of it.
    backup === true ? "backup" : "",
    state === "unknown" || state === "healthy" ? "" : state,
  ].filter((note) => note !== "");
  return [
    id === address ? id : `${id} ${address}`,
    `${Math.round(share * 1000) / 10} %${notes.length === 0 ? "" : ` (${notes.join(", ")})`}`,
  ];
}

/** A heading and its rows, whose columns are aligned; nothing without rows. `last` styles the last column. */
function table(
  heading: string,
  rows: readonly (readonly string[])[],
  last: (text: string, row: number) => string,
): string[] {
  if (rows.length === 0) return [];
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const line = (row: readonly string[], number: number) =>
    row.map((cell, i) => (i === row.length - 1 ? last(cell, number) : cell.padEnd(widths[i]!))).join("  ");
  return [`\n${heading}\n`, ...rows.map((row, number) => `  ${line(row, number)}\n`)];
}

/**
 * `edge-gateway audit`: prints all that a gateway with this configuration and these settings can do: modules, files,
 * ports, servers, secrets.
 * Nothing is started.
 */
import type { RunCommand } from "./arguments.ts";
import { destinationText, networkPolicy, permissionFlags, systemdUnit } from "./audit_rules.ts";
import { auditOf, type Audit, type Audited, type AuditedDial } from "./audit_sources.ts";
import { namedFile } from "./config_file.ts";
import { Failure } from "./failure.ts";
import { printable } from "./terminal.ts";

const jsonOf = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`;
const RULES = {
  json: ({ audit }: Audited) => jsonOf(audit),
  systemd: systemdUnit,
  "network-policy": networkPolicy,
  permission: permissionFlags,
};

/** `loadEvidence`: for --evidence alone. */
export function auditWith(loadEvidence: () => Promise<(audited: Audited) => unknown>): RunCommand {
  return async (given) => {
    const config = namedFile(given);
    const forms = { ...RULES, evidence: async (audited: Audited) => jsonOf((await loadEvidence())(audited)) };
    const names = Object.keys(forms).filter((name) => given.flags[name] !== undefined) as (keyof typeof forms)[];
    const [form, second] = names;
    if (second !== undefined) throw new Failure(`choose one of --${form} and --${second}`, 2);
    const shared = Object.fromEntries(Object.entries(given.flags).filter(([name]) => !(name in forms)));
    const audited = await auditOf({ ...shared, config });
    const text = () => printable([...textOf(audited.audit), ...(audited.settings.seal ? [SEALED] : [])]);
    process.stdout.write(form === undefined ? text() : await forms[form](audited));
    return 0;
  };
}

const SEALED =
  "SEAL: before the first port is open it gives up all other rights of Node's permission model, " +
  "under which it must be started.";
/** Of the files of STATE_DIR. */
const STATE = "STATE_DIR: made for this user alone (0700), one process at a time";

export function textOf({ modules, lines, on_request: later, reads, writes, listens, dials, secrets }: Audit): string[] {
  const server = (to: AuditedDial) =>
    `${destinationText(to)}  ${to.why}${to.via === undefined ? "" : `, through the proxy ${to.via}`}`;
  const section = (title: string, items: readonly string[]) => [
    `${title}:`,
    ...(items.length === 0 ? ["  nothing"] : items.map((item) => `  ${item}`)),
  ];
  return [
    ...section("Reads", reads),
    ...section("Writes", [
      "standard output",
      "standard error",
      ...writes.map((path) => (path.endsWith("/*") ? `${path}  ${STATE}` : path)),
    ]),
    ...section("Listens on", listens.map(server)),
    ...section("Connects to", dials.map(server)),
    ...section("Uses the secrets", secrets),
    `Loads ${modules.length} modules with ${lines} lines; audit --json lists them with their SHA-256.`,
    ...(later.length === 0 ? [] : [`Reloads and requests of the admin interface can load ${later.length} more.`]),
  ];
}

/**
 * `edge-gateway reload`: has a running gateway take its configuration anew, and prints what changed or what is wrong with it.
 * Talking to the admin interface is `admin_client.ts`.
 */
import { readClientSettings } from "../config/settings.ts";
import type { Change } from "../gateway/config_diff.ts";
import { asAdmin, unexpected, type AdminAnswer } from "./admin_client.ts";
import { UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";
import { readAuthorities } from "./tls_files.ts";

/** 0: taken. 2: refused, the old configuration stays. Throws a `StartError` (1) when nobody can be asked. */
export async function reloadCommand(given: Arguments): Promise<ExitCode> {
  if (given.operands.length > 0) throw new UsageError(`"${given.operands[0]}" is one word too many; the gateway reads the file it was started with`);
  const read = readClientSettings(given.flags, process.env);
  if (!read.ok) throw new UsageError(read.issues.join("\nedge-gateway: "));
  const { url, user, password, caPath } = read.settings;
  return asAdmin({ url, user, password, ca: caPath === null ? null : readAuthorities(caPath, "ADMIN_CA_PATH", "CA certificate of the admin interface") }, async (ask) => {
    const answer = await ask("POST", "/gateway/reload");
    // As a rule the changed file has been taken before anybody has typed the command: then that is what is asked about.
    const before = Array.isArray(answer.json.changes) && answer.json.changes.length === 0 ? await ask("GET", "/gateway/status") : null;
    return tell(answer, before?.json.last_change, url);
  });
}

function tell(answer: AdminAnswer, lastChange: unknown, url: string): ExitCode {
  const { digest, changes, issues } = answer.json;
  if (answer.status === 200 && Array.isArray(changes)) {
    const lines = linesOf(changes);
    if (lines.length === 0) lines.push("nothing changed in the text; the secrets that it refers to were resolved anew");
    const { at, by, changes: earlier } = (lastChange ?? {}) as Readonly<Record<string, unknown>>;
    if (Array.isArray(earlier)) lines.push(`the last change was taken at ${String(at)} (${String(by)}):`, ...linesOf(earlier));
    process.stdout.write(`${[...lines, `configuration ${String(digest)} is in force`].map(printable).join("\n")}\n`);
    return 0;
  }
  if (answer.status === 422 && Array.isArray(issues)) {
    const lines = [...issues.map(String), `The configuration was refused; ${String(digest)} stays in force.`];
    process.stderr.write(`${lines.map(printable).join("\n")}\n`);
    return 2;
  }
  throw unexpected(answer, "POST /gateway/reload", url);
}

function linesOf(changes: readonly (Partial<Change> | null)[]): string[] {
  return changes.map((each) => `${String(each?.change).padEnd(9)}${String(each?.name)}`);
}

/** Whatever answered: nothing of it may drive the terminal. */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, "?");
}

/**
 * `edge-gateway reload`: asks a running gateway to reload its configuration, and prints the changes or the errors.
 */
import { CLIENT_TABLE, readClientSettings } from "../config/settings.ts";
import type { Change } from "../gateway/config_diff.ts";
import { asAdmin, unexpected, type AdminAnswer } from "./admin_client.ts";
import type { Command } from "./arguments.ts";
import { accepted, type ExitCode } from "./failure.ts";
import { printable } from "./terminal.ts";
import { readAuthorities } from "./tls_files.ts";

/** 0: reloaded. 2: refused, the old configuration stays in force. 1: the gateway cannot be asked. */
export const reload: Command = {
  about: "Ask a running gateway to reload its configuration, and print what changed",
  settings: CLIENT_TABLE,
  remedy: "the gateway reloads the file that it was started with",
  async run(given) {
    const { url, user, password, caPath } = accepted(readClientSettings(given.flags, process.env));
    const ca = caPath === null ? null : readAuthorities(caPath, "ADMIN_CA_PATH");
    return asAdmin({ url, user, password, ca }, async (ask) => {
      const answer = await ask("POST", "/gateway/reload");
      // Usually the gateway has already reloaded the changed file when the command runs: then the last change is printed.
      const status = Array.isArray(answer.json.changes) && answer.json.changes.length === 0 ? await ask("GET", "/gateway/status") : null;
      return print(answer, status?.json.last_change, url);
    });
  },
};

function print(answer: AdminAnswer, lastChange: unknown, url: string): ExitCode {
  const { digest, changes, issues } = answer.json;
  if (answer.status === 200 && Array.isArray(changes)) {
    const lines = linesOf(changes);
    if (lines.length === 0) lines.push("the text has not changed; its secrets were resolved again");
    const { at, by, changes: earlier } = (lastChange ?? {}) as Readonly<Record<string, unknown>>;
    if (Array.isArray(earlier)) lines.push(`the last change was at ${String(at)} (${String(by)}):`, ...linesOf(earlier));
    process.stdout.write(printable([...lines, `configuration ${String(digest)} is in force`]));
    return 0;
  }
  if (answer.status === 422 && Array.isArray(issues)) {
    process.stderr.write(printable([...issues.map(String), `The configuration was refused; ${String(digest)} stays in force.`]));
    return 2;
  }
  throw unexpected(answer, "POST /gateway/reload", url);
}

function linesOf(changes: readonly (Partial<Change> | null)[]): string[] {
  return changes.map((each) => `${String(each?.change).padEnd(9)}${String(each?.name)}`);
}

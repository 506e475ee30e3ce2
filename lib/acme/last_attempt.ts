/**
 * What the last attempt of a fleet has left, in `attempt.json`: whichever gateway orders next waits as long as the one
 * that has failed would have.
 */
import { isJsonObject, textIn } from "./json_members.ts";
import type { AcmeFiles } from "./contracts.ts";
import type { PausesLeft } from "./pauses.ts";

export interface LastAttempt {
  /** Whose directory it was. */
  readonly directory: string;
  /** In words. */
  readonly error: string;
  /** What stands against hosts, each alone. */
  readonly hosts: ReadonlyMap<string, string>;
  readonly pauses: PausesLeft;
}

/** Null: it has succeeded, or there was none. */
export function readAttempt(files: AcmeFiles): LastAttempt | null {
  try {
    const value: unknown = JSON.parse(String(files.read(FILE) ?? "null"));
    if (!isJsonObject(value)) return null;
    const { hosts, pauses } = value;
    const [directory, error] = [textIn(value, "directory"), textIn(value, "error")];
    if (directory === null || error === null || !isJsonObject(pauses)) return null;
    const number = (name: string) => Math.max(0, Number(pauses[name]) || 0);
    return {
      directory,
      error,
      hosts: new Map(Object.entries(isJsonObject(hosts) ? hosts : {}).map(([host, reason]) => [host, String(reason)])),
      // Durations: the clocks of two machines are not compared.
      pauses: { failures: number("failures"), backOffMs: number("backOffMs"), askedMs: number("askedMs") },
    };
  } catch {
    // Nothing is lost but a pause.
    return null;
  }
}

/** Null removes it. Rejects as the files do. */
export async function writeAttempt(files: AcmeFiles, attempt: LastAttempt | null): Promise<void> {
  if (attempt === null) return files.remove(FILE);
  const { hosts, ...rest } = attempt;
  await files.write(FILE, Buffer.from(JSON.stringify({ ...rest, hosts: Object.fromEntries(hosts) })));
}

const FILE = "attempt.json";

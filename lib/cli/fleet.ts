/**
 * `edge-gateway fleet`: prints what the gateways of a configuration in etcd run, or waits until all of them run the
 * same.
 */
import { systemClock } from "../base/clock.ts";
import { EtcdClient } from "../source/etcd_client.ts";
import { EtcdFailure } from "../source/etcd_failure.ts";
import { etcdOptions } from "../source/etcd_options.ts";
import { fleetEntries, type ListedEntry } from "../source/fleet_entries.ts";
import type { Arguments, RunCommand } from "./arguments.ts";
import { counted } from "./counted.ts";
import { etcdSettings } from "./etcd_settings.ts";
import { Failure, type ExitCode } from "./failure.ts";
import { printable, withoutAnyControls, withoutControls } from "./terminal.ts";

/** 0: printed, or all run the digest. 1: one has refused it, the time is over, or etcd cannot be asked. */
export const fleet: RunCommand = async (given) => {
  const [named] = given.operands;
  if (named === undefined)
    throw new Failure("fleet needs the URL of a key: edge-gateway fleet etcd://HOST:2379/KEY", 2);
  const wait = waitOf(given);
  const settings = etcdSettings(named, given);
  const client = new EtcdClient(etcdOptions(settings, systemClock));
  try {
    const { path: key, name } = settings.url;
    if (wait !== null) return await waitFor(wait, () => fleetEntries(client, key), name, given);
    print(await fleetEntries(client, key), name, given);
    return 0;
  } catch (error) {
    throw error instanceof EtcdFailure ? new Failure(error.message, 1) : error;
  } finally {
    client.close();
  }
};

interface Wait {
  readonly digest: string;
  readonly timeoutMs: number;
}

function waitOf({ flags }: Arguments): Wait | null {
  const { wait, timeout } = flags;
  if (wait === undefined) {
    if (timeout !== undefined) throw new Failure("--timeout is for --wait DIGEST", 2);
    return null;
  }
  const digest = String(wait).toLowerCase();
  if (!/^[0-9a-f]{12,64}$/.test(digest))
    throw new Failure("--wait: expected a digest, 12 hexadecimal digits or more, as edge-gateway publish prints it", 2);
  const seconds = timeout === undefined ? DEFAULT_TIMEOUT_S : Number(timeout);
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 86_400)
    throw new Failure(`--timeout: expected an integer 1–86400, found ${JSON.stringify(timeout)}`, 2);
  return { digest: digest.slice(0, DIGEST_LENGTH), timeoutMs: seconds * 1000 };
}

async function waitFor(
  { digest, timeoutMs }: Wait,
  list: () => Promise<ListedEntry[]>,
  name: string,
  given: Arguments,
): Promise<ExitCode> {
  const endsAt = performance.now() + timeoutMs;
  for (;;) {
    const answer = await list().catch((error: unknown) => {
      if (error instanceof EtcdFailure) return error;
      throw error;
    });
    const listed = answer instanceof EtcdFailure ? null : answer;
    const refusing = listed?.find(({ entry }) => entry?.refused?.digest === digest);
    const isEverywhere = listed !== null && listed.length > 0 && listed.every(({ entry }) => entry?.digest === digest);
    if (refusing === undefined && !isEverywhere && performance.now() < endsAt) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(LOOK_MS, Math.max(0, endsAt - performance.now()))));
      continue;
    }
    if (listed !== null) print(listed, name, given);
    if (isEverywhere && refusing === undefined) return 0;
    const seconds = timeoutMs / 1000;
    if (refusing !== undefined)
      throw new Failure(
        withoutControls(`${refusing.entry!.name} has refused ${digest}: ${refusing.entry!.refused!.reason}`),
        1,
      );
    if (answer instanceof EtcdFailure) throw answer;
    if (answer.length === 0) throw new Failure(`no gateway has an entry below ${name} after ${seconds} s`, 1);
    const others = answer.filter(({ entry }) => entry?.digest !== digest);
    throw new Failure(
      `${counted(others.length, "gateway")} of ${answer.length} do not run ${digest} after ${seconds} s`,
      1,
    );
  }
}

function print(listed: readonly ListedEntry[], name: string, { flags }: Arguments): void {
  if (flags.json !== undefined) {
    const gateways = listed.map(({ id, entry }) => ({ id, ...(entry ?? { unreadable: true }) }));
    process.stdout.write(`${JSON.stringify(withoutAnyControls({ key: name, gateways }), null, 2)}\n`);
    return;
  }
  const rows = listed.map(({ id, entry }) =>
    entry === null
      ? [id, "–", "–", "–", "–", "an entry that no gateway has written"]
      : [
          entry.name,
          entry.version,
          entry.digest,
          entry.since,
          entry.ready ? "ready" : "not ready",
          entry.refused === undefined
            ? ""
            : `refused ${entry.refused.digest ?? "a missing text"}: ${entry.refused.reason}`,
        ],
  );
  const table = [["gateway", "version", "digest", "since", "state", "refused"], ...rows];
  const widths = table[0]!.map((_, column) => Math.max(...table.map((row) => row[column]!.length)));
  const lines = table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join("  ")
      .trimEnd(),
  );
  process.stdout.write(printable([...(rows.length === 0 ? ["no gateway has an entry"] : lines), READ_ONLY]));
}

const READ_ONLY = "Gateways with CONFIG_READ_ONLY=true have no entry, and are not counted.";
const DEFAULT_TIMEOUT_S = 60;
const LOOK_MS = 500;
/** Of the digest of a configuration. */
const DIGEST_LENGTH = 12;

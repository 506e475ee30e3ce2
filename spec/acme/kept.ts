/** A keeper with a directory of its own and a clock by hand. */
import { X509Certificate } from "node:crypto";
import { onTestFinished } from "vitest";
import type { AcmeSettings, CertificateKeeper, Challenge, IssuedCertificate } from "../../lib/acme/contracts.ts";
import { keepCertificates, type KeeperTools } from "../../lib/acme/keeper.ts";
import { systemClock, type Clock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { memoryFiles, type MemoryFiles } from "../support/acme_files.ts";
import { CA } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { fakeDirectory, type FakeDirectory } from "./fake_directory.ts";

export interface KeptClock extends Clock {
  advance(ms: number): void;
  /** Sets the wall clock forwards, or back. */
  setWall(byMs: number): void;
  /** In milliseconds; null: no pause is waited for. */
  readonly pauseMs: number | null;
  /** Whether the limits of requests are of this clock, too. */
  hasLimits: boolean;
}

/** A part of the limit of a request: these take the time of the machine. */
const PART_OF_LIMIT_MS = 30_000 / 8;

export function keptClock(): KeptClock {
  const manual = manualClock();
  const pending = new Map<object, number>();
  let wallShift = 0;
  const clock: KeptClock = {
    now: () => manual.now(),
    wall: () => manual.wall() + wallShift,
    hasLimits: false,
    after(ms, run) {
      if (ms === PART_OF_LIMIT_MS && !clock.hasLimits) return systemClock.after(ms, run);
      const id = {};
      pending.set(id, ms);
      const timer = manual.after(ms, () => {
        pending.delete(id);
        run();
      });
      return {
        restart: () => timer.restart(),
        cancel() {
          pending.delete(id);
          timer.cancel();
        },
      };
    },
    advance: (ms) => manual.advance(ms),
    setWall(byMs) {
      wallShift += byMs;
    },
    get pauseMs() {
      const pauses = [...pending.values()].filter((ms) => ms <= 600_000);
      return pauses.length === 0 ? null : Math.min(...pauses);
    },
  };
  return clock;
}

export interface Kept {
  readonly keeper: CertificateKeeper;
  readonly directory: FakeDirectory;
  readonly clock: KeptClock;
  readonly files: MemoryFiles;
  readonly settings: AcmeSettings;
  /** Those that are answered now. */
  readonly challenges: Set<Challenge>;
  readonly presented: () => readonly IssuedCertificate[];
  /** Lines of the log. */
  readonly lines: string[];
  /** The same with other files or tools, and the same directory, clock and log. */
  again(settings?: Partial<AcmeSettings>, tools?: Partial<KeeperTools>): Kept;
  /** Lets pauses within an order pass until `holds`. */
  until(holds: () => boolean): Promise<void>;
  /** Lets pauses within an order pass until the keeper sleeps. */
  settled(): Promise<void>;
}

export async function kept(
  settings: Partial<AcmeSettings> = {},
  tools: Partial<KeeperTools> & { readonly files?: MemoryFiles } = {},
): Promise<Kept> {
  const clock = keptClock();
  const directory = await fakeDirectory(clock.wall);
  return keptWith(directory, clock, [], settings, { files: memoryFiles(), ...tools });
}

function keptWith(
  directory: FakeDirectory,
  clock: KeptClock,
  lines: string[],
  changed: Partial<AcmeSettings>,
  tools: Partial<KeeperTools> & { readonly files: MemoryFiles },
): Kept {
  const challenges = new Set<Challenge>();
  let presented: readonly IssuedCertificate[] = [];
  const settings: AcmeSettings = {
    directory: directory.url,
    email: "ops@example.com",
    hosts: ["a.example", "b.example"],
    ca: Buffer.from(CA.cert),
    challenge: "http-01",
    eab: null,
    profile: null,
    hostsAllowed: [],
    ...changed,
  };
  const keeper = keepCertificates(settings, {
    answers: {
      async present(open) {
        for (const each of open) challenges.add(each);
      },
      async remove(over) {
        for (const each of over) challenges.delete(each);
      },
    },
    clock,
    log: createLog({ write: (line) => void lines.push(line), wall: clock.wall }),
    proxy: null,
    random: () => 0.5,
    present: (certificates) => void (presented = certificates),
    ...tools,
  });
  onTestFinished(() => keeper.close());
  const until = async (holds: () => boolean) => {
    const end = Date.now() + 15_000;
    while (!holds()) {
      if (Date.now() > end) throw new Error(`not within 15 s: ${String(holds)}\n${JSON.stringify(keeper.state)}`);
      await new Promise((turn) => setImmediate(turn));
      if (keeper.state.state === "ordering" && clock.pauseMs !== null && !clock.hasLimits) clock.advance(clock.pauseMs);
    }
  };
  return {
    keeper,
    directory,
    clock,
    files: tools.files,
    settings,
    challenges,
    presented: () => presented,
    lines,
    again: (other = {}, others = {}) =>
      keptWith(directory, clock, lines, { ...changed, ...other }, { ...tools, ...others, files: tools.files }),
    until,
    settled: () => until(() => !["ordering", "starting"].includes(keeper.state.state) && clock.pauseMs !== null),
  };
}

/** A keeper that has a certificate. */
export async function keptValid(...given: Parameters<typeof kept>): Promise<Kept> {
  const made = await kept(...given);
  made.keeper.start();
  await made.settled();
  if (made.keeper.state.state !== "valid") throw new Error(JSON.stringify(made.keeper.state));
  return made;
}

export function namesOf({ cert }: IssuedCertificate): string {
  return new X509Certificate(cert).subjectAltName!;
}

/** Lets time pass to the next attempt, and the attempt. */
export async function nextAttempt({ keeper, clock, lines, until, settled }: Kept): Promise<void> {
  await settled();
  const before = lines.length;
  const ms = keeper.state.nextAt! - clock.wall();
  // The keeper looks every 30 seconds: months of that would take a while.
  const isLong = ms > 86_400_000;
  if (isLong) clock.setWall(ms);
  clock.advance(isLong ? 30_000 : ms);
  await until(() => lines.length > before || keeper.state.state === "valid");
  await settled();
}

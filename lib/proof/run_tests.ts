/**
 * Runs the tests of a configuration: each sends its requests through a scratch of its own and compares the last reply
 * with what it expects.
 */
import { setMaxListeners } from "node:events";
import { messageOf } from "../base/errors.ts";
import type { StepMeter } from "../base/linear_pattern.ts";
import type { verifyPassword } from "../base/password.ts";
import { manualClock } from "../base/manual_clock.ts";
import { paced, type NextTimeSlice } from "../base/time_slices.ts";
import type { Issue } from "../config/json.ts";
import { testsOf, type ConfigTest } from "../config/tests.ts";
import { concealerOf } from "../config/secrets.ts";
import type { Handler } from "../http/handler.ts";
import { discard } from "../http/reply.ts";
import type { RouteTable } from "../route/table.ts";
import type { ReceiveOptions } from "../server/inbound.ts";
import { collected } from "./made_request.ts";
import type { EarlyAnswer } from "../gateway/compile_types.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { receivingBy, type RouteTarget } from "../gateway/snapshot.ts";
import { viaNameOf } from "../gateway/upstreams.ts";
import { shownIssue } from "../gateway/refusal.ts";
import type { ShownIssue, TestReport, TestResult } from "../gateway/status.ts";
import { compare, type Compared, type Outcome } from "./comparison.ts";
import { displayed } from "./displayed.ts";
import { matchingTable, Scratch } from "./scratch.ts";
import { requestOf, serversOf, upstreamOf, type Forwarded } from "./stand_ins.ts";
import { passwordsOnce, TestTime, TestTimes, threadUsage } from "./test_time.ts";

export interface RunOptions {
  /** Runs only the tests whose name contains this text. Default: all. */
  readonly only?: string | undefined;
  /** The wall clock at the start of each test, in milliseconds since 1970. Default: now. */
  readonly wall?: number;
  /** Milliseconds of its own time after which a test fails that has no reply. Default 2000. */
  readonly maxTestMs?: number;
  /** Milliseconds of the time of all after which tests that have not begun fail, too. Default 10000. */
  readonly maxTotalMs?: number;
  /** See `ownAnswers`. Default: every request goes to its route. */
  readonly early?: EarlyAnswer | null;
  /** How the time of tests is measured. Default: as this thread computes and waits. */
  readonly usage?: typeof threadUsage;
  /** Verifies a password. Default: as the gateway does. */
  readonly verify?: typeof verifyPassword;
  /** Ends the run: tests without a result fail. */
  readonly signal?: AbortSignal;
  /**
   * Whether a result does not count, as it may depend on what is not known. `place`: the route of the last request;
   * empty if it had no reply. Default: all count.
   */
  readonly isOpen?: (test: ConfigTest, place: TestedRoute, passed: boolean) => boolean;
}

export type TestedRoute = { -readonly [Name in "service" | "route"]?: Outcome[Name] };

type Tested = Pick<ValidConfig, "config" | "kinds" | "callers" | "routing" | "tests" | "secrets">;

/** Never rejects: a plugin that throws, or never answers, fails its test. */
export async function runTests(valid: Tested, options: RunOptions = {}): Promise<TestReport> {
  const {
    only = "",
    wall = Date.now(),
    maxTestMs = 2_000,
    maxTotalMs = 10_000,
    usage = threadUsage,
    verify,
    signal,
    early = null,
    isOpen = () => false,
  } = options;
  const chosen = testsOf(valid).filter(({ name }) => name.includes(only));
  if (chosen.length === 0) return reportOf([]);
  const conceal = concealerOf(valid);
  // Each run listens, and there may be many at once.
  if (signal !== undefined) setMaxListeners(0, signal);
  let stop = () => {};
  const stopped = new Promise<Compared>((resolve) => (stop = () => resolve(failure(STOPPED))));
  signal?.addEventListener("abort", stop, { once: true });
  const bench: Bench = {
    valid,
    table: matchingTable(valid),
    receiving: receivingBy(valid, manualClock()),
    wall,
    slice: paced(),
    stopped,
    verify: passwordsOnce(verify),
    early,
  };
  const times = new TestTimes({ maxTestMs, maxTotalMs }, usage);
  const results: TestResult[] = [];
  let [next, notRun] = [0, 0];
  // A test that waits, for the hash of a password for instance, does not hold up the others.
  const lane = async () => {
    for (let i = next++; i < chosen.length; i = next++) {
      const expected = displayed(chosen[i]!.expected, conceal);
      const test = { ...chosen[i]!, expected };
      const place: TestedRoute = {};
      const { found, differences, differing, isLate }: Tried = signal?.aborted
        ? failure(STOPPED)
        : await runTest(test, bench, times, place);
      // Also messages of plugins may repeat what they were configured with.
      if (isOpen(chosen[i]!, place, differences.length === 0)) notRun++;
      else
        results[i] = {
          name: test.name,
          passed: differences.length === 0,
          expected,
          found,
          differences: differences.map(conceal),
          differing,
          ...(isLate && { late: isLate }),
        };
      await bench.slice();
    }
  };
  const lanes: Promise<void>[] = [];
  while (lanes.push(lane()) < LANES) await bench.slice();
  await Promise.all(lanes);
  times.close();
  signal?.removeEventListener("abort", stop);
  return { ...reportOf(results.filter((result) => result !== undefined)), ...(notRun > 0 && { notRun }) };
}

/** How many tests are under way at most. */
const LANES = 8;
const STOPPED = "not run: the run was stopped";

/** Of the tests that have failed, in an error: each error of a configuration is logged and stays in the status. */
const MAX_REPORTED = 100;

/** A test that has failed, and where it is. */
export interface FailedTest extends Omit<ShownIssue, "message">, Omit<TestResult, "passed" | "late"> {}

/** The first 100. */
export function failedTests(tests: Tested["tests"], report: TestReport): readonly FailedTest[] {
  return failedOf(tests, report).map(
    ({ test: { at, position, file }, result: { name, expected, found, differences, differing } }) => {
      const { message: _, ...place } = shownIssue({ at, position, message: "", ...(file !== undefined && { file }) });
      return { name, ...place, expected, found, differences, differing };
    },
  );
}

/** For a `ConfigError`: an issue for each of the first 100 tests that have failed, and one for the rest. */
export function failuresOf(tests: Tested["tests"], report: TestReport): readonly Issue[] {
  const more = report.failed - MAX_REPORTED;
  const rest =
    more > 0
      ? [
          {
            at: ["tests"],
            message: `${more} more ${more === 1 ? "test" : "tests"} failed: edge-gateway test lists all`,
            position: null,
          },
        ]
      : [];
  const issues = failedOf(tests, report).map(
    ({ test: { name, at, position, file }, result: { late, differences } }) => {
      const message = `${JSON.stringify(name)} ${late ? "ran out of time" : "failed"}: ${differences.join("; ")}`;
      return { at, message, position, ...(file !== undefined && { file }) };
    },
  );
  return [...issues, ...rest];
}

function failedOf(tests: Tested["tests"], report: TestReport) {
  const failed = new Map(report.tests.filter(({ passed }) => !passed).map((result) => [result.name, result]));
  return testsOf({ tests })
    .flatMap((test) => (failed.has(test.name) ? [{ test, result: failed.get(test.name)! }] : []))
    .slice(0, MAX_REPORTED);
}

/** Shared by all tests of a run. */
interface Bench {
  readonly valid: Tested;
  readonly table: RouteTable<RouteTarget>;
  readonly receiving: ReceiveOptions;
  readonly wall: number;
  /** Lets the event loop turn now and then, as the tests of a large configuration take long together. */
  readonly slice: NextTimeSlice;
  readonly stopped: Promise<Compared>;
  readonly verify: typeof verifyPassword;
  readonly early: EarlyAnswer | null;
}

interface Tried extends Compared {
  /** Whether it ran out of time. */
  readonly isLate?: true;
}

/** `place` gets the route of the last request. */
async function runTest(test: ConfigTest, bench: Bench, times: TestTimes, place: TestedRoute): Promise<Tried> {
  const { maxTestMs, maxTotalMs } = times.limits;
  const all = `all tests together may take ${inSeconds(maxTotalMs)}`;
  if (times.areOver) return { ...failure(`not run: ${all}`), isLate: true };
  const time = new TestTime();
  times.running.add(time);
  const trial = new Trial(test, bench, time, place);
  const late = time.isOver.then(() => {
    const why = times.areOver ? `no reply, and ${all}` : `no reply within ${inSeconds(maxTestMs)}`;
    return { ...failure(`${why}: ${trial.whereabouts}`), isLate: true } as const;
  });
  try {
    return await Promise.race([trial.run(), late, bench.stopped]);
  } catch (error) {
    return failure(messageOf(error));
  } finally {
    times.running.delete(time);
    trial.close();
  }
}

/** A reply that never ends must not fill the memory. */
const MAX_BODY_BYTES = 32 * 2 ** 20;

/** One test with all its state. */
class Trial {
  readonly #test: ConfigTest;
  readonly #bench: Bench;
  readonly #clock;
  readonly #scratch: Scratch;
  readonly #place: TestedRoute;
  #forwarded: Forwarded | null = null;
  /** The plugin that has the request; null: none has. */
  #holder: string | null = null;
  #abort = () => {};
  #isClosed = false;
  /** Requests so far, with the one that is under way. */
  #sent = 0;

  constructor(test: ConfigTest, bench: Bench, time: TestTime, place: TestedRoute) {
    this.#place = place;
    const { valid, table, wall, verify, early } = bench;
    this.#test = test;
    this.#bench = bench;
    this.#clock = manualClock(wall);
    this.#scratch = new Scratch(valid, table, {
      clock: this.#clock,
      early,
      upstream: upstreamOf(
        test.upstream,
        (request) => (this.#forwarded = request),
        viaNameOf(valid.config.global.name),
      ),
      ask: serversOf(test.answers),
      verifiedClaims: claimsOf(test.request.as),
      caller: test.request.as.caller,
      verifyPassword: (given, stored) => {
        time.waits++;
        return verify(given, stored).finally(() => time.waits--);
      },
      wrap:
        ({ name }, middleware) =>
        (next) => {
          const handler: unknown = middleware((exchange) => {
            this.#holder = null;
            return next(exchange);
          });
          if (typeof handler !== "function") return handler as Handler; // the chain refuses it
          return (exchange) => {
            this.#holder = name;
            return (handler as Handler)(exchange);
          };
        },
    });
  }

  /** For the message about a request without a reply. */
  get whereabouts(): string {
    if (this.#sent > 1) return `request ${this.#sent} of ${this.#test.request.times} was under way`;
    return this.#holder === null
      ? "a plugin did not return the upstream's reply"
      : `plugin ${this.#holder} did not answer (timers of plugins stand still in a test)`;
  }

  async run(): Promise<Compared> {
    const { times, everyMs } = this.#test.request;
    for (this.#sent = 1; this.#sent < times && !this.#isClosed; this.#sent++) {
      await this.#send();
      this.#clock.advance(everyMs);
      await this.#bench.slice();
    }
    const { fault, ...outcome } = await this.#send();
    const compared = await compare(this.#test, outcome, concealerOf(this.#bench.valid), this.#meter);
    if (compared.differences.length === 0) return compared;
    const { code } = outcome;
    const cause =
      fault !== null
        ? [`the gateway logs: ${fault}`]
        : code !== null && this.#test.expect.code === undefined
          ? [`the error code is ${code}`]
          : [];
    return { ...compared, differences: [...compared.differences, ...cause] };
  }

  get #meter(): StepMeter {
    let characters = 0;
    const spend = () => {
      if (this.#isClosed) throw new Error("the test is over");
      characters++;
    };
    return {
      spend,
      pause: async () => this.#bench.slice(),
      get isDue() {
        return characters % 1000 === 0;
      },
    };
  }

  /** Gives up a request that is under way. */
  close(): void {
    this.#isClosed = true;
    this.#abort();
    this.#scratch.close();
  }

  async #send(): Promise<Outcome & { /** For the log. */ readonly fault: string | null }> {
    const inbound = requestOf(
      this.#test.request,
      this.#bench.valid.config.global.httpsRedirect === undefined ? "http" : "https",
      {
        ...this.#bench.receiving,
        clock: this.#clock,
      },
    );
    const { call } = inbound;
    const { notes } = call;
    this.#forwarded = null;
    this.#abort = () => call.abort();
    try {
      const reply = await this.#scratch.serve(inbound);
      this.#abort = () => discard(reply);
      if (this.#isClosed) this.#abort();
      let bytes = 0;
      const { status, headers, body } = await collected(inbound, reply, async (more) => {
        bytes += more;
        if (bytes > MAX_BODY_BYTES) throw new Error(`the reply has more than ${MAX_BODY_BYTES / 2 ** 20} MiB`);
        // Pieces that are ready at once would keep the event loop from turning.
        await this.#bench.slice();
      });
      const { code, service, route, identity, fault } = notes;
      Object.assign(this.#place, { service, route });
      // A plugin may set the identity without a note for the log.
      const caller = (this.#forwarded as Forwarded | null)?.identity ?? identity;
      return { status, code, service, route, caller, forwarded: this.#forwarded, headers, body, fault };
    } finally {
      call.close();
      inbound.body?.destroy();
    }
  }
}

/** Of the token that the test's client has; null: it has none. A caller's is without other claims. */
function claimsOf({ jwt, caller }: ConfigTest["request"]["as"]): Readonly<Record<string, unknown>> | null {
  return caller === undefined ? (jwt ?? null) : { sub: caller, ...jwt };
}

function failure(difference: string): Compared {
  return { found: {}, differences: [difference], differing: [] };
}

function reportOf(tests: readonly TestResult[]): TestReport {
  const passed = tests.filter((test) => test.passed).length;
  return { passed, failed: tests.length - passed, tests };
}

function inSeconds(ms: number): string {
  return `${Math.round(ms) / 1000} s`;
}

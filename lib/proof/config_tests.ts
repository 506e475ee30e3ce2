/**
 * Runs the tests of a configuration for its gateway, and decides by their report whether the configuration may come
 * into force.
 */
import { ConfigError } from "../gateway/config_error.ts";
import type { ReadConfig } from "../gateway/config_reader.ts";
import type { Configuration } from "../gateway/configuration.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { ownAnswers } from "../gateway/snapshot.ts";
import type { TestReport } from "../gateway/status.ts";
import { failuresOf, runTests } from "./run_tests.ts";

/** Rejects with a `ConfigError` if a test fails; if all that failed ran out of time, only with "strict". */
export async function mustPass(
  configuration: Configuration,
  { valid, source }: ReadConfig,
  late: "strict" | "lenient",
): Promise<void> {
  const report = await reportOn(valid, configuration);
  configuration.checkOpen();
  configuration.noteTests(valid, report);
  const [first, ...more] = report.tests.filter(({ passed }) => !passed);
  if (first === undefined) return;
  if (late === "lenient" && first.late && more.every((test) => test.late)) {
    const fields = { tests: report.failed, first: first.name, reason: first.differences.join("; ") };
    return configuration.tools.log.warn("tests ran out of time; the gateway starts, a reload would be refused", fields);
  }
  throw new ConfigError(failuresOf(valid.tests, report), source.file);
}

/** Runs those of the configuration in force, see `Gateway.test`. */
export async function testInForce(configuration: Configuration, only?: string): Promise<TestReport> {
  const { snapshot, closing } = configuration;
  const report = await reportOn(snapshot, configuration, only);
  if (only === undefined && !closing.signal.aborted) configuration.noteTests(snapshot, report);
  return report;
}

async function reportOn(
  valid: ValidConfig,
  { features, tools, closing }: Configuration,
  only?: string,
): Promise<TestReport> {
  return runTests(valid, {
    only,
    wall: tools.clock.wall(),
    signal: closing.signal,
    early: ownAnswers(valid, features),
  });
}

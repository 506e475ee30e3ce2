/**
 * Sends the lines of both logs to a collector, where OTEL_LOGS_EXPORTER asks for it.
 */
import { waitAtMost } from "../base/clock.ts";
import { createLog, type Log, type LogFields } from "../base/log.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { OtlpExporter } from "../observe/otlp.ts";
import { LogLines } from "../observe/otlp_logs.ts";

/** Of logs that are sent: the lines, and a log of the same that is not sent. */
const sent = new WeakMap<Log, { readonly lines: LogLines; readonly plain: Log }>();
/** How long the last lines may take. In milliseconds. */
const LAST_MS = 1_000;

/** The program's log. Its lines are sent once there is a gateway. */
export function sentLog({ logLevel: level, logFormat: format }: Settings): Log {
  const lines = new LogLines();
  const plain = createLog({ level, format });
  const copied = createLog({ level, format: "json", write: lines.program });
  const both = (name: keyof Log) => (message: string, fields?: LogFields) => {
    plain[name](message, fields);
    copied[name](message, fields);
  };
  const log = { debug: both("debug"), info: both("info"), warn: both("warn"), error: both("error") };
  sent.set(log, { lines, plain });
  return log;
}

/** From now on the lines of both logs are sent, if `log` is of `sentLog`. */
export function exportLogs({ logsExport }: Settings, gateway: GatewayCore, log: Log): void {
  const found = sent.get(log);
  if (found === undefined) return;
  const { lines, plain } = found;
  const { clock, accessLog, configuration } = GatewayCore.internalsOf(gateway);
  const proxy = () => configuration.snapshot.egressProxy;
  // Failures are in the plain log: else they would be further lines, without end.
  lines.sendBy(new OtlpExporter({ settings: logsExport!, signal: "Logs", clock, log: plain, proxy }));
  accessLog.copy = lines;
}

/** Sends what waits, within a second. */
export async function endLogs(log: Log): Promise<void> {
  await waitAtMost(sent.get(log)?.lines.close() ?? Promise.resolve(), LAST_MS);
}

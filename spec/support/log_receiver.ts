/** A collector of logs that refuses what is not OTLP in JSON. */
import type { IncomingHttpHeaders } from "node:http";
import { otlpReceiver, type Answers } from "./otlp_receiver.ts";
import { readLogs, type ReadLine } from "./otlp_logs.ts";

export async function logReceiver(answers?: Answers) {
  const lines: ReadLine[] = [];
  const headers: IncomingHttpHeaders[] = [];
  const { origin, asked } = await otlpReceiver((received) => {
    headers.push(received.headers);
    lines.push(...readLogs(received.text));
  }, answers);
  return { origin, url: `${origin}/v1/logs`, lines, headers, asked };
}

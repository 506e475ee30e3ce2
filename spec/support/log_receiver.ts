/** A collector of logs that refuses what is not OTLP in JSON. */
import http from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished } from "vitest";
import { readLogs, type ReadLine } from "./otlp_logs.ts";

/** It answers with the status and the body of `answers`, or never with 0. */
export async function logReceiver(answers: { status: number; body?: string } = { status: 200 }) {
  const lines: ReadLine[] = [];
  const problems: unknown[] = [];
  const headers: http.IncomingHttpHeaders[] = [];
  let asked = 0;
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("error", () => {});
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      asked++;
      headers.push(request.headers);
      try {
        lines.push(...readLogs(String(Buffer.concat(chunks))));
      } catch (error) {
        problems.push(error);
      }
      if (answers.status > 0) response.writeHead(answers.status).end(answers.body ?? "{}");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
    expect(problems).toEqual([]);
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, url: `${origin}/v1/logs`, lines, headers, asked: () => asked };
}

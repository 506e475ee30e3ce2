/**
 * Measures the processor time of what goes to a collector for each request, through a whole gateway without sockets: an
 * access log that only this process gets, the same line sent as OTLP, and metrics sent each second.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { exportMetrics } from "../../lib/cli/metrics_export.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { GatewayCore } from "../../lib/gateway/gateway.ts";
import { OtlpExporter } from "../../lib/observe/otlp.ts";
import { LogLines } from "../../lib/observe/otlp_logs.ts";
import { answering, answers } from "./answering.ts";
import { printTable } from "./load.ts";

const ROUNDS = 9;
/** In nanoseconds, on a busy machine too. */
const MAX_NS = { logs: 60_000, metrics: 10_000 };

/** In a process of its own: what it costs to read is no part of it. */
const COLLECTOR =
  'const server = require("node:http").createServer((q, r) => q.resume().on("end", () => r.end("{}")));' +
  'server.listen(0, "127.0.0.1", () => console.log(server.address().port));';

/** Lines that are sent together. */
const BATCH = 512;

/**
 * Takes the batches of requests of a round, 8 by default. Prints a table; true when the bounds hold, and nothing was
 * lost.
 */
export async function otlp([given = "8"]: readonly string[]): Promise<boolean> {
  const requests = BATCH * Number(given);
  if (!(requests >= BATCH && requests <= 100 * BATCH)) throw new RangeError("a round has 1 to 100 batches");
  const collector = spawn(process.execPath, ["--eval", COLLECTOR], { stdio: ["ignore", "pipe", "inherit"] });
  const [port] = (await once(collector.stdout, "data")) as [Buffer];
  const url = `http://127.0.0.1:${String(port).trim()}/v1/x`;
  const log = createLog();
  const exporter = new OtlpExporter({ settings: { url }, signal: "Logs", clock: systemClock, log });
  const lines = new LogLines();
  lines.sendBy(exporter);
  const sent = gatewayWith(true);
  GatewayCore.internalsOf(sent).accessLog.copy = lines;
  const measured = gatewayWith(true, true);
  exportMetrics({ url, intervalMs: 1_000, temporality: "cumulative" }, measured, log);
  const rows = [
    { title: "no access log", gateway: gatewayWith(false), rounds: [] as number[] },
    { title: "access log", gateway: gatewayWith(true), rounds: [] as number[] },
    { title: "access log, and sent", gateway: sent, rounds: [] as number[] },
    { title: "access log, and metrics sent", gateway: measured, rounds: [] as number[] },
  ];
  // In turn, so that a moment in which the machine is busy hits all of them; the first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { gateway, rounds } of rows) {
      const before = process.cpuUsage();
      for (let done = 0; done < requests; done += BATCH) {
        await ask(gateway, BATCH);
        // As where a collector keeps up: a batch is sent while the next one comes.
        while (gateway === sent && exporter.exported + exporter.dropped < round * requests + done)
          await new Promise((resolve) => setTimeout(resolve, 1));
      }
      const { user, system } = process.cpuUsage(before);
      if (round > 0) rounds.push(((user + system) * 1e3) / requests);
    }
  }
  const { dropped } = exporter;
  for (const { gateway } of rows) await gateway.close(0);
  collector.kill();
  const medians = rows.map(({ rounds }) => [...rounds].sort((a, b) => a - b)[rounds.length >> 1]!);
  const [, logged, exported, counted] = medians as [number, number, number, number];
  printTable(
    ["figure", "ns a request", "of the access log's"],
    rows.map(({ title }, i) => [title, Math.round(medians[i]!), (medians[i]! / logged).toFixed(2)]),
  );
  console.log(`a line sent: ${Math.round(exported - logged)} ns; lines lost: ${dropped}; medians of ${ROUNDS} rounds`);
  return dropped === 0 && exported - logged < MAX_NS.logs && counted - logged < MAX_NS.metrics;
}

function gatewayWith(isLogged: boolean, areDurationsSent = false): Gateway {
  return new Gateway({
    config: { global: { access_log: { enabled: isLogged } }, services: [answering] },
    plugins: [answers],
    modules: withAllFeatures(),
    accessLog: () => {},
    areDurationsSent,
  });
}

async function ask(gateway: Gateway, requests: number): Promise<void> {
  for (let i = 0; i < requests; i++) {
    await gateway.inject({ url: "/items/42?size=large", headers: ["Host", "shop.example", "User-Agent", AGENT] });
    if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

const AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

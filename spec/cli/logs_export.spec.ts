import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { backend } from "../support/gateway.ts";
import { connectProxy } from "../support/connect_proxy.ts";
import { logReceiver } from "../support/log_receiver.ts";
import { closedPort } from "../support/origin.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";

const service = (port: number) => ({
  name: "s",
  base_path: "/a",
  upstreams: [{ host: "127.0.0.1", port }],
  routes: [{ path: "/{id}" }],
});

it(
  "with OTEL_LOGS_EXPORTER=otlp the lines of both logs are sent once, " + "with trace and span, over the egress proxy",
  async () => {
    const to = await logReceiver();
    const proxy = await connectProxy();
    const origin = await backend();
    const config = {
      global: { egress_proxy: { url: `http://127.0.0.1:${proxy.port}`, except: ["127.0.0.1"] } },
      services: [service(origin.port)],
    };
    const { port, child, ended } = await runningProgram(config, [], {
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: `${to.origin.replace("127.0.0.1", "logs.test")}/v1/logs`,
      OTEL_EXPORTER_OTLP_LOGS_HEADERS: "x-key=k",
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `http://127.0.0.1:${await closedPort()}`,
      OTEL_SERVICE_NAME: "edge",
    });
    for (let i = 0; i < 5; i++) expect((await fetch(`http://127.0.0.1:${port}/a/${i}?key=secret`)).status).toBe(200);
    expect((await fetch(`http://127.0.0.1:${port}/nowhere`)).status).toBe(404);
    child.kill("SIGTERM");
    const { stdout, stderr, code } = await ended;
    expect(code).toBe(0);
    const of = (log: string) => to.lines.filter(({ attributes }) => attributes["edge_gateway.log"] === log);
    const written = logLines(stdout);
    expect(of("access").map(({ attributes }) => attributes["edge_gateway.request_id"])).toEqual(
      written.map((line) => line["request_id"]),
    );
    expect(of("access").map(({ traceId, spanId }) => [traceId, spanId])).toEqual(
      written.map((line) => [line["trace_id"], line["span_id"]]),
    );
    expect(of("access")).toHaveLength(6);
    expect(of("access").every(({ spanId }) => spanId !== undefined)).toBe(true);
    expect(of("access").map(({ body }) => body)).toContain("GET /a/3 200");
    expect(of("program").map(({ body }) => body)).toEqual(logLines(stderr).map(({ message }) => message));
    expect(of("program").at(-1)!.body).toBe("stopped");
    expect(to.headers[0]).toMatchObject({ "x-key": "k", "content-type": "application/json" });
    expect(new Set(proxy.asked)).toContain(`logs.test:${new URL(to.origin).port}`);
  },
);

it(
  "a receiver that never answers delays the end by a second at most, and no request; " +
    "losses are counted in the metrics",
  async () => {
    const to = await logReceiver({ status: 0 });
    const origin = await backend();
    const { port, child, ended, started } = await runningProgram({ services: [service(origin.port)] }, [], {
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: to.url,
      OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: "50",
      ADMIN_USER: "a",
      ADMIN_PASSWORD: "password-of-a-test",
    });
    const lost = async () => {
      const authorization = `Basic ${Buffer.from("a:password-of-a-test").toString("base64")}`;
      const metrics = await fetch(`${started["admin"] as string}/metrics`, { headers: { authorization } });
      return /edge_gateway_otlp_lost_total\{signal="logs"\} (\d+)/.exec(await metrics.text())?.[1];
    };
    expect(await lost()).toBe("0");
    for (let i = 0; i < 3; i++) expect((await fetch(`http://127.0.0.1:${port}/a/${i}`)).status).toBe(200);
    await eventually(() => to.asked() >= 2);
    child.kill("SIGTERM");
    const { code, stdout, stderr } = await ended;
    expect(code).toBe(0);
    expect(logLines(stdout)).toHaveLength(3);
    const messages = logLines(stderr).map(({ message }) => message);
    const said = messages.filter((message) => message === "log lines for the collector were lost");
    // The first loss, at the end all others, and the last lines.
    expect(said.length).toBeGreaterThan(0);
    expect(said.length).toBeLessThanOrEqual(3);
  },
);

it("at its end traces, metrics and logs wait for a collector together, not one after the other", async () => {
  const waiting = new Map<string, ServerResponse>();
  const server = createServer((request, response) => void waiting.set(request.url!, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const origin = await backend();
  const { port, child, ended } = await runningProgram({ services: [service(origin.port)] }, [], {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    OTEL_LOGS_EXPORTER: "otlp",
    OTEL_METRICS_EXPORTER: "otlp",
  });
  expect((await fetch(`http://127.0.0.1:${port}/a/1`)).status).toBe(200);
  child.kill("SIGTERM");
  const paths = ["/v1/logs", "/v1/metrics", "/v1/traces"];
  // Each request ends without an answer 0.9 seconds after its beginning.
  await eventually(() => paths.every((path) => waiting.get(path)?.destroyed === false), "three requests at once");
  for (const path of paths) waiting.get(path)!.end("{}");
  server.on("request", (_request, response: ServerResponse) => response.end("{}"));
  expect((await ended).code).toBe(0);
});

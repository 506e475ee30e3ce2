import { expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { logReceiver } from "../support/log_receiver.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { nodeOf } from "./nodes.ts";

it.each(["json", "combined"])(
  "workers with an access log in %s send each line of both logs once, whatever the format of the program's log",
  async (format) => {
    const to = await logReceiver();
    const origin = await backend();
    const upstreams = [{ host: "127.0.0.1", port: origin.port }];
    const config = {
      global: { access_log: { format } },
      services: [{ name: "s", base_path: "/a", upstreams, routes: [{ path: "/{id}" }] }],
    };
    const environment = {
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: to.url,
      LOG_LEVEL: "debug",
    };
    const { port, child, ended } = await runningProgram(config, ["--workers", "2"], environment, nodeOf(24));
    for (let i = 0; i < 20; i++) expect((await fetch(`http://127.0.0.1:${port}/a/${i}`)).status).toBe(200);
    child.kill("SIGTERM");
    const { stdout, stderr, code } = await ended;
    expect(code).toBe(0);
    const of = (log: string) => to.lines.filter(({ attributes }) => attributes["edge_gateway.log"] === log);
    const bodies = of("access").map(({ body }) => body);
    if (format === "combined") expect(bodies).toEqual(stdout.trimEnd().split("\n"));
    else expect(bodies.sort()).toEqual(Array.from({ length: 20 }, (_, i) => `GET /a/${i} 200`).sort());
    expect(of("program").map(({ body }) => body)).toEqual(logLines(stderr).map(({ message }) => message));
  },
);

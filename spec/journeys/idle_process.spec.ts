/**
 * What a gateway keeps open does not keep its host's process alive. No test waits for a time: a process that stays
 * would stay for an hour.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { backend, gate, restartableBackend } from "./harness.ts";

const LIBRARY = pathToFileURL("lib/index.ts").href;
const HOUR_MS = 3_600_000;

/**
 * Runs lines of a host's program that has the library as `edge` and the configuration as `config`; resolves with what
 * it sent, and its exit code.
 */
async function host(config: unknown, lines: string): Promise<{ readonly sent: unknown[]; readonly code: number }> {
  const file = join(emptyFolder(), "host.mjs");
  writeFileSync(
    file,
    `import * as edge from ${JSON.stringify(LIBRARY)};\nconst config = ${JSON.stringify(config)};\n${lines}\n`,
  );
  const child = fork(file, { execArgv: ["--import", "tsx"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const sent: unknown[] = [];
  child.on("message", (message) => sent.push(message));
  const [code] = (await once(child, "exit")) as [number];
  return { sent, code };
}

const INJECT =
  'const { status } = await edge.createGateway({ config }).inject({ url: "/a/x" });\nprocess.send(status);';

describe("a host's process with a gateway that it does not close", () => {
  it("ends after an injected request, although the connection to the upstream is kept", async () => {
    const upstream = await backend();
    const config = oneService(upstream.port, {
      pool: { keepalive_idle_ms: HOUR_MS },
      health: { enabled: true, path: "/up", interval_ms: 60_000 },
    });
    expect(await host(config, INJECT)).toEqual({ sent: [200], code: 0 });
  });

  it("ends after an injected request over HTTP/2", async () => {
    const { port } = await restartableBackend("h2c");
    expect(await host(oneService(port, { protocol: "h2c", pool: { keepalive_idle_ms: HOUR_MS } }), INJECT)).toEqual({
      sent: [200],
      code: 0,
    });
  });

  it("does not end while an injected request waits for its reply", async () => {
    const asked = gate();
    const go = gate();
    const upstream = await backend(async (_request, response) => {
      asked.open();
      await go.opened;
      response.end("late");
    });
    const ended = host(oneService(upstream.port), INJECT);
    await asked.opened;
    // The child has nothing but the request: it has had many turns to end by itself when the origin has answered this
    // one.
    for (let i = 0; i < 50; i++) await new Promise(setImmediate);
    go.open();
    expect(await ended).toEqual({ sent: [200], code: 0 });
  });
});

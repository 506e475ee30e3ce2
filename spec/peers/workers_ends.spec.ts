import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, constants, openSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { over } from "../support/kept_client.ts";
import { emptyFolder, fileWith, logLines } from "../support/process.ts";
import { until } from "./redis.ts";
import { clientOn, probeModule, withWorkers, workersOn, type Workers } from "./workers.ts";

/**
 * A plugin kind that a query has wait for a pipe in a native call, or end its thread once the upstream has answered.
 */
const moduleWith = (pipe: string) => {
  const code = `import { execFileSync } from "node:child_process";
export default ({ definePlugin, schema }) => definePlugin({
  name: "ending",
  schema: schema.object({}),
  create: () => (next) => async (exchange) => {
    if (exchange.query === "?native") execFileSync("cat", [${JSON.stringify(pipe)}]);
    const reply = await next(exchange);
    if (exchange.query === "?late") process.exit(4);
    return reply;
  },
});
`;
  return { path: fileWith(code, "ending.mjs"), sha256: createHash("sha256").update(code).digest("hex") };
};

const BOTH = { plugins: [{ name: "ending" }, { name: "probe" }] };
const messages = (running: Workers) => logLines(running.stderr()).map(({ message }) => message);
const ended = (running: Workers) =>
  logLines(running.stderr()).filter(({ message }) => message === "a worker has ended and is replaced");

/** Asks over a new connection from this address until it is answered; whatever is refused or cut is asked again. */
async function answered(port: number, path: string, localAddress: string): Promise<number> {
  for (;;) {
    const socket = net.connect({ port, host: "127.0.0.1", localAddress });
    const client = over(socket);
    const answer = await client.ask(path).catch(() => null);
    client.close();
    if (answer !== null) return answer.status;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Sends a request that ends the worker that it reaches. */
async function kill(port: number, path: string, localAddress: string): Promise<void> {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress });
  await over(socket)
    .ask(path)
    .catch(() => {});
}

describe("a request that ends its worker again and again", () => {
  it(
    "leaves others served, since one place at a time waits, and its route, " + "plugin and client are named in the log",
    async () => {
      const { port } = await backend();
      const routes = [
        { name: "boom", path: "/boom" },
        { name: "rest", path: "/{rest*}" },
      ];
      const config = oneService(port, { plugins: [{ name: "probe" }], routes }, { plugin_modules: [probeModule()] });
      const running = await withWorkers(config, { workers: 3 });
      const waitsSomewhere = () => ended(running).some(({ pause_s }) => Number(pause_s) > 0);
      // On a slow machine no second worker may have been ready when the first ended: then none waits.
      for (let ends = 1; ends <= 12 || !waitsSomewhere(); ends++) {
        while ((await statusOf(running)).workers.serving < 2) await new Promise((resolve) => setTimeout(resolve, 10));
        while (ended(running).length < ends) await kill(running.port, "/a/boom?exit", "127.0.0.9");
        expect(await answered(running.port, "/a/x", "127.0.0.1")).toBe(200);
      }
      // Which place waits after each event: none two at once.
      const waits = new Map<unknown, number>();
      let most = 0;
      for (const { message, worker, time, pause_s } of logLines(running.stderr())) {
        const at = Date.parse(String(time));
        for (const [place, until] of waits) if (until <= at) waits.delete(place);
        if (message === "a worker is started before its time, since no other serves") waits.delete(worker);
        if (message === "a worker has ended and is replaced" && Number(pause_s) > 0)
          waits.set(worker, at + Number(pause_s) * 1_000);
        most = Math.max(most, waits.size);
      }
      expect(most).toBe(1);
      const ends = ended(running);
      const named = logLines(running.stderr()).filter(
        ({ message }) => message === "was in flight whenever workers ended",
      );
      expect(named).toHaveLength(ends.length - 1);
      expect(named.at(-1)).toMatchObject({
        level: "error",
        ends: ends.length,
        routes: { "s boom": ends.length },
        plugins: { probe: ends.length },
        clients: { "127.0.0.9": ends.length },
      });
    },
  );
});

/** A pipe that nobody writes; `release` lets all go on that wait for it. */
function pipe() {
  const path = join(emptyFolder(), "pipe");
  execFileSync("mkfifo", [path]);
  const release = () => {
    try {
      closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
    } catch {
      // Nobody waits.
    }
  };
  onTestFinished(release);
  return { path, release };
}

interface Status {
  readonly in_flight: number;
  readonly workers: { readonly configured: number; readonly serving: number; readonly restarts: number };
  readonly warnings: readonly { readonly code: string }[];
}

const statusOf = async (running: Workers) => JSON.parse(await running.admin("/gateway/status")) as Status;

describe("a worker that hangs in a native call", () => {
  /** Resolves when one of two workers has been found to hang. */
  async function stuck(SHUTDOWN_GRACE_S: string) {
    const [{ port }, { path, release }] = [await backend(), pipe()];
    const running = await withWorkers(oneService(port, BOTH, { plugin_modules: [moduleWith(path), probeModule()] }), {
      environment: { SHUTDOWN_GRACE_S },
    });
    const [victim, healthy] = (await workersOn(running.port, 2)) as [number, number];
    const [client, other] = [
      await clientOn(running.port, (worker) => worker === victim),
      await clientOn(running.port, (worker) => worker === healthy),
    ];
    const lost = client.ask("/a/x?native").catch((error: Error) => error);
    await running.says("a worker hangs and is being ended");
    return { running, release, lost, other };
  }

  async function endsByItsGrace(): Promise<void> {
    const { running, other } = await stuck("1");
    const { workers, warnings } = await statusOf(running);
    expect(workers).toEqual({ configured: 2, serving: 1, restarts: 0 });
    expect(warnings.map(({ code }) => code)).toContain("workers_missing");
    expect((await fetch(`${running.adminUrl}/readyz`)).status).toBe(200);
    await running.says("a worker serves again");
    expect((await statusOf(running)).workers).toEqual({ configured: 2, serving: 2, restarts: 1 });
    expect(ended(running)).toEqual([
      expect.objectContaining({ error: expect.stringMatching(/no sign of life for 10 seconds/) }),
    ]);
    expect((await other.ask("/a/x")).status).toBe(200);
    other.close();
    await until(async () => (await statusOf(running)).in_flight === 0);
    running.child.kill("SIGTERM");
    expect(await running.ended).toMatchObject({
      signal: "SIGKILL",
      stderr: expect.stringContaining("the process is killed, since a call of a plugin"),
    });
  }

  async function endsWithItsCall(): Promise<void> {
    const { running, release, lost, other } = await stuck("30");
    await running.says("a worker serves again");
    release();
    expect(await lost).toBeInstanceOf(Error);
    expect((await other.ask("/a/x")).status).toBe(200);
    other.close();
    running.child.kill("SIGTERM");
    expect(await running.ended).toMatchObject({ code: 0, signal: null });
    expect(ended(running)).toHaveLength(1);
  }

  // Both wait for ten seconds.
  it(
    "is said to hang, does not count as serving, and is replaced; " +
      "the program ends by its grace while the call lasts, and holds nothing once it ends",
    async () => {
      await Promise.all([endsByItsGrace(), endsWithItsCall()]);
    },
  );
});

describe("a worker that ends during the drain", () => {
  it("is logged as such, with its reason, and is not replaced", async () => {
    const held = new Map<string, () => void>();
    const { port } = await backend((request, response) => void held.set(request.url!, () => response.end()));
    const running = await withWorkers(oneService(port, BOTH, { plugin_modules: [moduleWith("none"), probeModule()] }));
    const scouting = setInterval(() => held.get("/which")?.(), 1);
    const [victim, other] = (await workersOn(running.port, 2)) as [number, number];
    const clients = [
      await clientOn(running.port, (worker) => worker === victim),
      await clientOn(running.port, (worker) => worker === other),
    ] as const;
    clearInterval(scouting);
    const [cut, whole] = [
      expect(clients[0].ask("/a/cut?late")).rejects.toThrow("the connection ended"),
      clients[1].ask("/a/whole"),
    ];
    await until(() => held.has("/cut?late") && held.has("/whole"));
    running.child.kill("SIGTERM");
    await running.says("draining");
    held.get("/cut?late")!();
    await cut;
    held.get("/whole")!();
    expect((await whole).status).toBe(200);
    await running.ended;
    const lines = logLines(running.stderr()).filter(({ message }) => message === "a worker has ended during the drain");
    expect(lines).toEqual([expect.objectContaining({ level: "error", exit_code: 4, error: "it exited with code 4" })]);
    expect(messages(running)).not.toContain("a worker has ended and is replaced");
  });
});

import { createHash } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { stale, type Versioned } from "../support/admissions.ts";
import { backend, oneService } from "../support/gateway.ts";
import { keptClient } from "../support/kept_client.ts";
import { RELEASES } from "./nodes.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

const RELOADS = 100;
/** Requests that a client sends over one connection. */
const KEPT = 200;

/** Clients that ask one request after the other, and connect again after some; what answered, and what failed. */
function load(port: number, clients: number) {
  const answers: (Versioned & { readonly worker: string })[] = [];
  const failures: string[] = [];
  let isStopped = false;
  const one = async () => {
    while (!isStopped) {
      const client = await keptClient(port);
      for (let i = 0; i < KEPT && !isStopped; i++) {
        const { status, headers, sent } = await client.ask("/a/x");
        if (status !== 200) failures.push(`status ${status}`);
        answers.push({
          sent,
          at: Number(headers["x-at"]),
          version: Number(headers["x-set"]),
          worker: headers["x-worker"]!,
        });
      }
      client.close();
    }
  };
  const running = Promise.all(Array.from({ length: clients }, one)).catch(
    (error: Error) => void failures.push(error.message),
  );
  return {
    answers,
    failures,
    stop: () => {
      isStopped = true;
      return running;
    },
  };
}

describe.each(RELEASES)("reloads of two workers on Node %i", (release) => {
  it(
    "a hundred under load, some refused by one worker: all workers take a configuration or none, " +
      "at once, and no request is lost",
    async () => {
      const { port } = await backend();
      const plugin_modules = [probeModule()];
      const config = (set: number, refused_in: number) =>
        oneService(port, { plugins: [{ name: "probe", config: { set, refused_in } }] }, { plugin_modules });
      const running = await withWorkers(config(0, -1), { release });
      const threads = await workersOn(running.port, 2);
      const under = load(running.port, 8);
      const askers = await Promise.all(threads.map((thread) => clientOn(running.port, (worker) => worker === thread)));
      const refused: number[] = [];
      let inForce = 0;
      for (let set = 1; set <= RELOADS; set++) {
        const refusedIn = [-1, -1, -1, -1, ...threads][Math.floor(Math.random() * 6)]!;
        writeFileSync(`${running.file}.new`, JSON.stringify(config(set, refusedIn)));
        renameSync(`${running.file}.new`, running.file);
        const said = await running.admin("/gateway/reload", "POST");
        if (refusedIn === -1) inForce = set;
        else {
          refused.push(set);
          expect(said).toContain(`thread ${refusedIn} refuses ${set}`);
        }
        const answers = await Promise.all(askers.map((asker) => asker.ask("/a/x")));
        expect([said, ...answers.map(({ headers }) => headers["x-set"])]).toEqual([
          said,
          String(inForce),
          String(inForce),
        ]);
      }
      await under.stop();
      const { answers, failures } = under;
      expect(failures).toEqual([]);
      expect(answers.length).toBeGreaterThan(RELOADS);
      expect(new Set(answers.map(({ worker }) => worker))).toEqual(new Set(threads.map(String)));
      expect(refused.length).toBeGreaterThan(0);
      expect(answers.filter(({ version }) => refused.includes(version))).toEqual([]);
      expect(stale(answers)).toEqual([]);
    },
  );

  it(
    "every worker loads the plugin kinds and the client for HTTP/2 that only the new configuration names, " +
      "before it serves with it",
    async () => {
      const { port } = await backend();
      const plugin_modules = [probeModule()];
      const probe = { name: "probe", config: { set: 1, refused_in: -1 } };
      const running = await withWorkers(oneService(port, { plugins: [probe] }, { plugin_modules }), { release });
      const teapot = { name: "request_termination", config: { status: 418 } };
      const next = oneService(port, { protocol: "h2c", plugins: [probe, teapot] }, { plugin_modules });
      const threads = await workersOn(running.port, 2);
      const clients = await Promise.all(threads.map((thread) => clientOn(running.port, (worker) => worker === thread)));
      const text = JSON.stringify(next);
      writeFileSync(running.file, text);
      // The watcher of the file may be first: then this one changes nothing.
      expect(await running.admin("/gateway/reload", "POST")).toContain(
        `"digest":"${createHash("sha256").update(text).digest("hex").slice(0, 12)}"`,
      );
      expect(await Promise.all(clients.map(async (client) => (await client.ask("/a/x")).status))).toEqual([418, 418]);
      for (const client of clients) client.close();
    },
  );
});

import { rmSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, textOf } from "../support/process.ts";
import { pinned, signed, signingKeys } from "../support/signing_keys.ts";
import { RELEASES } from "./nodes.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

describe.each(RELEASES)("two workers with a configuration that must be signed, on Node %i", (release) => {
  it(
    "serve what the main thread has checked, refuse what is unsigned, " +
      "and a worker that is replaced gets the checked bytes",
    async () => {
      const { port } = await backend();
      const keys = signingKeys();
      const plugin_modules = [probeModule()];
      const tests = fileWith("[]", "tests.json");
      const named = pinned(tests);
      const config = (set: number) => ({
        ...oneService(port, { plugins: [{ name: "probe", config: { set } }] }, { plugin_modules }),
        test_files: [named],
      });
      const words = ["--config-key", fileWith(keys.publicKey, "public.pem")];
      const running = await withWorkers(config(1), { release, words, before: (file) => void signed(file, keys) });
      const threads = await workersOn(running.port, 2);
      const setsOf = async (workers: readonly number[]) => {
        const answers = workers.map(async (thread) => {
          const client = await clientOn(running.port, (worker) => worker === thread);
          const { headers } = await client.ask("/a/x");
          return headers["x-set"];
        });
        return Promise.all(answers);
      };
      writeFileSync(running.file, textOf(config(2)));
      expect(await running.admin("/gateway/reload", "POST")).toContain(
        "is not signed by the public key: it was changed after signing",
      );
      expect(await setsOf(threads)).toEqual(["1", "1"]);
      signed(running.file, keys);
      await running.admin("/gateway/reload", "POST");
      expect(await setsOf(threads)).toEqual(["2", "2"]);
      writeFileSync(running.file, textOf(config(3)));
      rmSync(tests);
      const victim = await clientOn(running.port, (worker) => worker === threads[0]);
      await victim.ask("/a/x?exit").catch(() => {});
      const replaced = await clientOn(running.port, (worker) => !threads.includes(worker));
      expect((await replaced.ask("/a/x")).headers["x-set"]).toBe("2");
    },
  );
});

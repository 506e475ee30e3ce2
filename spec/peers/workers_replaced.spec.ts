import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../support/documents.ts";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, logLines, program, PROGRAM } from "../support/process.ts";
import { nodeOf, RELEASES } from "./nodes.ts";
import { probeModule } from "./workers.ts";

const REPLACED = "the program's files have been replaced since the start: restart it";

/** A copy of the program that may be changed. */
function copied(): string {
  const folder = emptyFolder();
  cpSync(dirname(dirname(PROGRAM)), join(folder, "dist"), { recursive: true });
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  return folder;
}

describe.each(RELEASES)("a gateway with workers on Node %s whose program files are replaced", (release) => {
  it(
    "refuses a reload that needs a replaced module in every thread, does not replace a worker that ends, " +
      "and replaces it once the files are as they were",
    async () => {
      const folder = copied();
      const { port } = await backend();
      const global = { plugin_modules: [probeModule()] };
      const config = (...plugins: readonly { readonly name: string; readonly config: object }[]) =>
        oneService(port, { plugins: [{ name: "probe" }, ...plugins] }, global);
      const file = fileWith(config());
      const words = ["--config", file, "--http-port", "0", "--listen-host", "127.0.0.1", "--workers", "2"];
      const running = program(words, { main: join(folder, "dist/bin/edge-gateway.js"), node: nodeOf(release) });
      await running.says(" started");
      const { http } = logLines(running.stderr()).find(({ message }) => String(message).endsWith(" started"))!;
      const [url] = http as string[];

      const acl = join(folder, "dist/lib/plugins/acl.js");
      const ofWorker = join(folder, "dist/lib/cluster/worker.js");
      const [first, second] = [readFileSync(acl), readFileSync(ofWorker)];
      rmSync(acl);
      writeFileSync(ofWorker, `process.stderr.write("other code runs\\n");`);
      writeFileSync(file, JSON.stringify(config({ name: "acl", config: { blacklist: ["10.0.0.1"] } })));
      running.child.kill("SIGHUP");
      await running.says("reload refused");
      expect(running.stderr()).toContain(REPLACED);

      await fetch(`${url}/a/x?exit`).catch(() => {});
      const isTold = new RegExp(`"a worker has ended and is replaced"[^\\n]*"error":"${REPLACED}`);
      await running.says(isTold);
      expect((await fetch(`${url}/a/x`)).status).toBe(200);
      expect(running.stderr()).not.toContain("other code runs");

      writeFileSync(acl, first);
      writeFileSync(ofWorker, second);
      await running.says("a worker serves again");
      expect(running.stderr()).not.toContain("other code runs");
    },
  );
});

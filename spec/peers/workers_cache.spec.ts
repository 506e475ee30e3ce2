/** response_cache in the workers of the built program. */
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { RELEASES } from "./nodes.ts";
import { clientOn, probeModule, withWorkers, workersOn } from "./workers.ts";

describe.each(RELEASES)("the plugin response_cache in several workers of Node %i", (release) => {
  it("answers from memory in each worker until a request at any of them changes the target", async () => {
    let version = 1;
    const { port } = await backend((request, response) => {
      if (request.method !== "GET") version++;
      response
        .writeHead(200, { "cache-control": "max-age=600", "content-length": String(version).length })
        .end(String(version));
    });
    const config = oneService(
      port,
      { plugins: [{ name: "probe" }, { name: "response_cache" }] },
      { plugin_modules: [probeModule()] },
    );
    const gateway = await withWorkers(config, { release });
    const workers = await workersOn(gateway.port, 2);
    const clients = await Promise.all(workers.map((thread) => clientOn(gateway.port, (worker) => worker === thread)));
    for (let round = 0; round < 20; round++) {
      for (const client of clients) {
        const answers = [await client.ask("/a/x"), await client.ask("/a/x")];
        expect(answers.map(({ body }) => body)).toEqual([String(version), String(version)]);
        expect(answers[1]!.headers["cache-status"]).toContain("; hit;");
      }
      expect((await ask(gateway.port, { path: "/a/x", method: "POST", headers: { Host: "gw.example" } })).status).toBe(
        200,
      );
    }
  });

  it("loses what an administrator purges in every worker, which the answer counts", async () => {
    const { port } = await backend((_request, response) =>
      response.writeHead(200, { "cache-control": "max-age=600", "cache-tag": "prices", "content-length": 1 }).end("1"),
    );
    const config = oneService(
      port,
      { plugins: [{ name: "probe" }, { name: "response_cache" }] },
      { plugin_modules: [probeModule()] },
    );
    const gateway = await withWorkers(config, { release });
    const workers = await workersOn(gateway.port, 2);
    const clients = await Promise.all(workers.map((thread) => clientOn(gateway.port, (worker) => worker === thread)));
    const statuses = async () => {
      const answers = [];
      for (const client of clients) answers.push((await client.ask("/a/x")).headers["cache-status"]);
      return answers.map((status) => (String(status).includes("; hit;") ? "hit" : "asked"));
    };
    expect([await statuses(), await statuses()]).toEqual([
      ["asked", "asked"],
      ["hit", "hit"],
    ]);
    const answer = await fetch(`${gateway.adminUrl}/gateway/cache/purge`, {
      method: "POST",
      headers: { cookie: await gateway.session(), "content-type": "application/json" },
      body: JSON.stringify({ url: "/a/x", tag: "prices" }),
    });
    expect(await answer.json()).toEqual({ purged: 2 });
    expect(await statuses()).toEqual(["asked", "asked"]);
  });
});

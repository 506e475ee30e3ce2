/** What became of requests of several workers, with STATE_DIR: over kill -9, the end of a worker, and reloads. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { RELEASES } from "./nodes.ts";
import { withWorkers } from "./workers.ts";

describe.each(RELEASES)("what became of requests of two workers, on Node %d", (release) => {
  it("names plugin and rule whatever thread has answered, and outlives kill -9 and SIGTERM", async () => {
    const folder = emptyFolder();
    const { port } = await backend();
    const plugins = [{ name: "acl", id: "lan", config: { blacklist: ["127.0.0.1"] } }];
    const config = oneService(port, {
      routes: [
        { name: "all", path: "/{rest*}" },
        { name: "closed", path: "/closed", plugins },
      ] as never,
    });
    const started = () => withWorkers(config, { release, environment: { STATE_DIR: folder } });
    const ids: string[] = [];
    const asking = async (port: number) => {
      for (let i = 0; i < 10; i++) {
        const path = i % 2 === 0 ? "/a/x" : "/a/closed";
        ids.push(String((await ask(port, { path })).headers["x-request-id"]));
      }
    };
    const isWritten = () => {
      const content = existsSync(join(folder, "decisions")) ? readFileSync(join(folder, "decisions"), "latin1") : "";
      return ids.every((id) => content.includes(id));
    };
    const first = await started();
    await asking(first.port);
    await eventually(isWritten, "ten decisions in the file");
    first.child.kill("SIGKILL");
    await first.ended;
    const second = await started();
    await asking(second.port);
    second.child.kill("SIGTERM");
    await second.ended;
    const third = await started();
    const list = async (query: string) =>
      JSON.parse(await third.admin(`/gateway/requests${query}`)) as { requests: { id: string }[]; matching: number };
    const newest = (await list("")).requests.map(({ id }) => id);
    expect(newest.toSorted()).toEqual(ids.toSorted());
    expect(new Set(newest.slice(0, 10))).toEqual(new Set(ids.slice(10)));
    expect(await list("?route=closed&code=forbidden&status=4xx&by=acl")).toMatchObject({ matching: 10 });
    for (const [i, id] of ids.entries()) {
      const found = JSON.parse(await third.admin(`/gateway/requests/${id}`)) as object;
      const refused = { status: 403, by: "acl", plugin: "services.s.routes.closed.plugins.lan", rule: "blacklist" };
      expect(found).toMatchObject({ id, ...(i % 2 === 0 ? { status: 200, by: "upstream", route: "all" } : refused) });
    }
  });
});

/** `edge-gateway --config URL --workers 2`. */
import { describe, expect, it } from "vitest";
import { configServer } from "../support/config_server.ts";
import { configWith, remoteProgram } from "../support/remote_program.ts";
import { emptyFolder, logLines } from "../support/process.ts";
import { nodeOf, RELEASES } from "./nodes.ts";

const STARTED = /"message":"edge-gateway [^"]+ started".*\n/;
const RELOADED = '"message":"configuration reloaded"';
/** More connections than there are threads, which the system spreads over them. */
const EACH = Array.from({ length: 16 });

describe.each(RELEASES)("two workers with a configuration from a URL, on Node %i", (release) => {
  it("serve what the main thread alone asks for, also after a reload, and the copy of it", async () => {
    const served = await configServer();
    const environment = { WORKERS: "2", CONFIG_POLL_S: "3600", STATE_DIR: emptyFolder() };
    served.files.set("/gw.json", configWith("/one"));
    const running = await remoteProgram(environment, served, nodeOf(release));
    await running.says(STARTED);
    expect(logLines(running.stderr()).find(({ message }) => / started$/.test(String(message)))).toMatchObject({
      config: served.url,
      workers: 2,
    });
    for (const _ of EACH) expect(await running.traffic("/one")).toBe(200);
    served.files.set("/gw.json", configWith("/two"));
    running.child.kill("SIGHUP");
    await running.says(RELOADED);
    for (const _ of EACH) expect([await running.traffic("/two"), await running.traffic("/one")]).toEqual([200, 404]);
    expect(served.requests).toHaveLength(2);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);

    await served.close();
    const again = await remoteProgram(environment, served, nodeOf(release));
    await again.says(STARTED);
    for (const _ of EACH) expect(await again.traffic("/two")).toBe(200);
    again.child.kill("SIGTERM");
    expect((await again.ended).code).toBe(0);
  });
});

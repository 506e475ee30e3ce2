/** A gateway as one of a fleet: what etcd does not answer is in the way of nothing. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { ignore } from "../../lib/base/errors.ts";
import { silentLog } from "../../lib/base/log.ts";
import { FleetMember } from "../../lib/cli/fleet_member.ts";
import { readSourceSettings } from "../../lib/config/source_settings.ts";
import { etcdStandIn } from "../support/etcd_stand_in.ts";
import { freePort } from "../support/origin.ts";
import { ENTRY } from "../support/fleet_entry.ts";
import { emptyFolder, program } from "../support/process.ts";
import { configWith } from "../support/remote_program.ts";

describe("a gateway of a fleet", () => {
  it("asks for the list once, however often it is asked for while etcd does not answer", async () => {
    const member = await etcdStandIn();
    const read = readSourceSettings(`etcd://${member.url.host}/gw`, {}, {});
    if (!read.ok) throw new Error(read.issues.join());
    const fleet = new FleetMember(read.settings!, silentLog);
    onTestFinished(() => fleet.leave());
    member.answers.set("/v3/kv/range", () => undefined);
    const first = fleet.list();
    await expect.poll(() => member.asked.length).toBe(1);
    const now = systemClock.now();
    const clock = vi.spyOn(systemClock, "now").mockImplementation(() => now + 5_000);
    onTestFinished(() => clock.mockRestore());
    expect(fleet.list()).toBe(first);
    first.catch(ignore);
  });

  it("takes a new id, and says so, where its STATE_DIR is a copy of that of another one", async () => {
    const member = await etcdStandIn();
    const id = "0123456789abcdef";
    member.cluster.put({
      gw: configWith("/one"),
      [`gw/gateways/${id}`]: JSON.stringify({ ...ENTRY, name: "other:1" }),
    });
    const folder = emptyFolder();
    writeFileSync(join(folder, "fleet_id"), `${id}\n`);
    const running = program(["--config", `etcd://${member.url.host}/gw`], {
      environment: {
        ...{ HTTP_PORT: String(await freePort()), HTTPS_PORT: "0", LISTEN_HOST: "127.0.0.1" },
        STATE_DIR: folder,
      },
    });
    await running.says(/another gateway of the fleet has the id of this one/);
    await expect.poll(() => [...member.cluster.keys.keys()].length, { timeout: 10_000 }).toBe(3);
    const kept = readFileSync(join(folder, "fleet_id"), "utf8").trim();
    expect(kept).toMatch(/^[0-9a-f]{16}$/);
    expect(kept).not.toBe(id);
    expect([...member.cluster.keys.keys()]).toContain(`gw/gateways/${kept}`);
    running.child.kill("SIGTERM");
    expect((await running.ended).code).toBe(0);
  });

  it("ends as it should where etcd does not answer at its end", async () => {
    const member = await etcdStandIn();
    member.cluster.put({ gw: configWith("/one") });
    member.answers.set("/v3/lease/revoke", () => undefined);
    const running = program(["--config", `etcd://${member.url.host}/gw`], {
      environment: { HTTP_PORT: String(await freePort()), HTTPS_PORT: "0", LISTEN_HOST: "127.0.0.1" },
    });
    await running.says(/ started"/);
    await expect.poll(() => [...member.cluster.keys.keys()].length, { timeout: 10_000 }).toBe(2);
    running.child.kill("SIGTERM");
    const { code, stderr } = await running.ended;
    expect([code, stderr]).toEqual([0, expect.stringContaining('"message":"stopped"')]);
    expect(member.asked.at(-1)).toBe("/v3/lease/revoke");
  });
});

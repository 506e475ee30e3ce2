import { describe, expect, it } from "vitest";
import type { FleetEntry } from "../../lib/source/fleet_entries.ts";
import { ENTRY } from "../support/fleet_entry.ts";
import { Cluster, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";
import { fileWith, program } from "../support/process.ts";

const READ_ONLY = "Gateways with CONFIG_READ_ONLY=true have no entry, and are not counted.";

const urlOf = ({ url }: EtcdStandIn) => `etcd://${url.host}/gw`;
const run = (...words: string[]) => program(["fleet", ...words]).ended;
const put = ({ cluster }: EtcdStandIn, id: string, entry: Partial<FleetEntry>) =>
  cluster.put({ [`gw/gateways/${id}`]: JSON.stringify({ ...ENTRY, ...entry }) });

describe("edge-gateway fleet", () => {
  it("prints a line for each gateway, and what it has refused", async () => {
    const member = await etcdStandIn();
    put(member, "1", {});
    const refused = { digest: "ba9876543210", at: "2026-05-04T03:02:01.000Z", reason: "gw:1 no\u001b[2J" };
    put(member, "2", { name: "web-2:8008", ready: false, refused });
    member.cluster.put({ "gw/gateways/3": "what" });
    const { code, stdout, stderr } = await run(urlOf(member));
    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout.split("\n")).toEqual([
      "gateway     version  digest        since                     state      refused",
      "3           –        –             –                         –          an entry that no gateway has written",
      "web-1:8008  1.2.3    0123456789ab  2026-05-04T03:02:01.000Z  ready",
      "web-2:8008  1.2.3    0123456789ab  2026-05-04T03:02:01.000Z  not ready  refused ba9876543210: gw:1 no?[2J",
      READ_ONLY,
      "",
    ]);
  });

  it("prints JSON with --json, and says so where there is no entry", async () => {
    const member = await etcdStandIn();
    const none = await run(urlOf(member));
    expect(none).toMatchObject({ code: 0, stdout: `no gateway has an entry\n${READ_ONLY}\n` });
    put(member, "1", {});
    const { stdout } = await run(urlOf(member), "--json");
    expect(JSON.parse(stdout)).toEqual({ key: urlOf(member), gateways: [{ id: "1", ...ENTRY }] });
  });

  it("waits with --wait until all gateways run the digest; exit 0", async () => {
    const member = await etcdStandIn();
    put(member, "1", {});
    put(member, "2", { digest: "ba9876543210" });
    const waiting = run(urlOf(member), "--wait", "0123456789AB", "--timeout", "30");
    await expect.poll(() => member.asked.length).toBeGreaterThan(1);
    put(member, "2", {});
    expect(await waiting).toMatchObject({ code: 0, stderr: "" });
  });

  it("exits with 1 where a gateway has refused the digest, and prints why", async () => {
    const member = await etcdStandIn();
    put(member, "1", {});
    const refused = { digest: "ba9876543210", at: "2026-05-04T03:02:01.000Z", reason: "gw.json:1:1 no" };
    put(member, "2", { name: "web-2:8008", refused });
    const { code, stderr } = await run(urlOf(member), "--wait", "ba9876543210");
    expect([code, stderr]).toEqual([1, "edge-gateway: web-2:8008 has refused ba9876543210: gw.json:1:1 no\n"]);
  });

  it("prints nothing that acts on a terminal, whatever somebody has written below the key", async () => {
    const member = await etcdStandIn();
    const acts = "\u001b[2J\u009b2J\u202e\r";
    const refused = { digest: "ba9876543210", at: acts, reason: acts };
    put(member, acts, { name: acts, host: acts, version: acts, since: acts, refused });
    for (const words of [[], ["--json"], ["--wait", "ba9876543210"]]) {
      const { stdout, stderr } = await run(urlOf(member), ...words);
      expect(stdout + stderr).not.toMatch(/[\u001b\u009b\u202e\r]/);
      // Nor as an escape, which other programs make a control character of again.
      expect(stdout).not.toContain("\\u001b");
    }
  });

  it("exits with 1 when the time is over: without entries, with others, and without an answer", async () => {
    const member = await etcdStandIn();
    const wait = () => run(urlOf(member), "--wait", "ba9876543210", "--timeout", "1");
    expect(await wait()).toMatchObject({
      code: 1,
      stderr: `edge-gateway: no gateway has an entry below ${urlOf(member)} after 1 s\n`,
    });
    put(member, "1", {});
    expect(await wait()).toMatchObject({
      code: 1,
      stderr: "edge-gateway: 1 gateway of 1 do not run ba9876543210 after 1 s\n",
    });
    member.answers.set("/v3/kv/range", () => etcdError("etcdserver: no leader", 14, 503));
    const { code, stderr } = await wait();
    expect(code).toBe(1);
    expect(stderr).toContain("etcdserver: no leader");
  });

  it("exits with 1 where etcd cannot be asked, or refuses the password, which is not printed", async () => {
    const closed = await run("etcd://127.0.0.1:1/gw");
    expect(closed.code).toBe(1);
    expect(closed.stderr).toMatch(/^edge-gateway: etcd at 127\.0\.0\.1:1: /);
    const member = await etcdStandIn(new Cluster());
    member.users = { anna: "geheim" };
    const environment = { ETCD_USER: "anna", ETCD_PASSWORD_FILE: fileWith("falsch\n", "password") };
    const refused = await program(["fleet", urlOf(member)], { environment }).ended;
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("authentication failed, invalid user ID or password; check ETCD_USER");
    expect(refused.stderr).not.toContain("falsch");
    const right = { ETCD_USER: "anna", ETCD_PASSWORD_FILE: fileWith("geheim\n", "password") };
    expect((await program(["fleet", urlOf(member)], { environment: right }).ended).code).toBe(0);
  });

  it.each([
    [[], /fleet needs the URL of a key/],
    [["gw.json"], /expected the URL of a key in etcd/],
    [["https://localhost/gw"], /expected the URL of a key in etcd/],
    [["etcd://localhost"], /names no key/],
    [["etcd://localhost/gw", "--wait", "new"], /--wait: expected a digest/],
    [["etcd://localhost/gw", "--wait", "0123456789ab", "--timeout", "0"], /--timeout: expected an integer 1–86400/],
    [["etcd://localhost/gw", "--timeout", "3"], /--timeout is for --wait/],
  ])("exits with 2 for the command line %j", async (words, message) => {
    const { code, stderr } = await run(...words);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});

/** Gateways that share an account and certificates in etcd, with an own directory. */
import { describe, expect, it, onTestFinished } from "vitest";
import type { AcmeSettings, CertificateKeeper, Challenge, IssuedCertificate } from "../../lib/acme/contracts.ts";
import { AcmeFleet } from "../../lib/acme/fleet.ts";
import { keepCertificates } from "../../lib/acme/keeper.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { SealingKey } from "../../lib/base/sealing_key.ts";
import { EtcdClient } from "../../lib/source/etcd_client.ts";
import { memoryFiles, type MemoryFiles } from "../support/acme_files.ts";
import { CA } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { ENTRY } from "../support/fleet_entry.ts";
import { endLease, etcdError, etcdStandIn, type EtcdStandIn } from "../support/etcd_stand_in.ts";
import { fakeDirectory, problem, type FakeDirectory } from "./fake_directory.ts";
import { keptClock, type KeptClock } from "./kept.ts";

const KEY = new SealingKey(Buffer.alloc(32, "a key of a fleet"));
const OTHER_KEY = new SealingKey(Buffer.alloc(32, "another one"));

interface Gateway {
  readonly keeper: CertificateKeeper;
  /** Those of its STATE_DIR. */
  readonly files: MemoryFiles;
  readonly challenges: Set<Challenge>;
  readonly lines: string[];
  /** PEM. */
  readonly certificates: () => readonly string[];
  /** Of the clock of this gateway alone; it stands still until then. */
  advance(ms: number): void;
}

interface GatewayOptions {
  readonly settings?: Partial<AcmeSettings>;
  readonly sealing?: SealingKey;
  readonly files?: MemoryFiles;
  /** CONFIG_READ_ONLY. */
  readonly isReadOnly?: boolean;
  /** Whether its entry says what it serves. */
  readonly isSilent?: boolean;
}

class Fleet {
  readonly etcd: EtcdStandIn;
  readonly directory: FakeDirectory;
  /** Of all keepers. */
  readonly clock: KeptClock;
  readonly gateways: Gateway[] = [];

  private constructor(etcd: EtcdStandIn, directory: FakeDirectory, clock: KeptClock) {
    this.etcd = etcd;
    this.directory = directory;
    this.clock = clock;
  }

  static async begin(): Promise<Fleet> {
    const clock = keptClock();
    return new Fleet(await etcdStandIn(), await fakeDirectory(clock.wall), clock);
  }

  /** It starts at once. */
  gateway(id: string, options: GatewayOptions = {}): Gateway {
    const { settings, sealing = KEY, files = memoryFiles(), isReadOnly = false, isSilent = false } = options;
    const lines: string[] = [];
    const challenges = new Set<Challenge>();
    const clock = manualClock();
    const log = createLog({ write: (line) => void lines.push(line) });
    let presented: readonly IssuedCertificate[] = [];
    const fleet = new AcmeFleet({
      client: new EtcdClient({ members: [this.etcd.url], login: null, clock: systemClock }),
      ...{ key: "gw", sealing, files, clock, log, random: () => 0.5 },
      answers: {
        async present(open) {
          for (const each of open) challenges.add(each);
        },
        async remove(over) {
          const names = over.map(nameOf);
          for (const each of challenges) if (names.includes(nameOf(each))) challenges.delete(each);
        },
      },
      identity: Promise.resolve({ id: isReadOnly ? null : id, name: `${id}:8008` }),
      serves: (revision) => {
        if (isReadOnly || revision === null) return;
        const acme = isSilent ? 1 : revision;
        this.etcd.cluster.put({ [`gw/gateways/${id}`]: JSON.stringify({ ...ENTRY, name: `${id}:8008`, acme }) });
      },
    });
    const all: AcmeSettings = {
      ...{ directory: this.directory.url, email: null, hosts: ["a.example", "b.example"], ca: Buffer.from(CA.cert) },
      ...{ challenge: "http-01", eab: null, profile: null, hostsAllowed: [], ...settings },
    };
    const keeper = keepCertificates(all, {
      ...{ fleet, files: fleet.files, answers: fleet.answers, clock: this.clock, log },
      ...{ proxy: null, random: () => 0.5, present: (certificates) => void (presented = certificates) },
    });
    onTestFinished(() => keeper.close());
    keeper.start();
    const made = { keeper, files, challenges, lines, advance: (ms: number) => clock.advance(ms) };
    const gateway = { ...made, certificates: () => presented.map(({ cert }) => String(cert)) };
    this.gateways.push(gateway);
    return gateway;
  }

  /** Lets time pass, also within an order, until `holds`. `except`: their clocks stand still. */
  async until(holds: () => boolean, except: readonly Gateway[] = []): Promise<void> {
    const running = this.gateways.filter((each) => !except.includes(each));
    const end = Date.now() + 15_000;
    while (!holds()) {
      if (Date.now() > end) throw new Error([`not within 15 s: ${String(holds)}`, ...running.map(stateOf)].join("\n"));
      await new Promise((turn) => setTimeout(turn, 2));
      for (const { advance } of running) advance(100);
      const isOrdering = running.some(({ keeper }) => keeper.state.state === "ordering");
      if (isOrdering && this.clock.pauseMs !== null) this.clock.advance(Math.min(this.clock.pauseMs, 1_000));
    }
  }

  get holder(): Gateway | undefined {
    return this.gateways.find(({ keeper }) => keeper.state.fleet!.isHolder);
  }

  /** As if the holder's lease had ended. */
  endLock(): void {
    endLease(this.etcd.cluster, this.etcd.cluster.keys.get("gw/acme/lock")!.lease!);
  }

  value(name: string): Buffer | null {
    const kv = this.etcd.cluster.keys.get(`gw/acme/${name}`);
    return kv === undefined ? null : KEY.open(kv.value, `gw/acme/${name}`);
  }
}

/** A challenge is the same, whichever object it is. */
const nameOf = (each: Challenge) => `${each.host} ${each.type === "http-01" ? each.token : each.servername}`;
const stateOf = ({ keeper, lines }: Gateway) => JSON.stringify([keeper.state, lines]);
const isValid = ({ keeper }: Gateway) => keeper.state.state === "valid" && keeper.state.fleet!.problem === null;

describe("gateways of a fleet", () => {
  it("order once, by one account, and all serve the same certificate, which each keeps", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b", "c"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(isValid));
    expect([fleet.directory.orders.length, fleet.directory.accounts.length]).toEqual([1, 1]);
    const [first] = gateways[0]!.certificates();
    for (const { certificates, files, keeper } of gateways) {
      expect(certificates()).toEqual([first]);
      expect(String(files.content.get("certificates.pem"))).toContain(first);
      expect([...files.content.keys()].sort()).toEqual(["account.key", "certificates.pem"]);
      expect(keeper.state.fleet!.holder).toEqual({ id: expect.stringMatching(/^[abc]$/), name: expect.anything() });
    }
    expect(gateways.filter(({ keeper }) => keeper.state.fleet!.isHolder).length).toBe(1);
    expect(gateways.map(({ keeper }) => keeper.state.orders.succeeded).sort()).toEqual([0, 0, 1]);
  });

  it("have nothing in etcd that can be read without the key", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway));
    const kept = [...fleet.etcd.cluster.keys].filter(([key]) => key.startsWith("gw/acme/"));
    expect(kept.map(([key]) => key).sort()).toEqual([
      "gw/acme/account.key",
      "gw/acme/certificates.pem",
      "gw/acme/lock",
    ]);
    for (const [, { value }] of kept) expect(value.toString("latin1")).not.toMatch(/BEGIN|8008|example/);
    expect(String(fleet.value("account.key"))).toContain("BEGIN PRIVATE KEY");
  });

  it.each(["http-01", "tls-alpn-01"] as const)(
    "all answer the challenges of %s before the directory looks, and none of them afterwards",
    async (challenge) => {
      const fleet = await Fleet.begin();
      const gateways = ["a", "b", "c"].map((id) => fleet.gateway(id, { settings: { challenge } }));
      const seen: unknown[] = [];
      fleet.directory.proves = (host) => {
        const answers = gateways.map(({ challenges }) => [...challenges].find((each) => each.host === host));
        seen.push(answers);
        const [first] = answers;
        for (const each of answers) expect(each).toEqual(first);
        expect(first).toMatchObject({ type: challenge, host });
        return null;
      };
      await fleet.until(() => gateways.every(isValid));
      expect(seen.length).toBe(2);
      await fleet.until(() => gateways.every(({ challenges }) => challenges.size === 0));
    },
  );

  it("wait 5 s, and no longer, for one that does not answer the challenges, and log its name", async () => {
    const fleet = await Fleet.begin();
    const holder = fleet.gateway("a");
    await fleet.until(() => holder.keeper.state.fleet!.isHolder);
    fleet.gateway("silent", { isSilent: true });
    await fleet.until(() => isValid(holder));
    expect(holder.lines.filter((line) => line.includes("may not answer")).join()).toMatch(/gateways.*silent:8008/);
  });

  it("with CONFIG_READ_ONLY serve what others order, and order nothing", async () => {
    const fleet = await Fleet.begin();
    const quiet = fleet.gateway("quiet", { isReadOnly: true });
    await fleet.until(() => quiet.keeper.state.fleet!.problem === null && fleet.etcd.asked.length > 3);
    expect(fleet.etcd.cluster.keys.size).toBe(0);
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway) && isValid(quiet));
    expect(quiet.certificates()).toEqual(gateway.certificates());
    await expect(quiet.keeper.rollover()).rejects.toThrow("a:8008 orders for the fleet: ask its admin interface");
  });

  it("replace the account's key at the one that orders alone, and the others use the new one", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(isValid));
    const holder = fleet.holder!;
    const other = gateways.find((each) => each !== holder)!;
    const former = String(fleet.value("account.key"));
    await expect(other.keeper.rollover()).rejects.toThrow(/:8008 orders for the fleet/);
    await holder.keeper.rollover();
    expect(String(fleet.value("account.key"))).not.toBe(former);
    expect(fleet.value("account-next.key")).toBeNull();
    await fleet.until(() => other.files.content.get("account.key")!.equals(fleet.value("account.key")!));
  });
});

describe("the gateway that orders", () => {
  it("hands over when it ends: another one renews, with the same account", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(isValid));
    const first = fleet.holder!;
    const other = gateways.find((each) => each !== first)!;
    const [former] = other.certificates();
    await first.keeper.close();
    await fleet.until(() => other.keeper.state.fleet!.isHolder, [first]);
    fleet.clock.setWall(61 * 86_400_000);
    fleet.clock.advance(30_000);
    await fleet.until(() => other.certificates()[0] !== former, [first]);
    expect([fleet.directory.orders.length, fleet.directory.accounts.length]).toEqual([2, 1]);
  });

  it("that stands still during an order overwrites nothing when it goes on, and its order is continued", async () => {
    const fleet = await Fleet.begin();
    const first = fleet.gateway("a");
    let isStopped = false;
    // The answer to the first look at an order that is ready is held back.
    let goOn = (): void => {};
    fleet.directory.proves = () =>
      isStopped
        ? null
        : new Promise((resolve) => {
            isStopped = true;
            goOn = () => resolve(null);
          });
    await fleet.until(() => isStopped);
    fleet.endLock();
    const second = fleet.gateway("b");
    await fleet.until(() => second.keeper.state.fleet!.isHolder, [first]);
    goOn();
    await fleet.until(() => isValid(second), [first]);
    const written = fleet.value("certificates.pem");
    await fleet.until(() => isValid(first));
    expect(first.keeper.state.fleet).toMatchObject({ isHolder: false, holder: { id: "b" }, problem: null });
    expect(fleet.value("certificates.pem")).toEqual(written);
    expect(first.certificates()).toEqual(second.certificates());
    expect(fleet.directory.accounts.length).toBe(1);
    // It is no failure.
    expect(first.lines.filter((line) => line.includes("no certificate for all hosts"))).toEqual([]);
    expect(first.keeper.state.error).toBeNull();
  });

  it("cannot write where its lock is another one by now", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(isValid));
    const first = fleet.holder!;
    fleet.etcd.isSilent = true;
    fleet.endLock();
    const other = gateways.find((each) => each !== first)!;
    await fleet.until(() => other.keeper.state.fleet!.isHolder, [first]);
    const account = fleet.value("account.key");
    await expect(first.keeper.rollover()).rejects.toThrow(/gateway (of the fleet )?orders|orders for the fleet/);
    expect(fleet.value("account.key")).toEqual(account);
    expect(fleet.value("account-next.key")).toBeNull();
    await fleet.until(() => first.keeper.state.fleet!.holder?.id === other.keeper.state.fleet!.holder!.id);
  });

  it("keeps its back-off in etcd: another one waits as long, and shows why", async () => {
    const fleet = await Fleet.begin();
    fleet.directory.instead = ({ path }) =>
      path === "/new-order" ? { ...problem("rateLimited", "too many"), headers: { "Retry-After": "7200" } } : undefined;
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(({ keeper }) => keeper.state.error === "rateLimited: too many"));
    const first = fleet.holder!;
    const other = gateways.find((each) => each !== first)!;
    const asked = () => fleet.directory.asked.filter(({ path }) => path === "/new-order").length;
    expect(asked()).toBe(1);
    await first.keeper.close();
    await fleet.until(() => other.keeper.state.fleet!.isHolder, [first]);
    expect(other.keeper.state.nextAt! - fleet.clock.wall()).toBeGreaterThan(7_000_000);
    fleet.clock.advance(3_600_000);
    await new Promise((turn) => setTimeout(turn, 20));
    expect(asked()).toBe(1);
    fleet.directory.instead = () => undefined;
    fleet.clock.advance(3_700_000);
    await fleet.until(() => isValid(other), [first]);
    await fleet.until(() => fleet.value("attempt.json") === null, [first]);
  });

  it("orders although etcd has failed just after it gave the lock", async () => {
    const fleet = await Fleet.begin();
    let failures = 0;
    fleet.etcd.answers.set("/v3/kv/range", (message) => {
      const isFirst = fleet.etcd.cluster.keys.has("gw/acme/lock") && failures++ === 0;
      return isFirst ? etcdError("etcdserver: no leader", 14, 503) : fleet.etcd.answer("/v3/kv/range", message);
    });
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway));
    expect(failures).toBeGreaterThan(0);
    expect(gateway.keeper.state.fleet!.isHolder).toBe(true);
  });

  it("gives the lock back where a file of its own cannot be read, and another one orders", async () => {
    const fleet = await Fleet.begin();
    const files = memoryFiles((change) => {
      if (change === "read account.key") throw new Error("EACCES");
    });
    const broken = fleet.gateway("a", { files });
    await fleet.until(() => broken.keeper.state.fleet!.problem !== null);
    expect(broken.keeper.state.fleet!.problem).toMatch("EACCES");
    const sound = fleet.gateway("b");
    await fleet.until(() => isValid(sound));
    expect(sound.keeper.state.fleet!.isHolder).toBe(true);
  });

  it("keeps what it wrote where somebody puts back an older certificate, removes one or adds a pause", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    await fleet.until(() => gateways.every(isValid));
    const sealed = (name: string) => fleet.etcd.cluster.keys.get(`gw/acme/${name}`)!.value;
    const [former, account] = [sealed("certificates.pem"), fleet.value("account.key")];
    fleet.clock.setWall(61 * 86_400_000);
    fleet.clock.advance(30_000);
    await fleet.until(() => fleet.directory.orders.length === 2 && gateways.every(isValid));
    const renewed = fleet.value("certificates.pem")!;
    const [shown] = fleet.holder!.certificates();
    await fleet.until(() => gateways.every(({ certificates }) => certificates()[0] === shown));
    const attempt = { directory: fleet.directory.url, error: "no", hosts: {}, pauses: { failures: 9, backOffMs: 9e9 } };
    fleet.etcd.cluster.put({
      "gw/acme/certificates.pem": former,
      "gw/acme/account.key": null,
      "gw/acme/attempt.json": KEY.seal(Buffer.from(JSON.stringify(attempt)), "gw/acme/attempt.json"),
    });
    await fleet.until(() => fleet.value("attempt.json") === null && fleet.value("account.key") !== null);
    expect([fleet.value("certificates.pem"), fleet.value("account.key")]).toEqual([renewed, account]);
    await fleet.until(() => gateways.every(isValid));
    for (const { certificates } of gateways) expect(certificates()).toEqual([shown]);
    expect(fleet.directory.orders.length).toBe(2);
    const lines = gateways.flatMap((each) => each.lines.filter((line) => line.includes("somebody has changed")));
    expect(lines.join()).toMatch(/account.key.*certificates.pem.*attempt.json/);
  });

  it("brings a newer certificate than that of an etcd restored from a backup, and orders nothing", async () => {
    const fleet = await Fleet.begin();
    const first = fleet.gateway("a");
    await fleet.until(() => isValid(first));
    const former = fleet.etcd.cluster.keys.get("gw/acme/certificates.pem")!.value;
    fleet.clock.setWall(61 * 86_400_000);
    fleet.clock.advance(30_000);
    await fleet.until(() => fleet.directory.orders.length === 2 && isValid(first));
    const renewed = first.certificates();
    await first.keeper.close();
    fleet.etcd.cluster.put({ "gw/acme/certificates.pem": former });
    const reader = fleet.gateway("r", { files: first.files, isReadOnly: true });
    await fleet.until(() => fleet.etcd.asked.length > 0 && isValid(reader), [first]);
    expect(reader.certificates()).toEqual(renewed);
    const again = fleet.gateway("b", { files: first.files });
    await fleet.until(() => again.keeper.state.fleet!.isHolder && isValid(again), [first]);
    expect(again.certificates()).toEqual(renewed);
    expect(String(fleet.value("certificates.pem"))).toContain(renewed[0]);
    expect(fleet.directory.orders.length).toBe(2);
  });

  it("removes challenges later on where etcd did not answer when the order ended", async () => {
    const fleet = await Fleet.begin();
    const gateways = ["a", "b"].map((id) => fleet.gateway(id));
    let failures = 0;
    const [challenges, certificates] = ["challenges.json", "certificates.pem"].map((name) =>
      Buffer.from(`gw/acme/${name}`).toString("base64"),
    );
    let isOver = false;
    fleet.etcd.answers.set("/v3/kv/txn", (message) => {
      const changes = JSON.stringify(message);
      isOver ||= changes.includes(certificates!);
      const isRemoval = changes.includes("request_delete_range") && changes.includes(challenges!);
      if (!isRemoval || isOver) return fleet.etcd.answer("/v3/kv/txn", message);
      failures++;
      return etcdError("etcdserver: no leader", 14, 503);
    });
    await fleet.until(() => gateways.every(isValid));
    expect(failures).toBeGreaterThan(0);
    await fleet.until(() => !fleet.etcd.cluster.keys.has("gw/acme/challenges.json"));
    await fleet.until(() => gateways.every((each) => each.challenges.size === 0));
  });

  it("brings the account and the certificate that it has into an etcd without them, and orders nothing", async () => {
    const alone = await Fleet.begin();
    const gateway = alone.gateway("a");
    await alone.until(() => isValid(gateway));
    const files = memoryFiles();
    for (const [name, content] of gateway.files.content) files.content.set(name, content);
    await gateway.keeper.close();
    alone.etcd.cluster.put(Object.fromEntries([...alone.etcd.cluster.keys.keys()].map((key) => [key, null])));
    const orders = alone.directory.orders.length;
    const again = alone.gateway("b", { files });
    await alone.until(() => again.keeper.state.fleet!.isHolder, [gateway]);
    expect(String(alone.value("account.key"))).toBe(String(files.content.get("account.key")));
    expect(again.certificates()).toEqual(gateway.certificates());
    const fresh = alone.gateway("c");
    await alone.until(() => isValid(fresh), [gateway]);
    expect(fresh.certificates()).toEqual(gateway.certificates());
    expect([alone.directory.orders.length, alone.directory.accounts.length]).toEqual([orders, 1]);
  });

  it("gives the lock back where it cannot bring what it has, and tries again", async () => {
    const fleet = await Fleet.begin();
    const files = memoryFiles();
    const former = fleet.gateway("a", { files });
    await fleet.until(() => isValid(former));
    await former.keeper.close();
    fleet.etcd.cluster.put({ "gw/acme/account.key": null, "gw/acme/certificates.pem": null });
    let refusals = 0;
    fleet.etcd.answers.set("/v3/kv/txn", (message) => {
      const isAccount = JSON.stringify(message).includes(Buffer.from("gw/acme/account.key").toString("base64"));
      if (!isAccount || ++refusals > 2) return fleet.etcd.answer("/v3/kv/txn", message);
      return etcdError("etcdserver: mvcc: database space exceeded", 8);
    });
    const again = fleet.gateway("b", { files });
    await fleet.until(() => refusals > 0 && !fleet.etcd.cluster.keys.has("gw/acme/lock"), [former]);
    expect(again.keeper.state.fleet!.isHolder).toBe(false);
    await fleet.until(() => again.keeper.state.fleet!.isHolder && again.keeper.state.fleet!.problem === null, [former]);
    expect(again.lines.filter((line) => line.includes("space exceeded")).length).toBe(1);
    expect(fleet.directory.orders.length).toBe(1);
  });

  it("brings again what somebody deletes", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway));
    const account = fleet.value("account.key");
    fleet.etcd.cluster.put({ "gw/acme/account.key": null, "gw/acme/certificates.pem": null });
    await fleet.until(() => fleet.value("account.key") !== null && fleet.value("certificates.pem") !== null);
    expect(fleet.value("account.key")).toEqual(account);
    expect([fleet.directory.orders.length, gateway.keeper.state.fleet!.isHolder]).toEqual([1, true]);
  });
});

describe("a gateway with another key", () => {
  it("says so, serves what it has, orders nothing and overwrites nothing", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway));
    const before = new Map(fleet.etcd.cluster.keys);
    const stranger = fleet.gateway("b", { sealing: OTHER_KEY, files: gateway.files });
    await fleet.until(() => stranger.keeper.state.fleet!.problem !== null);
    expect(stranger.keeper.state.fleet!.problem).toMatch(
      /^ACME_FLEET_KEY_FILE has another key than the one that gw\/acme\/lock, gw\/acme\/account.key/,
    );
    expect(stranger.certificates()).toEqual(gateway.certificates());
    await gateway.keeper.close();
    await fleet.until(() => !fleet.etcd.cluster.keys.has("gw/acme/lock"), [gateway]);
    stranger.advance(60_000);
    await new Promise((turn) => setTimeout(turn, 50));
    expect(fleet.etcd.cluster.keys.has("gw/acme/lock")).toBe(false);
    for (const name of ["gw/acme/account.key", "gw/acme/certificates.pem"])
      expect(fleet.etcd.cluster.keys.get(name)).toEqual(before.get(name));
    expect(stranger.lines.filter((line) => line.includes("cannot be used")).length).toBe(1);
    // What the documents say to do: remove it, and it is brought again.
    fleet.etcd.cluster.put({ "gw/acme/account.key": null, "gw/acme/certificates.pem": null });
    await fleet.until(() => stranger.keeper.state.fleet!.isHolder, [gateway]);
    expect(fleet.directory.orders.length).toBe(1);
    expect(stranger.keeper.state.fleet!.problem).toBeNull();
  });

  it("that orders ends to where somebody writes what cannot be decrypted, and goes on once that is gone", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    await fleet.until(() => isValid(gateway));
    const sealed = fleet.etcd.cluster.keys.get("gw/acme/account.key")!.value;
    // A value of this fleet, but of another name.
    fleet.etcd.cluster.put({ "gw/acme/certificates.pem": sealed });
    await fleet.until(() => gateway.keeper.state.fleet!.problem !== null);
    expect(gateway.keeper.state.fleet!.isHolder).toBe(false);
    expect(gateway.certificates().length).toBe(1);
    fleet.etcd.cluster.put({ "gw/acme/certificates.pem": null });
    await fleet.until(() => gateway.keeper.state.fleet!.isHolder && gateway.keeper.state.fleet!.problem === null);
    expect(String(fleet.value("certificates.pem"))).toContain(gateway.certificates()[0]);
  });
});

describe("etcd that does not answer", () => {
  it("at the start: the certificate that STATE_DIR has is served, and nothing is ordered", async () => {
    const fleet = await Fleet.begin();
    const first = fleet.gateway("a");
    await fleet.until(() => isValid(first));
    await first.keeper.close();
    for (const path of ["/v3/kv/range", "/v3/kv/txn"])
      fleet.etcd.answers.set(path, () => etcdError("etcdserver: no leader", 14, 503));
    const again = fleet.gateway("a", { files: first.files });
    await fleet.until(() => again.keeper.state.fleet!.problem !== null, [first]);
    expect(again.keeper.state.fleet!.problem).toMatch(/no leader/);
    expect(again.certificates()).toEqual(first.certificates());
    fleet.clock.setWall(61 * 86_400_000);
    fleet.clock.advance(30_000);
    expect(again.keeper.state).toMatchObject({ state: "waiting", nextAt: null });
    await expect(again.keeper.rollover()).rejects.toThrow(/no gateway of the fleet orders at present/);
    expect(fleet.directory.orders.length).toBe(1);
    fleet.etcd.answers.clear();
    await fleet.until(() => fleet.directory.orders.length === 2 && isValid(again), [first]);
  });

  it("during an order ends it once the lock is lost; it is continued when etcd answers again", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    const away = () => etcdError("etcdserver: no leader", 14, 503);
    fleet.directory.proves = () => {
      for (const path of ["/v3/kv/range", "/v3/kv/txn", "/v3/lease/keepalive"]) fleet.etcd.answers.set(path, away);
      return null;
    };
    await fleet.until(() => fleet.etcd.answers.size > 0);
    fleet.directory.proves = () => null;
    await fleet.until(() => !gateway.keeper.state.fleet!.isHolder);
    fleet.endLock();
    await fleet.until(() => gateway.keeper.state.fleet!.problem !== null);
    fleet.etcd.answers.clear();
    await fleet.until(() => isValid(gateway));
    expect([fleet.directory.orders.length, fleet.directory.accounts.length]).toEqual([1, 1]);
    expect(gateway.keeper.state.error).toBeNull();
  });
});

describe("values that etcd refuses as too large", () => {
  it("are an error that says so, and the certificate is in use", async () => {
    const fleet = await Fleet.begin();
    const gateway = fleet.gateway("a");
    fleet.etcd.answers.set("/v3/kv/txn", (message) => {
      const isCertificate = JSON.stringify(message).includes(
        Buffer.from("gw/acme/certificates.pem").toString("base64"),
      );
      const tooLarge = etcdError("etcdserver: request is too large", 3);
      return isCertificate ? tooLarge : fleet.etcd.answer("/v3/kv/txn", message);
    });
    await fleet.until(() => gateway.keeper.state.error !== null);
    expect(gateway.keeper.state.error).toMatch(/certificates.pem cannot be written: etcd at .* request is too large/);
    expect(gateway.certificates().length).toBe(1);
  });
});

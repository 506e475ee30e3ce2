/** Built gateways that share certificates of global.acme in a real etcd, ordered from Debian's pebble. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { CA } from "../support/certs.ts";
import { freePort } from "../support/origin.ts";
import { fileWith, program, type Program } from "../support/process.ts";
import { configWith, statusOf } from "../support/remote_program.ts";
import { soon } from "./browser.ts";
import { emptyFolder } from "./built.ts";
import { etcd, type Etcd } from "./etcd.ts";
import { pebble, type Pebble } from "./pebble.ts";
import { serialAt } from "./served_certificate.ts";

const KEY = "edge/gw.json";

interface Gateway extends Program {
  readonly ports: { readonly http: number; readonly https: number; readonly probe: number };
  readonly state: string;
  /** It follows what the fleet shares, and says so to the others: before that it would answer no challenge. */
  isReady: boolean;
}

/** Leads each connection to the next gateway that is ready, as a balancer in front of a fleet does. */
class Balancer {
  readonly port: number;
  gateways: readonly Gateway[] = [];
  /** Called for each connection, before it is led on. */
  before: () => Promise<void> | void = () => {};
  #next = 0;

  private constructor(port: number) {
    this.port = port;
  }

  static async open(): Promise<Balancer> {
    const sockets = new Set<net.Socket>();
    const server = net.createServer((client) => {
      sockets.add(client.on("error", () => {}));
      void Promise.resolve(balancer.before()).then(async () => {
        const ready = () => balancer.gateways.filter(({ isReady }) => isReady);
        await soon(async () => ready().length).toBeGreaterThan(0);
        const { http } = ready()[balancer.#next++ % ready().length]!.ports;
        const upstream = net.connect(http, "127.0.0.1");
        sockets.add(upstream.on("error", () => client.destroy()));
        client.pipe(upstream).pipe(client);
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    const balancer = new Balancer((server.address() as net.AddressInfo).port);
    return balancer;
  }
}

interface Setup {
  readonly cluster: Etcd;
  readonly authority: Pebble;
  readonly balancer: Balancer;
  readonly ca: string;
  publish(hosts: readonly string[]): Promise<void>;
  /** It is behind the balancer from now on. */
  gateway(environment?: Record<string, string>): Promise<Gateway>;
}

async function setup(config: Record<string, unknown> = {}): Promise<Setup> {
  const folder = emptyFolder();
  const [caFile, keyFile, textFile] = ["ca.pem", "fleet.key", "gw.json"].map((name) => join(folder, name));
  writeFileSync(caFile!, CA.cert);
  writeFileSync(keyFile!, `${randomBytes(32).toString("hex")}\n`);
  const cluster = await etcd();
  const balancer = await Balancer.open();
  const authority = await pebble({ httpPort: balancer.port, config });
  return {
    ...{ cluster, authority, balancer, ca: await authority.root() },
    async publish(hosts) {
      const acme = { directory: authority.directory, hosts, ca: caFile, terms_agreed: true };
      writeFileSync(textFile!, configWith("/1", { global: { acme } }));
      const { code, stderr } = await program(["publish", textFile!, cluster.urlOf(KEY)]).ended;
      expect([code, stderr]).toEqual([0, ""]);
    },
    async gateway(environment = {}) {
      const ports = { http: await freePort(), https: await freePort(), probe: await freePort() };
      const state = join(emptyFolder(), "state");
      const running = program(["--config", cluster.urlOf(KEY)], {
        environment: {
          ...{ HTTP_PORT: String(ports.http), HTTPS_PORT: String(ports.https), PROBE_PORT: String(ports.probe) },
          ...{ LISTEN_HOST: "127.0.0.1", LOG_FORMAT: "json", STATE_DIR: state, ACME_FLEET_KEY_FILE: keyFile! },
          ...environment,
        },
      });
      const gateway = { ...running, ports, state, isReady: false };
      balancer.gateways = [...balancer.gateways, gateway];
      void followed(gateway, cluster);
      return gateway;
    },
  };
}

/** Ends at once with the spec, or when the entry of the gateway says what it serves; without an entry it never does. */
async function followed(gateway: Gateway, cluster: Etcd): Promise<void> {
  let isOver = false;
  onTestFinished(() => void (isOver = true));
  const entry = new RegExp(`:${gateway.ports.http}".*"acme":\\d`);
  while (!isOver && !gateway.isReady) {
    const entries = await cluster.ctl("get", "--prefix", `${KEY}/gateways/`, "--print-value-only").catch(String);
    gateway.isReady ||= entry.test(entries);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const serialOf = ({ ports }: Gateway, ca: string) => serialAt(ports.https, { servername: "localhost", ca });

const HEX = /^[0-9A-F]{8,}$/;
const ORDERS = /this gateway orders for its fleet/;
const holds = ({ stderr }: Gateway) => ORDERS.test(stderr());

/** The one that orders, once there is one among these. */
async function holderOf(gateways: readonly Gateway[]): Promise<Gateway> {
  await soon(async () => gateways.some(holds)).toBe(true);
  return gateways.find(holds)!;
}

/**
 * The directory looks, all three gateways answer the challenge, and the directory gets no answer before the function
 * is called that this resolves with.
 */
async function duringOrder({ balancer, cluster }: Setup): Promise<() => void> {
  let isAsked = false;
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => (goOn = resolve));
  balancer.before = () => {
    isAsked = true;
    return held;
  };
  await soon(async () => isAsked).toBe(true);
  const served = async () => {
    const entries = await cluster.ctl("get", "--prefix", `${KEY}/gateways/`, "--print-value-only");
    const revisions = entries.match(/(?<="acme":)\d+/g) ?? [];
    return [revisions.length, new Set(revisions).size];
  };
  await soon(served).toEqual([3, 1]);
  return goOn;
}

/** Once all serve the same certificate: its serial number. */
async function commonSerial(gateways: readonly Gateway[], ca: string, other = ""): Promise<string> {
  await expect
    .poll(
      async () => {
        const serials = new Set(await Promise.all(gateways.map((each) => serialOf(each, ca))));
        const [first] = serials;
        return serials.size === 1 && HEX.test(first!) && first !== other ? "one" : [...serials].join();
      },
      { timeout: 60_000, interval: 100 },
    )
    .toBe("one");
  return serialOf(gateways[0]!, ca);
}

it("three gateways order once, and serve the same; the one that ends leaves the next order to another", async () => {
  const given = await setup();
  const { cluster, ca, publish, authority } = given;
  await publish(["localhost"]);
  const gateways = [await given.gateway(), await given.gateway({ CONFIG_READ_ONLY: "true" }), await given.gateway()];
  const serial = await commonSerial(gateways, ca);
  expect([authority.orders, authority.accounts]).toEqual([1, 1]);
  // Nothing can be read in etcd.
  const values = await cluster.ctl("get", "--prefix", `${KEY}/acme/`, "--print-value-only");
  expect(values).not.toMatch(/BEGIN|localhost/);
  const names = await cluster.ctl("get", "--prefix", `${KEY}/acme/`, "--keys-only");
  expect(names.split(/\s+/)).toEqual(["account.key", "certificates.pem", "lock"].map((name) => `${KEY}/acme/${name}`));
  for (const { state } of gateways) {
    const file = join(state, "acme", "certificates.pem");
    await soon(async () => readFileSync(file, "utf8")).toContain("BEGIN CERTIFICATE");
    expect(statSync(file).mode & 0o777).toBe(0o600);
  }
  const metric = async ({ ports }: Gateway) =>
    /^edge_gateway_acme_fleet_holder (\d)$/m.exec(
      await (await fetch(`http://127.0.0.1:${ports.probe}/metrics`)).text(),
    )?.[1];
  const holder = await holderOf(gateways);
  expect(holder).not.toBe(gateways[1]);
  for (const each of gateways) expect(await metric(each)).toBe(each === holder ? "1" : "0");

  holder.child.kill("SIGTERM");
  expect((await holder.ended).code).toBe(0);
  const rest = gateways.filter((each) => each !== holder);
  given.balancer.gateways = rest;
  await publish(["localhost", "127.0.0.1"]);
  expect(await commonSerial(rest, ca, serial)).not.toBe(serial);
  expect([authority.orders, authority.accounts]).toEqual([2, 1]);
  expect(rest.filter(holds)).toEqual([rest.find((each) => each !== gateways[1])]);
});

it("a gateway that is killed during an order leaves it to another one, which goes on with it", async () => {
  const given = await setup();
  const { ca, publish, balancer, authority } = given;
  await publish(["localhost"]);
  const gateways = [await given.gateway(), await given.gateway(), await given.gateway()];
  const goOn = await duringOrder(given);
  const holder = await holderOf(gateways);
  holder.child.kill("SIGKILL");
  await holder.ended;
  const rest = gateways.filter((each) => each !== holder);
  balancer.gateways = rest;
  goOn();
  await commonSerial(rest, ca);
  expect([authority.orders, authority.accounts]).toEqual([1, 1]);
});

it("a gateway that is stopped during an order, and goes on later, overwrites nothing", async () => {
  const given = await setup();
  const { ca, publish, balancer, authority, cluster } = given;
  await publish(["localhost"]);
  const gateways = [await given.gateway(), await given.gateway(), await given.gateway()];
  const goOn = await duringOrder(given);
  const holder = await holderOf(gateways);
  holder.child.kill("SIGSTOP");
  onTestFinished(() => void holder.child.kill("SIGCONT"));
  const rest = gateways.filter((each) => each !== holder);
  balancer.gateways = rest;
  goOn();
  const serial = await commonSerial(rest, ca);
  const revisions = () => cluster.ctl("get", "--prefix", `${KEY}/acme/`, "--keys-only", "-w", "fields");
  const before = (await revisions()).match(/"ModRevision" : \d+/g);
  holder.child.kill("SIGCONT");
  expect(await commonSerial(gateways, ca)).toBe(serial);
  await holder.says(/does not order for its fleet any more/);
  expect((await revisions()).match(/"ModRevision" : \d+/g)).toEqual(before);
  expect(holder.stderr()).not.toMatch(/no certificate for all hosts/);
  expect([authority.orders, authority.accounts]).toEqual([1, 1]);
  expect(await statusOf(holder.ports.http, "/1")).toBe(200);
});

it("the rights that the documents name are enough; without those for certificates all else is as before", async () => {
  const given = await setup();
  const { ca, publish, cluster, authority } = given;
  await publish(["localhost"]);
  const root = ["--user", "root:toor"];
  const grants = readFileSync(new URL("../../docs/fleets.md", import.meta.url), "utf8")
    .match(/(?<=^etcdctl )role (?:add|grant-permission) gateway.*$/gm)!
    .map((line) => line.split(" "));
  const [ofCertificates, ...others] = grants.toReversed();
  expect([grants.length, ofCertificates!.at(-1)]).toEqual([6, `${KEY}/acme/`]);
  await cluster.ctl("user", "add", "root:toor");
  await cluster.ctl("user", "grant-role", "root", "root");
  for (const words of others.reverse()) await cluster.ctl(...words);
  await cluster.ctl("user", "add", "gateway:geheim");
  await cluster.ctl("user", "grant-role", "gateway", "gateway");
  await cluster.ctl("auth", "enable");
  const user = { ETCD_USER: "gateway", ETCD_PASSWORD_FILE: fileWith("geheim") };
  const gateways = [await given.gateway(user), await given.gateway(user)];
  for (const each of gateways) {
    await each.says(/what the fleet shares cannot be used.*permission denied; the user needs the rights that docs/);
    await soon(() => statusOf(each.ports.http, "/1")).toBe(200);
    const followed = each.says(/what the fleet shares can be used again/);
    void followed.then(() => (each.isReady = true));
  }
  await cluster.ctl(...root, ...ofCertificates!);
  await commonSerial(gateways, ca);
  expect([authority.orders, authority.accounts]).toEqual([1, 1]);
  const logs = gateways.map(({ stderr }) => stderr()).join();
  expect(logs).not.toMatch(/may not answer/);
});

it("while etcd is away all serve on, and a start serves the certificate of STATE_DIR", async () => {
  const given = await setup();
  const { ca, publish, cluster, authority } = given;
  await publish(["localhost"]);
  const first = await given.gateway();
  const serial = await commonSerial([first], ca);
  first.child.kill("SIGTERM");
  await first.ended;
  await cluster.members[0]!.stop();
  const again = await given.gateway({ STATE_DIR: first.state });
  expect(await commonSerial([again], ca)).toBe(serial);
  await again.says(/what the fleet shares cannot be used/);
  cluster.members[0]!.start();
  await again.says(/what the fleet shares can be used again/);
  await holderOf([again]);
  expect(await commonSerial([again], ca)).toBe(serial);
  expect(authority.orders).toBe(1);
});

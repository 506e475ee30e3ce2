/** "Several machines" of docs/scale.md with real processes: a day of three gateways, etcd and Redis. */
import { generateKeyPairSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { blocksOf, document } from "../support/documents.ts";
import { backend } from "../support/gateway.ts";
import { freePort } from "../support/origin.ts";
import { emptyFolder, program, type Program } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { soon } from "./browser.ts";
import { etcd } from "./etcd.ts";
import { redis } from "./redis.ts";

const MEMBERS = "10.0.0.21:2379,10.0.0.22:2379,10.0.0.23:2379";
const LIMIT = 600;

interface Described {
  serial: number;
  global: { counters: { url: string } };
  services: { upstreams: object[]; routes: object[]; plugins: object[] }[];
}

/** One machine: its gateway, with what outlives it. */
class Machine {
  readonly #words: readonly string[];
  readonly #environment: Record<string, string>;
  readonly port: number;
  running: Program;

  constructor(port: number, words: readonly string[], environment: Record<string, string>) {
    this.port = port;
    this.#words = [...words, "--http-port", String(port), "--listen-host", "127.0.0.1"];
    this.#environment = { ...environment, STATE_DIR: join(emptyFolder(), "state") };
    this.running = this.start();
  }

  start(further: Record<string, string> = {}): Program {
    return (this.running = program(this.#words, { environment: { ...this.#environment, ...further } }));
  }

  async serves(): Promise<void> {
    await this.running.says(/"message":"edge-gateway [^"]+ started"/);
  }

  async stop(): Promise<void> {
    this.running.child.kill("SIGTERM");
    expect((await this.running.ended).code).toBe(0);
  }

  /** What `edge-gateway fleet` calls it begins with the name of the host. */
  readonly get = (path: string) => ask(this.port, { path });
}

it("a configuration reaches all gateways, one refuses another, and etcd and Redis go away and come back", async () => {
  const page = document("docs/scale.md");
  const commands = blocksOf(page, "sh").flatMap((block) => block.trim().split("\n"));
  const [store, counters, upstream] = await Promise.all([etcd(3), redis(), backend()]);
  const folder = emptyFolder();
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const [privatePem, publicPem, file] = ["private.pem", "public.pem", "gw.json"].map((name) => join(folder, name));
  writeFileSync(privatePem!, privateKey.export({ type: "pkcs8", format: "pem" }));
  writeFileSync(publicPem!, publicKey.export({ type: "spki", format: "pem" }));
  const config = JSON.parse(blocksOf(page, "json").find((block) => block.includes('"serial"'))!) as Described;
  config.global.counters.url = `redis://127.0.0.1:${counters.port}`;
  config.services[0]!.upstreams = [{ host: "127.0.0.1", port: upstream.port }];

  /** The words of a command of the document, for these processes. */
  const wordsOf = (line: string, digest = "") =>
    line
      .replace(MEMBERS, store.members.map(({ url }) => url.host).join(","))
      .replace("private.pem", privatePem!)
      .replace("gw.json etcd", `${file} etcd`)
      .replace("DIGEST", digest)
      .split(" ");
  const command = (name: string) => commands.find((line) => line.startsWith(`edge-gateway ${name} `))!;
  const run = async (name: string, digest?: string, environment: Record<string, string> = {}) => {
    const ended = await program(wordsOf(command(name), digest).slice(1), { environment }).ended;
    return { code: ended.code, said: ended.stdout + ended.stderr };
  };
  const publish = async (environment?: Record<string, string>) => {
    writeFileSync(file!, JSON.stringify(config));
    const { code, said } = await run("publish", undefined, environment);
    return { code, said, digest: /digest ([0-9a-f]{12})/.exec(said)?.[1] ?? "" };
  };

  // The first configuration, for which three gateways wait.
  const starting = commands.find((line) => line.startsWith("CONFIG_PUBLIC_KEY="))!;
  const words = wordsOf(starting.slice(starting.indexOf("--config")));
  const machines: Machine[] = [];
  for (let i = 0; i < 3; i++) machines.push(new Machine(await freePort(), words, { CONFIG_PUBLIC_KEY: publicPem! }));
  const [a, b, c] = machines as [Machine, Machine, Machine];
  const first = await publish();
  expect([first.code, first.said]).toEqual([0, expect.stringContaining("has no text yet")]);
  await Promise.all(machines.map((machine) => machine.serves()));
  const answers = () => Promise.all(machines.map(({ get }) => get("/shop/x")));
  expect((await answers()).map(({ status }) => status)).toEqual([200, 200, 200]);

  // Counts of all gateways are one.
  const left = async () => Number(/;r=(\d+)/.exec(String((await a.get("/shop/x")).headers.ratelimit))?.[1]);
  expect(await left()).toBe(LIMIT - 4);

  // A change reaches all.
  config.serial = 2;
  config.services[0]!.routes = [{ path: "/{rest*}" }, { path: "/new" }];
  const second = await publish();
  expect([second.code, second.said]).toEqual([0, expect.stringContaining("shop / /new")]);
  const waited = await run("fleet", second.digest);
  expect([waited.code, waited.said.split(second.digest)]).toEqual([0, expect.objectContaining({ length: 4 })]);

  // One refuses: its machine does not have a variable.
  for (const machine of [a, b]) {
    await machine.stop();
    machine.start({ ORDERS_KEY: "a key" });
    await machine.serves();
  }
  config.serial = 3;
  config.services[0]!.plugins.push({ name: "key_auth", config: { key: "${env:ORDERS_KEY}" } });
  const third = await publish({ ORDERS_KEY: "a key" });
  expect(third.code).toBe(0);
  const refused = await run("fleet", third.digest);
  expect(refused.code).toBe(1);
  expect(refused.said).toMatch(
    new RegExp(`:${c.port} has refused ${third.digest}: .*services\\[0\\]\\.plugins\\[1\\]\\.config\\.key.*ORDERS_KEY`),
  );
  await soon(async () => (await answers()).map(({ status }) => status)).toEqual([401, 401, 200]);
  await c.stop();
  c.start({ ORDERS_KEY: "a key" });
  await c.serves();
  expect((await run("fleet", third.digest)).code).toBe(0);
  expect((await answers()).map(({ status }) => status)).toEqual([401, 401, 401]);

  // etcd is away: all serve on, and one of them starts again.
  await Promise.all(store.members.map((member) => member.stop()));
  await a.running.says("the source of the configuration does not answer");
  await c.stop();
  c.start({ ORDERS_KEY: "a key" });
  await c.serves();
  expect(c.running.stderr()).toContain("the copy of an earlier configuration comes into force");
  expect((await answers()).map(({ status }) => status)).toEqual([401, 401, 401]);
  config.serial = 4;
  config.services[0]!.plugins.pop();
  expect((await publish()).code).toBe(1);
  for (const member of store.members) member.start();
  await c.running.says("the source of the configuration answers again");
  await published(publish);
  const fourth = await publish();
  expect([fourth.code, fourth.said]).toEqual([0, expect.stringContaining("has this text already")]);
  expect((await run("fleet", fourth.digest)).code).toBe(0);

  // Redis is away: no request fails.
  await counters.stop();
  expect((await answers()).map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(await left()).toBeGreaterThan(LIMIT - 5);
  await counters.restart();
  await a.running.says(/"message":"rate counters are shared"/);
  expect(readFileSync(file!, "utf8")).toContain('"serial":4');
}, 180_000);

/** Members that have come back elect a leader first. */
async function published(
  publish: () => Promise<{ readonly code: number | null; readonly said: string }>,
): Promise<void> {
  for (let tries = 0; ; tries++) {
    const { code, said } = await publish();
    if (code === 0) return;
    if (tries === 30) throw new Error(`etcd takes nothing any more: ${said}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

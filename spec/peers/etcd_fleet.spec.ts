/**
 * Built gateways with one configuration in a real etcd: published, run or refused, and listed.
 */
import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { freePort } from "../support/origin.ts";
import { fileWith, program, type Program } from "../support/process.ts";
import { configWith, statusOf } from "../support/remote_program.ts";
import { emptyFolder } from "./built.ts";
import { etcd, type Etcd } from "./etcd.ts";

const KEY = "edge/gw.json";
const SOON = { timeout: 5_000, interval: 50 };
const AFTER_FAILURE = { timeout: 20_000, interval: 100 };

interface Gateway extends Program {
  readonly port: number;
  readonly probePort: number;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** A machine whose clock is wrong by so many milliseconds: what a program and its threads take for the time. */
function withClockOffBy(milliseconds: number): { readonly NODE_OPTIONS: string } {
  const preload = fileWith(
    `const RightDate = Date;
    const now = () => RightDate.now() + ${milliseconds};
    globalThis.Date = class Date extends RightDate {
      static now = now;
      constructor(...parts) {
        super(...(parts.length === 0 ? [now()] : parts));
      }
    };`,
    "clock.mjs",
  );
  return { NODE_OPTIONS: `--import=${preload}` };
}

async function gateway(cluster: Etcd, environment: Record<string, string> = {}): Promise<Gateway> {
  const [port, probePort] = [await freePort(), await freePort()];
  const running = program(["--config", cluster.urlOf(KEY)], {
    environment: {
      HTTP_PORT: String(port),
      LISTEN_HOST: "127.0.0.1",
      PROBE_PORT: String(probePort),
      ...environment,
    },
  });
  return { ...running, port, probePort };
}

const serves = (port: number, path: string) => statusOf(port, path).then((status) => status === 200);
const run = (...words: string[]) => program(words).ended;
const publish = (cluster: Etcd, text: string, ...words: string[]) =>
  run("publish", fileWith(text, "gw.json"), cluster.urlOf(KEY), ...words);

async function published(cluster: Etcd, text: string, ...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await publish(cluster, text, ...words);
  expect([code, stderr]).toEqual([0, ""]);
  return /digest (\w{12})\n$/.exec(stdout)![1]!;
}

interface Listed {
  readonly id: string;
  readonly name: string;
  readonly digest: string;
  readonly ready: boolean;
  readonly refused?: { readonly digest: string; readonly reason: string };
}

async function fleet(cluster: Etcd): Promise<readonly Listed[]> {
  const { stdout } = await run("fleet", cluster.urlOf(KEY), "--json");
  return (JSON.parse(stdout) as { readonly gateways: readonly Listed[] }).gateways;
}

describe("gateways with a configuration in etcd", () => {
  it("start when it is published, run what is valid, refuse what has errors, and say so in their entries", async () => {
    const cluster = await etcd();
    const gateways = [await gateway(cluster), await gateway(cluster), await gateway(cluster)];
    for (const { probePort } of gateways) await expect.poll(() => statusOf(probePort, "/readyz"), SOON).toBe(503);
    expect(await statusOf(gateways[0]!.port, "/1")).toBeNull();
    const first = await published(cluster, configWith("/1"), "--expect", "0");
    for (const { port } of gateways) await expect.poll(() => serves(port, "/1"), AFTER_FAILURE).toBe(true);
    expect(await run("fleet", cluster.urlOf(KEY), "--wait", first)).toMatchObject({ code: 0 });

    const second = await published(cluster, configWith("/2"), "--expect", first);
    for (const { port } of gateways) await expect.poll(() => serves(port, "/2"), SOON).toBe(true);
    expect(await run("fleet", cluster.urlOf(KEY), "--wait", second, "--timeout", "5")).toMatchObject({ code: 0 });
    const before = await fleet(cluster);
    expect(before.length).toBe(3);
    expect(new Set(before.map(({ name }) => name)).size).toBe(3);

    // What only gateways can find out: publish has the variable.
    const withReference = configWith("/3", {
      global: { plugins: [{ name: "key_auth", config: { key: "${env:KEY_OF_GATEWAY}" } }] },
    });
    const words = ["publish", fileWith(withReference, "gw.json"), cluster.urlOf(KEY)];
    const third = await program(words, { environment: { KEY_OF_GATEWAY: "k" } }).ended;
    const [, digest] = /digest (\w{12})\n$/.exec(third.stdout)!;
    const waited = await run("fleet", cluster.urlOf(KEY), "--wait", digest!, "--timeout", "10");
    expect(waited.code).toBe(1);
    expect(waited.stderr).toMatch(new RegExp(`has refused ${digest}: .*KEY_OF_GATEWAY`));
    await expect
      .poll(async () => (await fleet(cluster)).map(({ digest: runs, refused }) => [runs, refused?.digest]), SOON)
      .toEqual(Array.from({ length: 3 }, () => [second, digest]));
    for (const { port } of gateways) expect(await serves(port, "/2")).toBe(true);

    // The next text clears it; the ids stay over reloads.
    const fourth = await published(cluster, configWith("/4"));
    await expect
      .poll(async () => (await fleet(cluster)).map(({ digest: runs, refused }) => [runs, refused]), SOON)
      .toEqual(Array.from({ length: 3 }, () => [fourth, undefined]));
    expect((await fleet(cluster)).map(({ id }) => id)).toEqual(before.map(({ id }) => id));

    gateways[0]!.child.kill("SIGTERM");
    expect((await gateways[0]!.ended).code).toBe(0);
    expect((await fleet(cluster)).length).toBe(2);
  });

  it("keep their id in STATE_DIR, and write nothing with CONFIG_READ_ONLY", async () => {
    const cluster = await etcd();
    await published(cluster, configWith("/1"));
    const folder = emptyFolder();
    const ids: string[] = [];
    for (let i = 0; i < 2; i++) {
      const one = await gateway(cluster, { STATE_DIR: join(folder, "state") });
      await expect.poll(async () => (await fleet(cluster)).length, SOON).toBe(1);
      ids.push((await fleet(cluster))[0]!.id);
      one.child.kill("SIGTERM");
      await one.ended;
    }
    expect(ids[0]).toBe(ids[1]);
    const quiet = await gateway(cluster, { CONFIG_READ_ONLY: "true" });
    await expect.poll(() => serves(quiet.port, "/1"), SOON).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect(await fleet(cluster)).toEqual([]);
    expect((await run("fleet", cluster.urlOf(KEY), "--wait", "0123456789ab", "--timeout", "1")).code).toBe(1);
  });

  it("have their entry back within 15 s of a loss, and it is gone half a minute after one was killed", async () => {
    const cluster = await etcd();
    await published(cluster, configWith("/1"));
    const one = await gateway(cluster);
    await expect.poll(async () => (await fleet(cluster)).length, SOON).toBe(1);
    const [line] = (await cluster.ctl("lease", "list")).split("\n").slice(-1);
    await cluster.ctl("lease", "revoke", line!.trim());
    expect(await fleet(cluster)).toEqual([]);
    await expect.poll(async () => (await fleet(cluster)).length, { timeout: 16_000 }).toBe(1);
    one.child.kill("SIGKILL");
    await expect.poll(async () => (await fleet(cluster)).length, { timeout: 40_000, interval: 500 }).toBe(0);
  });

  it("take each text, list and copy as others do where their clocks are wrong by a day", async () => {
    const cluster = await etcd();
    const first = await published(cluster, configWith("/1"));
    const [early, late] = [withClockOffBy(-DAY_MS), withClockOffBy(DAY_MS)];
    const kept = { STATE_DIR: join(emptyFolder(), "state") };
    const gateways = [
      await gateway(cluster),
      await gateway(cluster, early),
      await gateway(cluster, { ...late, ...kept }),
    ];
    for (const { port } of gateways) await expect.poll(() => serves(port, "/1"), AFTER_FAILURE).toBe(true);
    expect(await run("fleet", cluster.urlOf(KEY), "--wait", first, "--timeout", "10")).toMatchObject({ code: 0 });
    const second = await published(cluster, configWith("/2"));
    for (const { port } of gateways) await expect.poll(() => serves(port, "/2"), SOON).toBe(true);
    expect(await run("fleet", cluster.urlOf(KEY), "--wait", second, "--timeout", "10")).toMatchObject({ code: 0 });
    expect((await fleet(cluster)).length).toBe(3);
    expect(gateways[2]!.stderr()).toContain(new Date(Date.now() + DAY_MS).toISOString().slice(0, 10));

    // It was kept tomorrow, and is from two days ahead of the clock that reads it.
    gateways[2]!.child.kill("SIGTERM");
    await gateways[2]!.ended;
    await cluster.members[0]!.stop();
    const again = await gateway(cluster, { ...early, ...kept });
    await expect.poll(() => serves(again.port, "/2"), AFTER_FAILURE).toBe(true);
    await again.says(/the copy/, "stderr");
  });

  it("take what is signed alone, and publish refuses what is not", async () => {
    const cluster = await etcd();
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const keys = emptyFolder();
    writeFileSync(join(keys, "private.pem"), privateKey.export({ type: "pkcs8", format: "pem" }));
    writeFileSync(join(keys, "public.pem"), publicKey.export({ type: "spki", format: "pem" }));
    const sign = ["--sign", join(keys, "private.pem")];
    const one = await gateway(cluster, { CONFIG_PUBLIC_KEY: join(keys, "public.pem") });
    await published(cluster, configWith("/1", { serial: 1 }), ...sign);
    await expect.poll(() => serves(one.port, "/1"), AFTER_FAILURE).toBe(true);
    expect((await publish(cluster, configWith("/2", { serial: 2 }))).code).toBe(2);
    const second = await published(cluster, configWith("/2", { serial: 2 }), ...sign);
    expect(await run("fleet", cluster.urlOf(KEY), "--wait", second, "--timeout", "10")).toMatchObject({ code: 0 });
    expect((await publish(cluster, configWith("/1", { serial: 1 }), ...sign)).code).toBe(1);
    // Somebody without the key.
    await cluster.ctlWith(configWith("/3", { serial: 3 }), "put", KEY);
    await expect.poll(async () => (await fleet(cluster))[0]!.refused?.reason, SOON).toMatch(/is not signed by/);
    expect(await serves(one.port, "/2")).toBe(true);
  });

  it("serve on, reload and end while etcd does not answer, and take what was published meanwhile", async () => {
    const cluster = await etcd(3);
    await published(cluster, configWith("/1"));
    const [one, two] = [await gateway(cluster), await gateway(cluster)];
    for (const { port } of [one, two]) await expect.poll(() => serves(port, "/1"), AFTER_FAILURE).toBe(true);
    await Promise.all(cluster.members.map(({ process }) => process.kill("SIGSTOP")));
    onTestFinished(() => cluster.members.forEach(({ process }) => void process.kill("SIGCONT")));
    await one.says(/the source of the configuration does not answer/, "stderr");
    expect(await serves(one.port, "/1")).toBe(true);
    const asked = performance.now();
    two.child.kill("SIGTERM");
    expect((await two.ended).code).toBe(0);
    expect(performance.now() - asked).toBeLessThan(5_000);
    for (const { process } of cluster.members) process.kill("SIGCONT");
    await expect.poll(async () => (await publish(cluster, configWith("/2"))).code, AFTER_FAILURE).toBe(0);
    await expect.poll(() => serves(one.port, "/2"), AFTER_FAILURE).toBe(true);
  });

  it("take the last of a thousand texts that are written in a row, and no reload is left over", async () => {
    const cluster = await etcd();
    await published(cluster, configWith("/0"));
    const one = await gateway(cluster);
    await expect.poll(() => serves(one.port, "/0"), AFTER_FAILURE).toBe(true);
    const { url } = cluster.members[0]!;
    const base64 = (text: string) => Buffer.from(text).toString("base64");
    for (let i = 1; i <= 1000; i++) {
      const body = JSON.stringify({ key: base64(KEY), value: base64(configWith(`/${i}`)) });
      await fetch(new URL("/v3/kv/put", url), { method: "POST", body });
    }
    await expect.poll(() => serves(one.port, "/1000"), SOON).toBe(true);
    const reloads = () => one.stderr().match(/configuration reloaded/g)!.length;
    const count = reloads();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(reloads()).toBe(count);
    expect(count).toBeLessThan(1_000);
  });
});

describe("publish", () => {
  it("says what etcd has to be set to, and writes 10 MB where it is", async () => {
    const small = await etcd();
    const text = `${configWith("/1")}${" ".repeat(10_000_000)}`;
    const refused = await publish(small, text);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/--max-request-bytes 100\d{5} or more/);
    expect(refused.stderr).toMatch(/start each member of etcd with a higher --max-request-bytes/);
    const bytes = /--max-request-bytes (\d+) or more/.exec(refused.stderr)![1]!;
    const large = await etcd(1, { args: ["--max-request-bytes", bytes] });
    const one = await gateway(large);
    expect((await publish(large, text)).code).toBe(0);
    await expect.poll(() => serves(one.port, "/1"), AFTER_FAILURE).toBe(true);
  });

  it("exits with 1 where etcd has no room, and says what to do", async () => {
    const cluster = await etcd(1, { args: ["--quota-backend-bytes", String(2 * 1024 * 1024)] });
    for (let i = 0; i < 10; i++) await cluster.ctlWith("x".repeat(1_000_000), "put", `fill${i}`).catch(() => null);
    const { code, stderr } = await publish(cluster, configWith("/1"));
    expect(code).toBe(1);
    expect(stderr).toMatch(/database space exceeded; etcd takes no writes: make room/);
  });

  it("of several at once only one writes", async () => {
    const cluster = await etcd(3);
    const all = await Promise.all([1, 2, 3, 4].map((i) => publish(cluster, configWith(`/${i}`), "--expect", "0")));
    expect(all.map(({ code }) => code).sort()).toEqual([0, 1, 1, 1]);
  });
});

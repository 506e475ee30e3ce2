/**
 * The configuration in a real etcd, as whoever asks for it sees it: `lib/source/etcd_server.ts` without a gateway.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { SourceFailure, type SourceText, type TextServer } from "../../lib/config/text_source.ts";
import { EtcdServer, type EtcdServerOptions } from "../../lib/source/etcd_server.ts";
import { etcd, leaderOf, type Etcd } from "./etcd.ts";

const KEY = "edge/gw.json";
const never = new AbortController().signal;

function serverOf({ members }: Etcd, options: Partial<EtcdServerOptions> = {}): TextServer {
  const server = new EtcdServer({
    ...{ name: "etcd", key: KEY, pollMs: 10_000, login: null, clock: systemClock, random: () => 0 },
    members: members.map(({ url }) => url),
    ...options,
  });
  onTestFinished(() => server.close());
  return server;
}

/**
 * Asks as a source does: at first, whenever the watch calls, and half a second after a failure. `texts` has what it
 * got, `asked` how often it asked.
 */
function following(server: TextServer) {
  const abort = new AbortController();
  const state = { texts: [] as string[], signatures: [] as (string | null)[], asked: 0, failures: [] as string[] };
  onTestFinished(() => abort.abort());
  const ask = async () => {
    state.asked++;
    const answer: SourceText | null = await server.ask(abort.signal);
    if (answer === null) return;
    state.texts.push(answer.text.toString());
    state.signatures.push(answer.signature);
  };
  const follow = async () => {
    while (!abort.signal.aborted) {
      try {
        await ask();
        let due: (() => void) | null = null;
        let isDue = false;
        const changed = () => {
          isDue = true;
          due?.();
        };
        const watched = server.watch!(changed, abort.signal).catch((error: unknown) => {
          due?.();
          return error;
        });
        for (;;) {
          const ended = await Promise.race([
            watched.then((error) => ({ error })),
            isDue ? null : new Promise<null>((resolve) => (due = () => resolve(null))),
          ]);
          if (ended !== null) throw ended.error;
          isDue = false;
          await ask();
        }
      } catch (error) {
        if (abort.signal.aborted) return;
        if (!(error instanceof SourceFailure)) throw error;
        state.failures.push(error.message);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    }
  };
  void follow();
  return state;
}

const last = (texts: readonly unknown[]) => texts.at(-1);
/** A change is in force within 2 s while nothing fails; another second is for a busy machine. */
const SOON = { timeout: 3_000, interval: 20 };
/** 15 s after a failure. */
const AFTER_FAILURE = { timeout: 15_000, interval: 50 };

describe("one member", () => {
  it("gives text and signature, and each change of them within 2 s", async () => {
    const cluster = await etcd();
    const state = following(serverOf(cluster));
    await expect.poll(() => state.failures[0]).toBe(`etcd has no key "${KEY}": publish a configuration there`);
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    await cluster.ctl("put", KEY, "2");
    await expect.poll(() => last(state.texts), SOON).toBe("2");
    await cluster.ctl("put", `${KEY}.sig`, "s");
    await expect.poll(() => last(state.signatures), SOON).toBe("s");
    await cluster.ctlWith(`\nput ${KEY} 3\nput ${KEY}.sig t\n\n\n`, "txn");
    await expect.poll(() => [last(state.texts), last(state.signatures)], SOON).toEqual(["3", "t"]);
    await cluster.ctl("del", KEY);
    await expect.poll(() => state.failures.length, SOON).toBeGreaterThan(1);
    await cluster.ctl("put", KEY, "4");
    await expect.poll(() => last(state.texts), SOON).toBe("4");
  });

  it("goes on across compaction, also with the watch beginning behind it", async () => {
    const cluster = await etcd();
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    for (let i = 0; i < 20; i++) await cluster.ctl("put", "other", String(i));
    const [{ Status }] = JSON.parse(await cluster.ctl("endpoint", "status", "-w", "json")) as [
      { readonly Status: { readonly header: { readonly revision: number } } },
    ];
    await cluster.ctl("compact", String(Status.header.revision));
    const [member] = cluster.members;
    await member!.stop();
    member!.start();
    await expect.poll(() => cluster.ctl("put", KEY, "2").catch(() => null), AFTER_FAILURE).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("2");
  });

  it("gives the last of a thousand updates, and asks no more often than there are updates", async () => {
    const cluster = await etcd();
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "0");
    await expect.poll(() => last(state.texts), SOON).toBe("0");
    const before = state.asked;
    const { url } = cluster.members[0]!;
    for (let i = 1; i <= 1000; i++) {
      const value = Buffer.from(String(i)).toString("base64");
      const body = JSON.stringify({ key: Buffer.from(KEY).toString("base64"), value });
      await fetch(new URL("/v3/kv/put", url), { method: "POST", body });
    }
    await expect.poll(() => last(state.texts), SOON).toBe("1000");
    expect(state.asked - before).toBeLessThanOrEqual(2_000);
    expect(state.failures.filter((message) => !message.includes("no key"))).toEqual([]);
  });

  it("logs in with a user, and again when the token has expired or users were switched off and on", async () => {
    const cluster = await etcd(1, { args: ["--auth-token-ttl", "1"] });
    const root = ["--user", "root:toor"];
    await cluster.ctl("put", KEY, "1");
    await cluster.ctl("user", "add", "root:toor");
    await cluster.ctl("user", "grant-role", "root", "root");
    await cluster.ctl("role", "add", "reader");
    await cluster.ctl("role", "grant-permission", "reader", "read", KEY);
    await cluster.ctl("role", "grant-permission", "reader", "read", `${KEY}.sig`);
    await cluster.ctl("user", "add", "gateway:geheim");
    await cluster.ctl("user", "grant-role", "gateway", "reader");
    await cluster.ctl("auth", "enable");
    const login = () => ({ name: "gateway", password: "geheim" });
    const state = following(serverOf(cluster, { login }));
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    for (const text of ["2", "3"]) {
      await new Promise((resolve) => setTimeout(resolve, 2_500)); // the token has expired then
      await cluster.ctl(...root, "put", KEY, text);
      await expect.poll(() => last(state.texts), SOON).toBe(text);
    }
    await cluster.ctl(...root, "auth", "disable");
    await cluster.ctl("put", KEY, "4");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("4");
    await cluster.ctl("auth", "enable");
    await cluster.ctl(...root, "put", KEY, "5");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("5");
    const refused = serverOf(cluster, { login: () => ({ name: "gateway", password: "falsch" }) });
    const failure = await refused.ask(never).catch((error: unknown) => error);
    expect(failure).toMatchObject({ kind: "unreachable" });
    expect((failure as Error).message).toMatch(/authentication failed, invalid user ID or password; check ETCD_USER/);
    expect((failure as Error).message).not.toContain("falsch");
    const other = serverOf(cluster, { login, key: "other" });
    await expect(other.ask(never)).rejects.toThrow(/permission denied; the user needs the rights/);
    await expect(serverOf(cluster).ask(never)).rejects.toThrow(/user name is empty; set ETCD_USER/);
  });

  it("asks over TLS with a client certificate", async () => {
    const cluster = await etcd(1, { tls: true });
    const file = (name: string) => readFileSync(join(cluster.folder, name));
    const tls = { ca: file("ca.pem"), cert: file("client.pem"), key: file("client.key") };
    const state = following(serverOf(cluster, { tls: () => tls }));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    await cluster.ctl("put", KEY, "2");
    await expect.poll(() => last(state.texts), SOON).toBe("2");
    await expect(serverOf(cluster, { tls: () => ({ ca: tls.ca }) }).ask(never)).rejects.toThrow(SourceFailure);
    await expect(serverOf(cluster, { tls: () => ({ cert: tls.cert, key: tls.key }) }).ask(never)).rejects.toThrow(
      /certificate|issuer/,
    );
  });

  it("reads and watches 10 MB where etcd is set to take them", async () => {
    const cluster = await etcd(1, { args: ["--max-request-bytes", String(16 * 1024 * 1024)] });
    const state = following(serverOf(cluster));
    const put = async (digit: string) => {
      const value = Buffer.from(digit.repeat(10_000_000)).toString("base64");
      const body = JSON.stringify({ key: Buffer.from(KEY).toString("base64"), value });
      const { status } = await fetch(new URL("/v3/kv/put", cluster.members[0]!.url), { method: "POST", body });
      expect(status).toBe(200);
    };
    for (const digit of ["1", "2"]) {
      await put(digit);
      await expect.poll(() => state.texts.at(-1)?.[0], { timeout: 6_000, interval: 20 }).toBe(digit);
      expect(state.texts.at(-1)!.length).toBe(10_000_000);
    }
  });

  it("is read and watched although its disk is full", async () => {
    const cluster = await etcd(1, { args: ["--quota-backend-bytes", String(2 * 1024 * 1024)] });
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    const megabyte = "x".repeat(1_000_000);
    await expect(
      (async () => {
        for (let i = 0; i < 10; i++) await cluster.ctlWith(megabyte, "put", `fill${i}`);
      })(),
    ).rejects.toThrow(/database space exceeded/);
    await expect(serverOf(cluster).ask(never)).resolves.toMatchObject({ text: Buffer.from("1") });
    expect(state.failures.filter((message) => !message.includes("no key"))).toEqual([]);
  });
});

describe("three members", () => {
  it("a member that is killed, and one that is stopped, are left for another one within 15 s", async () => {
    const cluster = await etcd(3);
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    const [first, second] = cluster.members;
    // It is the one that is asked and watched.
    first!.process.kill("SIGSTOP");
    const rest = cluster.members.slice(1).map(({ url }) => url.href.slice(0, -1));
    const put = (text: string) => cluster.ctl("--endpoints", rest.join(","), "put", KEY, text);
    await expect.poll(() => put("2").catch(() => null), AFTER_FAILURE).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("2");
    first!.process.kill("SIGCONT");
    await second!.stop();
    await expect.poll(() => cluster.ctl("put", KEY, "3").catch(() => null), AFTER_FAILURE).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("3");
  });

  it("a change of the leader, killed or asked to leave, loses nothing", async () => {
    const cluster = await etcd(3);
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    const leader = await leaderOf(cluster);
    await leader.stop();
    await expect.poll(() => cluster.ctl("put", KEY, "2").catch(() => null), AFTER_FAILURE).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("2");
    leader.start();
    const next = await leaderOf(cluster);
    next.process.kill("SIGSTOP");
    const rest = cluster.members.filter((member) => member !== next).map(({ url }) => url.href.slice(0, -1));
    const put = (text: string) => cluster.ctl("--endpoints", rest.join(","), "put", KEY, text);
    await expect.poll(() => put("3").catch(() => null), AFTER_FAILURE).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("3");
    next.process.kill("SIGCONT");
  });

  it("says that nothing answers without a majority, and goes on when there is one again", async () => {
    const cluster = await etcd(3);
    const state = following(serverOf(cluster));
    await cluster.ctl("put", KEY, "1");
    await expect.poll(() => last(state.texts), SOON).toBe("1");
    const [, second, third] = cluster.members;
    await Promise.all([second!.stop(), third!.stop()]);
    await expect.poll(() => state.failures.at(-1) ?? "", { timeout: 30_000 }).toMatch(/^etcd at /);
    second!.start();
    await expect.poll(() => cluster.ctl("put", KEY, "2").catch(() => null), { timeout: 30_000 }).toBe("OK");
    await expect.poll(() => last(state.texts), AFTER_FAILURE).toBe("2");
  });
});

import { X509Certificate } from "node:crypto";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { Challenge } from "../../lib/acme/contracts.ts";
import { egressProxy } from "../../lib/base/egress_proxy.ts";
import { memoryFiles } from "../support/acme_files.ts";
import { connectProxy } from "../support/connect_proxy.ts";
import { problem } from "./fake_directory.ts";
import { kept, keptValid, namesOf, nextAttempt } from "./kept.ts";

const DAY_MS = 86_400_000;

const refusing = (...hosts: string[]) => ({
  proves: (host: string) =>
    hosts.includes(host) ? { type: "urn:ietf:params:acme:error:connection", detail: `${host} refuses` } : null,
});

describe("a keeper without certificates", () => {
  it("asks nothing before its start", async () => {
    const { keeper, directory } = await kept();
    await new Promise((turn) => setImmediate(turn));
    expect(keeper.state).toMatchObject({ state: "starting", nextAt: null });
    expect(directory.asked).toEqual([]);
  });

  it("orders one for all hosts, presents it with its key, and stores it", async () => {
    const { keeper, presented, files, directory, challenges } = await keptValid({ hosts: ["a.example", "192.0.2.1"] });
    const [issued, ...others] = presented();
    expect(others).toEqual([]);
    expect(issued!.hosts).toEqual(["a.example", "192.0.2.1"]);
    expect(namesOf(issued!)).toBe("DNS:a.example, IP Address:192.0.2.1");
    expect(String(files.content.get("certificates.pem"))).toContain(String(issued!.cert));
    expect([...files.content.keys()]).toEqual(["account.key", "certificates.pem"]);
    expect(challenges.size).toBe(0);
    expect(directory.accounts[0]!.payload).toMatchObject({
      termsOfServiceAgreed: true,
      contact: ["mailto:ops@example.com"],
    });
    expect(directory.orders[0]!.identifiers).toEqual([
      { type: "dns", value: "a.example" },
      { type: "ip", value: "192.0.2.1" },
    ]);
    expect(keeper.state).toMatchObject({ error: null, orders: { succeeded: 1, failed: 0 } });
    expect(keeper.state.hosts[0]).toEqual({
      host: "a.example",
      notAfter: Date.parse(new X509Certificate(issued!.cert).validTo),
      error: null,
      isDue: false,
    });
  });

  it("answers a challenge before the directory looks, and no longer afterwards", async () => {
    const { keeper, directory, challenges, settled } = await kept();
    const seen: string[] = [];
    directory.proves = (host, token) => {
      const found = [...challenges].find((each) => each.host === host) as Challenge & { type: "http-01" };
      expect(found.token).toBe(token);
      expect(found.keyAuthorization).toMatch(new RegExp(`^${token}\\.[\\w-]{43}$`));
      seen.push(host);
      return null;
    };
    keeper.start();
    await settled();
    expect(seen).toEqual(["a.example", "b.example"]);
    expect(challenges.size).toBe(0);
  });

  it("answers the challenges of all hosts before the directory looks at the first of them", async () => {
    const { keeper, directory, challenges, settled } = await kept();
    const open: string[][] = [];
    directory.proves = () => {
      open.push([...challenges].map(({ host }) => host));
      return null;
    };
    keeper.start();
    await settled();
    expect(open).toEqual([
      ["a.example", "b.example"],
      ["a.example", "b.example"],
    ]);
  });

  it("answers tls-alpn-01 with a certificate for the host, an address by its name in the reverse tree", async () => {
    const hosts = ["a.example", "192.0.2.1", "2001:db8::1"];
    const { keeper, directory, challenges, settled } = await kept({ challenge: "tls-alpn-01", hosts });
    const seen: Record<string, string> = {};
    directory.proves = (host) => {
      const found = [...challenges].find((each) => each.host === host) as Challenge & { type: "tls-alpn-01" };
      seen[found.servername] = new X509Certificate(found.pair.cert).subjectAltName!;
      return null;
    };
    keeper.start();
    await settled();
    expect(seen).toEqual({
      "a.example": "DNS:a.example",
      "1.2.0.192.in-addr.arpa": "IP Address:192.0.2.1",
      [`1.${"0.".repeat(23)}8.b.d.0.1.0.0.2.ip6.arpa`]: "IP Address:2001:DB8:0:0:0:0:0:1",
    });
  });

  it("asks through the egress proxy, which gets the directory's name", async () => {
    const proxy = await connectProxy();
    const url = { secure: false, host: "127.0.0.1", port: proxy.port, user: null, password: null };
    const settings = egressProxy({ url, except: [], all: false });
    const { directory } = await keptValid({}, { proxy: () => settings });
    expect(new Set(proxy.asked)).toEqual(new Set([directory.host]));
  });

  it("does not begin an order that it could not store", async () => {
    const files = memoryFiles((change) => {
      if (change === "write order.json") throw new Error("EROFS: read-only file system");
    });
    const { keeper, directory, settled } = await kept({}, { files });
    keeper.start();
    await settled();
    expect(keeper.state.error).toBe("order.json cannot be written: EROFS: read-only file system");
    expect(directory.asked.filter(({ path }) => path.startsWith("/authorization"))).toEqual([]);
  });

  it("registers no account whose key it could not store", async () => {
    const files = memoryFiles((change) => {
      if (change === "write account.key") throw new Error("ENOSPC: no space left on device");
    });
    const { keeper, directory, settled } = await kept({}, { files });
    keeper.start();
    await settled();
    expect(keeper.state.error).toBe("account.key cannot be written: ENOSPC: no space left on device");
    expect(directory.accounts).toEqual([]);
  });

  it("presents a certificate that cannot be stored, stores it once it can, and orders no other one", async () => {
    let isFull = true;
    const files = memoryFiles((change) => {
      if (isFull && change === "write certificates.pem") throw new Error("ENOSPC: no space left on device");
    });
    const made = await kept({}, { files });
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state).toMatchObject({
      state: "waiting",
      error: "certificates.pem cannot be written: ENOSPC: no space left on device",
    });
    expect(made.presented().length).toBe(1);
    // A restart takes the order up, and has the same certificate.
    expect(files.content.has("order.json")).toBe(true);
    isFull = false;
    await nextAttempt(made);
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
    expect([...files.content.keys()]).toEqual(["account.key", "certificates.pem"]);
    expect(made.directory.orders.length).toBe(1);
  });
});

describe("hosts of which one fails", () => {
  it("the others are ordered without it, and it has its reason", async () => {
    const made = await kept({ hosts: ["a.example", "b.example", "c.example"] });
    Object.assign(made.directory, refusing("b.example"));
    made.keeper.start();
    await made.settled();
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "c.example"]]);
    expect(made.keeper.state).toMatchObject({
      state: "waiting",
      error: "b.example: connection: b.example refuses",
      orders: { succeeded: 1, failed: 1 },
    });
    expect(made.keeper.state.hosts.map(({ error }) => error)).toEqual([null, "connection: b.example refuses", null]);
    expect(made.challenges.size).toBe(0);
  });

  it("all are ordered again later, and no certificate meanwhile for those that have one", async () => {
    const made = await kept();
    Object.assign(made.directory, refusing("b.example"));
    made.keeper.start();
    await made.settled();
    expect(made.directory.orders.length).toBe(2);
    await nextAttempt(made);
    expect(made.directory.orders.length).toBe(3);
    Object.assign(made.directory, refusing());
    await nextAttempt(made);
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example"]]);
  });

  it("and that the directory does not even look at is left out", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) =>
      path === "/challenge/0" ? problem("connection", "no address", {}, 400) : undefined;
    made.keeper.start();
    await made.settled();
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["b.example"]]);
    expect(made.keeper.state.hosts.map(({ error }) => error)).toEqual(["connection: no address", null]);
  });

  it("of many the error is one short line", async () => {
    const hosts = Array.from({ length: 100 }, (_, i) => `host-${i}.example`);
    const made = await kept({ hosts });
    Object.assign(made.directory, refusing(...hosts));
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error!.length).toBeLessThan(450);
    expect(made.keeper.state.hosts.every(({ error }) => error !== null)).toBe(true);
    expect(made.directory.orders.length).toBe(1);
  });

  it("the pause after it grows from 10 seconds to 6 hours", async () => {
    const made = await kept({ hosts: ["a.example"] });
    Object.assign(made.directory, refusing("a.example"));
    made.keeper.start();
    await made.settled();
    const pauses: number[] = [];
    for (let i = 0; i < 13; i++) {
      pauses.push((made.keeper.state.nextAt! - made.clock.wall()) / 1_000);
      await nextAttempt(made);
    }
    expect(pauses).toEqual([10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 21600]);
  });

  it.each([
    [
      "with subproblems",
      { subproblems: [{ type: "x", detail: "no", identifier: { type: "dns", value: "b.example" } }] },
    ],
    ["in its text alone", { detail: 'forbidden by policy: "b.example".' }],
  ])("an order that the directory refuses %s is repeated without the host", async (_how, more) => {
    const made = await kept();
    made.directory.instead = ({ path, payload }) => {
      const isRefused = path === "/new-order" && JSON.stringify(payload).includes("b.example");
      return isRefused ? problem("rejectedIdentifier", "", more) : undefined;
    };
    made.keeper.start();
    await made.settled();
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example"]]);
    expect(made.keeper.state.hosts[1]!.error).not.toBeNull();
  });

  it("a host that the directory never looks at counts as failed after ten minutes", async () => {
    const made = await kept();
    made.directory.instead = ({ path, payload }) =>
      path === "/challenge/1" && payload !== null ? { body: {} } : undefined;
    made.keeper.start();
    await made.settled();
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example"]]);
    expect(made.keeper.state.hosts[1]!.error).toBe("the directory has not looked within 10 minutes");
  });

  it("a host that the directory wants more time for than ten minutes is looked at once more at their end", async () => {
    const made = await kept();
    let looks = 0;
    made.directory.amend = ({ path }, answer) => {
      // The first look is for the challenge, the second one at the outcome.
      if (path !== "/authorization/1" || ++looks !== 2) return answer;
      return { ...answer, headers: { "Retry-After": "3600" }, body: { ...(answer.body as object), status: "pending" } };
    };
    const begin = made.clock.now();
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example"]]);
    expect([looks, made.clock.now() - begin]).toEqual([3, 600_000]);
  });

  it("a host that cannot be renewed with the others stays with its former certificate", async () => {
    const made = await keptValid();
    const [former] = made.presented();
    Object.assign(made.directory, refusing("b.example"));
    await nextAttempt(made);
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example"], ["b.example"]]);
    expect(made.presented()[1]!.cert).toEqual(former!.cert);
    // Also after a restart.
    await made.keeper.close();
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.presented().map(({ hosts }) => hosts)).toEqual([["a.example"], ["b.example"]]);
    Object.assign(made.directory, refusing());
    await nextAttempt(again);
    expect(again.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example"]]);
  });
});

describe("looks at certificates that are there", () => {
  it("ask OpenSSL no more which hosts they are for", async () => {
    const made = await keptValid();
    const asked = vi.spyOn(X509Certificate.prototype, "checkHost");
    onTestFinished(() => asked.mockRestore());
    made.clock.advance(600_000);
    expect(made.keeper.state.hosts.every(({ notAfter }) => notAfter !== null)).toBe(true);
    expect(asked.mock.calls).toEqual([]);
  });
});

describe("a restart", () => {
  it("presents what is stored, and asks the directory for nothing but when to renew it", async () => {
    const made = await keptValid();
    await made.keeper.close();
    const asked = made.directory.asked.length;
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect(again.presented()).toEqual(made.presented());
    // Whether the directory wants it renewed.
    expect(made.directory.asked.slice(asked).map(({ path }) => path)).toEqual(["/dir"]);
  });

  it("orders at once for a host that is new in the configuration", async () => {
    const made = await keptValid();
    await made.keeper.close();
    const again = made.again({ hosts: ["a.example", "b.example", "c.example"] });
    again.keeper.start();
    await again.settled();
    expect(again.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example", "c.example"]]);
  });
});

describe("a reload", () => {
  it("tries at once what failed", async () => {
    const made = await kept();
    Object.assign(made.directory, refusing("a.example", "b.example"));
    made.keeper.start();
    await made.settled();
    Object.assign(made.directory, refusing());
    made.keeper.configure(made.settings);
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
  });

  it("lets an attempt that still runs go on", async () => {
    const made = await kept();
    made.directory.proves = () => {
      made.keeper.configure(made.settings);
      return null;
    };
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(1);
  });

  it("with other hosts gives up an attempt that still runs", async () => {
    const made = await kept();
    const hosts = ["c.example"];
    made.directory.proves = () => {
      made.directory.proves = () => null;
      made.keeper.configure({ ...made.settings, hosts });
      return null;
    };
    made.keeper.start();
    await made.until(() => made.keeper.state.state === "valid");
    expect(made.presented().map((each) => each.hosts)).toEqual([hosts]);
    expect(made.challenges.size).toBe(0);
    expect(made.keeper.state.orders).toEqual({ succeeded: 1, failed: 0 });
  });

  it("without a host presents the certificate for the others, and orders nothing", async () => {
    const made = await keptValid();
    made.keeper.configure({ ...made.settings, hosts: ["b.example"] });
    await made.until(() => made.presented()[0]!.hosts.length === 1);
    expect(made.presented()[0]!.hosts).toEqual(["b.example"]);
    expect(made.keeper.state.state).toBe("valid");
  });

  it("with another directory orders from it at once, and the former certificate stays until then", async () => {
    const made = await keptValid();
    const other = await kept();
    other.directory.proves = () => {
      expect(namesOf(made.presented()[0]!)).toBe("DNS:a.example, DNS:b.example");
      return null;
    };
    const [former] = made.presented();
    made.keeper.configure({ ...made.settings, directory: other.directory.url });
    await made.until(() => made.keeper.state.state === "valid");
    expect(made.presented()[0]!.cert).not.toEqual(former!.cert);
    expect(other.directory.orders.length).toBe(1);
  });
});

describe("the end", () => {
  it.each([
    ["an answer of the directory", "/new-order"],
    ["a nonce", "/new-nonce"],
    ["a validation", "/challenge/0"],
  ])("does not wait for %s", async (_what, at) => {
    const made = await kept();
    made.directory.instead = ({ path }) => (path === at ? "no answer" : undefined);
    made.keeper.start();
    await made.until(() => made.directory.asked.some(({ path }) => path === at));
    await made.keeper.close();
    expect(made.challenges.size).toBe(0);
    expect(made.lines).toEqual([]);
    expect(made.clock.pauseMs).toBeNull();
  });

  it("does not wait for threads that answer no challenge", async () => {
    const never = new Promise<never>(() => {});
    const made = await kept({}, { answers: { present: () => never, remove: () => never } });
    made.keeper.start();
    await made.until(() => made.directory.asked.some(({ path }) => path === "/authorization/1"));
    await made.keeper.close();
    expect(made.clock.pauseMs).toBeNull();
  });

  it("leaves an order that has just brought its certificate to the next start, and presents nothing", async () => {
    const made = await kept();
    const { checkHost } = X509Certificate.prototype;
    // The last thing that is done with a certificate before it is taken over.
    const closing = new Promise<void>((resolve) => {
      const checked = vi.spyOn(X509Certificate.prototype, "checkHost").mockImplementation(function (
        this: X509Certificate,
        ...given
      ) {
        checked.mockRestore();
        resolve(made.keeper.close());
        return checkHost.apply(this, given);
      });
    });
    made.keeper.start();
    await made.until(() => made.directory.asked.some(({ path }) => path.startsWith("/certificate/")));
    await closing;
    expect(made.presented()).toEqual([]);
    expect([...made.files.content.keys()]).toEqual(["account.key", "order.json"]);
    const again = made.again();
    again.keeper.start();
    await again.settled();
    expect([again.presented().length, made.directory.orders.length]).toEqual([1, 1]);
    await again.keeper.close();
    const last = made.again();
    last.keeper.start();
    await last.keeper.close();
    expect(last.presented()).toEqual([]);
  });

  it("does not wait for the next attempt", async () => {
    const made = await kept();
    made.directory.instead = () => ({ status: 500 });
    made.keeper.start();
    await made.settled();
    await made.keeper.close();
    expect(made.clock.pauseMs).toBeNull();
    await expect(made.keeper.rollover()).rejects.toThrow("the program ends");
  });
});

describe("a certificate that is over while it cannot be renewed", () => {
  it("stays, and is warned of once it ends within 14 days", async () => {
    const made = await keptValid();
    made.directory.instead = () => "broken";
    await nextAttempt(made);
    expect(made.keeper.state).toMatchObject({ state: "waiting" });
    expect(made.lines.filter((line) => line.includes("ends soon"))).toEqual([]);
    for (let day = 0; day < 31; day++) {
      made.clock.setWall(DAY_MS);
      await nextAttempt(made);
    }
    const warned = made.lines.filter((line) => line.includes("ends soon"));
    expect(warned.length).toBe(1);
    expect(warned[0]).toContain("2026-03-1");
    expect(made.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example"]]);
    made.directory.instead = () => undefined;
    made.keeper.configure(made.settings);
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
  });
});

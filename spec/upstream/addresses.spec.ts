import { describe, expect, it, onTestFinished } from "vitest";
import { Names } from "../../lib/upstream/addresses.ts";
import type { Address } from "../../lib/upstream/contracts.ts";
import { addressEndpoints } from "../../lib/upstream/endpoints.ts";
import { addressOf, madeUpNames, turn } from "../support/addresses.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";
import { eventually } from "../support/raw_client.ts";

interface LookUp {
  readonly host: string;
  answer(...addresses: string[]): Promise<void>;
  fail(message?: string): Promise<void>;
}

/** Names whose look-ups end when the test says so. */
function bench({ random = 0, ttlMs = 30_000, memory = new SharedArrayBuffer(1 << 14) } = {}) {
  const clock = manualClock();
  const { log, lines } = madeUpTools();
  const asked: LookUp[] = [];
  const names = new Names({
    clock,
    log,
    ttlMs,
    random: () => random,
    memory: () => memory,
    lookup: (host) =>
      new Promise((resolve, reject) => {
        asked.push({
          host,
          answer(...addresses) {
            resolve(addresses.map(addressOf));
            return turn();
          },
          fail(message = "getaddrinfo ENOTFOUND") {
            reject(new Error(message));
            return turn();
          },
        });
      }),
  });
  onTestFinished(() => names.close());
  const of = (...hosts: readonly string[]) => hosts.flatMap((host) => names.name(host) ?? []);
  const told = () =>
    lines.filter(({ level }) => level !== "debug").map(({ level, message, fields }) => ({ level, message, ...fields }));
  const texts = (addresses: readonly Address[]) => addresses.map(({ address }) => address);
  return { clock, names, of, asked, told, texts };
}

describe("a host name", () => {
  it("a host name gets one look-up for all its users, as soon as it is retained", async () => {
    const { names, of, asked, texts } = bench();
    const name = names.name("a.example")!;
    expect(asked).toHaveLength(0);
    expect(name.addresses).toEqual([]);
    names.retain(of("a.example", "b.example", "a.example"));
    names.retain(of("a.example", "b.example"));
    expect(asked.map(({ host }) => host)).toEqual(["a.example", "b.example"]);
    await asked[0]!.answer("192.0.2.1", "2001:db8::1", "192.0.2.1");
    expect(name.addresses).toEqual([addressOf("192.0.2.1"), addressOf("2001:db8::1")]);
    expect(names.name("a.example")).toBe(name);
    expect(texts(names.name("b.example")!.addresses)).toEqual([]);
  });

  it.each(["192.0.2.1", "::1", "2001:db8::1"])("a host name needs no look-up if it is the address %s", (host) => {
    const { names, of, asked } = bench();
    expect(names.name(host)).toBeUndefined();
    names.retain(of(host));
    expect(asked).toEqual([]);
  });

  it("a host name gets a new look-up when the answer is ttl_ms old, not before", async () => {
    const { names, of, asked, clock } = bench();
    names.retain(of("a.example"));
    clock.advance(5_000);
    await asked[0]!.answer("192.0.2.1");
    clock.advance(29_999);
    expect(asked).toHaveLength(1);
    clock.advance(1);
    expect(asked).toHaveLength(2);
    await asked[1]!.answer("192.0.2.1");
    clock.advance(30_000);
    expect(asked).toHaveLength(3);
  });

  it("a host name gets a new look-up up to a tenth earlier than ttl_ms, at random", async () => {
    const { names, of, asked, clock } = bench({ random: 0.5 });
    names.retain(of("a.example"));
    await asked[0]!.answer("192.0.2.1");
    clock.advance(28_499);
    expect(asked).toHaveLength(1);
    clock.advance(1);
    expect(asked).toHaveLength(2);
  });

  it("a host name gets its next look-up after a changed ttl_ms, counted from the last answer", async () => {
    const { names, of, asked, clock } = bench();
    names.retain(of("a.example"));
    await asked[0]!.answer("192.0.2.1");
    clock.advance(4_000);
    names.retain(of("a.example"), 5_000);
    clock.advance(999);
    expect(asked).toHaveLength(1);
    clock.advance(1);
    await asked[1]!.answer("192.0.2.1");
    names.retain(of("a.example"), 60_000);
    clock.advance(59_999);
    expect(asked).toHaveLength(2);
    names.retain(of("a.example"), 1_000);
    clock.advance(0);
    expect(asked).toHaveLength(3);
  });

  it("a host name keeps its addresses and gets no look-up when it is no longer retained", async () => {
    const { names, of, asked, clock } = bench();
    const name = names.name("a.example")!;
    names.retain(of("a.example"));
    await asked[0]!.answer("192.0.2.1");
    names.retain(of("b.example"));
    await asked[1]!.answer("192.0.2.2");
    expect(clock.pending).toBe(1);
    clock.advance(30_000);
    expect(asked.map(({ host }) => host)).toEqual(["a.example", "b.example", "b.example"]);
    expect(name.addresses).toEqual([addressOf("192.0.2.1")]);
  });
});

it("a host name that was forgotten is looked up for who still has it, and a new user gets the same", async () => {
  const { names, asked, texts } = bench();
  const name = names.name("a.example")!;
  names.retain([name]);
  names.retain([]);
  await asked[0]!.answer("192.0.2.1");
  names.retain([name]);
  expect(asked).toHaveLength(2);
  await asked[1]!.answer("192.0.2.2");
  expect(texts(name.addresses)).toEqual(["192.0.2.2"]);
  expect(names.name("a.example")).toBe(name);
});

it("forgets host names that nobody retains", () => {
  const { names, of } = bench();
  const [kept, refused] = of("kept.example", "refused.example");
  names.retain([kept!]);
  names.forgetUnused();
  expect(names.name("kept.example")).toBe(kept);
  expect(names.name("refused.example")).not.toBe(refused);
});

it("asks the system by default", async () => {
  const names = new Names({ clock: manualClock(), log: madeUpTools().log });
  onTestFinished(() => names.close());
  const name = names.name("localhost")!;
  names.retain([name]);
  await eventually(() => name.addresses.length > 0, "an address");
  expect(["127.0.0.1", "::1"]).toContain(name.addresses[0]!.address);
});

describe("a look-up that hangs", () => {
  it("a look-up that hangs runs once, however long it takes", async () => {
    const { names, of, asked, clock } = bench();
    names.retain(of("a.example"));
    clock.advance(3_600_000);
    names.retain([]);
    names.retain(of("a.example"));
    names.retain(of("a.example"), 1);
    clock.advance(3_600_000);
    expect(asked).toHaveLength(1);
    const name = names.name("a.example")!;
    await asked[0]!.answer("192.0.2.1");
    expect(name.addresses).toEqual([addressOf("192.0.2.1")]);
  });

  it("a look-up that hangs changes nothing when it ends after close", async () => {
    const { names, of, asked, clock, told } = bench();
    const name = names.name("a.example")!;
    names.retain(of("a.example", "b.example"));
    names.close();
    await asked[0]!.answer("192.0.2.1");
    await asked[1]!.fail();
    expect(name.addresses).toEqual([]);
    expect(clock.pending).toBe(0);
    expect(told()).toEqual([]);
  });
});

describe("a look-up that fails", () => {
  it(
    "a look-up that fails keeps the last answer, and the failure is logged once " + "until a look-up succeeds",
    async () => {
      const { names, of, asked, clock, told } = bench();
      const name = names.name("a.example")!;
      names.retain(of("a.example"));
      await asked[0]!.answer("192.0.2.1", "192.0.2.2");
      const { addresses } = name;
      clock.advance(30_000);
      await asked[1]!.fail("getaddrinfo EAI_AGAIN");
      clock.advance(1_000);
      await asked[2]!.fail("getaddrinfo EAI_AGAIN");
      expect(name.addresses).toBe(addresses);
      expect(told()).toEqual([
        {
          level: "warn",
          message: "a name could not be looked up: its last addresses stay in use",
          host: "a.example",
          error: "getaddrinfo EAI_AGAIN",
        },
      ]);
      clock.advance(2_000);
      await asked[3]!.answer("192.0.2.2", "192.0.2.1");
      expect(told().slice(1)).toEqual([{ level: "info", message: "a name can be looked up again", host: "a.example" }]);
      clock.advance(30_000);
      await asked[4]!.fail();
      expect(told()).toHaveLength(3);
    },
  );

  it("a look-up that fails includes a look-up without addresses", async () => {
    const { names, of, asked, told } = bench();
    names.retain(of("a.example"));
    await asked[0]!.answer();
    expect(told()).toMatchObject([
      {
        level: "warn",
        message: "a name could not be looked up: there are no addresses yet",
        error: "the answer is empty",
      },
    ]);
  });

  it("a look-up that fails runs again after 1 s, 2 s, 4 s and so on, up to ttl_ms", async () => {
    const { names, of, asked, clock } = bench({ ttlMs: 5_000 });
    names.retain(of("a.example"));
    let last = 0;
    const waits: number[] = [];
    for (let i = 0; i < 6; i++) {
      await asked[i]!.fail();
      while (asked.length === i + 1) clock.advance(100);
      waits.push(clock.now() - last);
      last = clock.now();
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
  });
});

describe("a change of addresses", () => {
  it("a change of addresses reaches the listeners, unless only the order has changed", async () => {
    const { names, again, named } = madeUpNames(["192.0.2.1", "192.0.2.2"]);
    const name = await named("a.example");
    const before = name.addresses;
    const heard: string[] = [];
    const listener = () => heard.push(name.addresses.map(({ address }) => address).join());
    const end = name.onChange(listener);
    name.onChange(listener);
    await again(["192.0.2.2", "192.0.2.1"]);
    expect(name.addresses).toBe(before);
    expect(heard).toEqual([]);
    await again(["192.0.2.3", "192.0.2.1"]);
    expect(heard).toEqual(["192.0.2.3,192.0.2.1", "192.0.2.3,192.0.2.1"]);
    expect(name.addresses[1]).toBe(before[0]);
    end();
    await again(["192.0.2.3"]);
    expect(heard.slice(2)).toEqual(["192.0.2.3"]);
    names.close();
  });
});

describe("an IPv4-mapped address", () => {
  it("is its IPv4 address: not another server beside it", async () => {
    const { names, of, asked } = bench();
    names.retain(of("a.test"));
    await asked[0]!.answer("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::1");
    const wanted = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(addressOf);
    expect(names.name("a.test")!.addresses).toEqual(wanted);
  });
});

describe("a name that has had several addresses", () => {
  it("is known as one in every thread, also where a thread began when it had one again", async () => {
    const memory = new SharedArrayBuffer(1 << 14);
    const threads = [bench({ memory }), bench({ memory }), bench({ memory })];
    const [first, second] = threads.map(({ of }) => of("a.test")[0]!);
    const other = threads[2]!.of("b.test")[0]!;
    for (const [i, name] of [first!, second!, other].entries()) threads[i]!.names.retain([name]);
    await threads[0]!.asked[0]!.answer("10.0.0.1", "10.0.0.2");
    await threads[2]!.asked[0]!.answer("10.0.0.1");
    const upstream = { id: "u", host: "a.test", port: 80, weight: 1 };
    const ids = (name: typeof other) => addressEndpoints(upstream, name).map(({ id }) => id);
    expect(ids(first!)).toEqual(["u/10.0.0.1:80", "u/10.0.0.2:80"]);
    // Before its first answer it is the name.
    expect([second!.hasHadSeveral, ids(second!)]).toEqual([true, ["u"]]);
    await threads[1]!.asked[0]!.answer("10.0.0.2");
    expect(ids(second!)).toEqual(["u/10.0.0.2:80"]);
    expect([other.hasHadSeveral, ids(other)]).toEqual([false, ["u"]]);
  });

  it("is known as one with the next answer to a thread that has missed the several", async () => {
    const memory = new SharedArrayBuffer(1 << 14);
    const [one, two] = [bench({ memory }), bench({ memory })];
    const [first, second] = [one.of("a.test")[0]!, two.of("a.test")[0]!];
    one.names.retain([first]);
    two.names.retain([second]);
    let changes = 0;
    second.onChange(() => changes++);
    await two.asked[0]!.answer("10.0.0.1");
    await one.asked[0]!.answer("10.0.0.1", "10.0.0.2");
    const { addresses } = second;
    for (const expected of [2, 2]) {
      two.clock.advance(30_000);
      await two.asked.at(-1)!.answer("10.0.0.1");
      expect(changes).toBe(expected);
    }
    expect(second.addresses).not.toBe(addresses);
    expect(second.addresses[0]).toBe(addresses[0]);
    const ids = addressEndpoints({ id: "u", host: "a.test", port: 80, weight: 1 }, second).map(({ id }) => id);
    expect(ids).toEqual(["u/10.0.0.1:80"]);
  });
});

describe("known()", () => {
  it("shares the running look-up and its answer", async () => {
    const { names, asked } = madeUpNames(["192.0.2.1"]);
    const name = names.name("a.example")!;
    names.retain([name]);
    const all = await Promise.all([name.known(), name.known()]);
    expect(all).toEqual([[addressOf("192.0.2.1")], [addressOf("192.0.2.1")]]);
    expect(await name.known()).toBe(name.addresses);
    expect(asked).toEqual(["a.example"]);
  });

  it("looks the name up at once after a failure, without a change to the next look-up", async () => {
    const made = madeUpNames(new Error("ENOTFOUND"));
    const name = await made.named("a.example");
    for (let i = 0; i < 2; i++) await expect(name.known()).rejects.toThrow("ENOTFOUND");
    expect(made.asked).toHaveLength(3);
    await made.again(["192.0.2.1"]);
    expect(made.asked).toHaveLength(4);
    expect(name.addresses).toEqual([addressOf("192.0.2.1")]);
  });

  it("looks a name up that is not retained", async () => {
    const { names, asked } = madeUpNames(["192.0.2.1"]);
    expect(await names.name("a.example")!.known()).toEqual([addressOf("192.0.2.1")]);
    expect(asked).toEqual(["a.example"]);
  });
});

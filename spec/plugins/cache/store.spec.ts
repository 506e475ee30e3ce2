import { describe, expect, it } from "vitest";
import { Changes, CHANGES_BYTES } from "../../../lib/plugins/cache/changes.ts";
import { purgeSteps } from "../../../lib/plugins/cache/purge.ts";
import { bytesOf, CacheStore, END_OF_TARGET, variantOf, type Entry } from "../../../lib/plugins/cache/store.ts";
import { random } from "../../support/random.ts";

function entry(key: string, bodyBytes: number, parts: Partial<Entry> = {}): Entry {
  const terms = {
    lifetime: 1,
    isImplied: false,
    ageThen: 0,
    noCache: false,
    neverStale: false,
    staleWhileRevalidate: 0,
    staleIfError: 0,
    forAuthorised: false,
  };
  return {
    key,
    vary: [],
    variant: "",
    status: 200,
    reason: undefined,
    headers: [],
    body: Buffer.alloc(bodyBytes),
    terms,
    cameAt: 0,
    changes: 0,
    service: "s",
    route: "r",
    ...parts,
  };
}

function storeOf(mostBytes: number, changes = new Changes(new ArrayBuffer(CHANGES_BYTES))): CacheStore {
  return new CacheStore(mostBytes, changes);
}

describe("a purge", () => {
  it("looks at one reply in each step, and at each once, whatever requests store and use meanwhile", () => {
    const store = storeOf(10_000_000);
    const put = (key: string) =>
      store.put(entry(key, 0, { headers: ["Cache-Tag", "x, old"], changes: store.changesOf(key) }), []);
    for (let i = 0; i < 500; i++) put(`/${i}`);
    const steps = purgeSteps(new Map([["p", { stores: new Set([store]), evictions: 0 }]]), { tag: "old" });
    steps.next();
    let [count, kept] = [1, 0];
    for (; ; count++) {
      // The last is used, so that it is never the next, and one more is stored.
      store.find("/499", []);
      if (count <= 400 && put(`/new/${count}`)) kept++;
      const { done, value } = steps.next();
      if (done) {
        expect(value).toBe(500);
        break;
      }
    }
    expect([kept, store.entries]).toEqual([400, 400]);
    expect(count).toBeGreaterThanOrEqual(500);
    expect(count).toBeLessThanOrEqual(900);
  });
});

describe("the store of a cache", () => {
  it("the store of a cache drops the least recently used entry first", () => {
    const store = storeOf(3 * bytesOf(entry("a", 1_000)));
    for (const key of ["a", "b", "c"]) expect(store.put(entry(key, 1_000), [])).toBe(true);
    store.find("a", []);
    store.put(entry("d", 1_000), []);
    expect(["a", "b", "c", "d"].map((key) => store.find(key, []) !== null)).toEqual([true, false, true, true]);
  });

  it(
    "the store of a cache gives back the memory of replies that another worker's change has outdated, " +
      "when they are looked for",
    () => {
      const changes = new Changes(new ArrayBuffer(CHANGES_BYTES));
      const store = storeOf(100_000, changes);
      for (const a of ["1", "2"]) store.put(entry("a", 1_000, { vary: ["a"], variant: `=${a}\n` }), ["A", a]);
      changes.add("a");
      expect([store.find("a", ["A", "1"]), store.varyOf("a"), store.used]).toEqual([null, null, 0]);
    },
  );

  it(
    "the store of a cache counts what it drops for want of room, for other replies or for variants, " +
      "and neither what is replaced nor what is outdated",
    () => {
      const counts = { evictions: 0 };
      const store = new CacheStore(
        40 * bytesOf(entry("a", 1_000)),
        new Changes(new ArrayBuffer(CHANGES_BYTES)),
        counts,
      );
      for (const key of ["a", "b", "a"]) store.put(entry(key, 1_000), []);
      store.change("b");
      expect([store.find("b", []), store.entries, counts.evictions]).toEqual([null, 1, 0]);
      for (let i = 0; i < 33; i++) store.put(entry("v", 10, { vary: ["a"], variant: `=${i}\n` }), ["A", String(i)]);
      expect([store.entries, counts.evictions]).toEqual([33, 1]);
      expect([store.reserve(store.maxBytes), store.entries, store.used, counts.evictions]).toEqual([
        true,
        0,
        store.maxBytes,
        34,
      ]);
      store.close();
      expect(counts.evictions).toBe(34);
    },
  );

  it("the store of a cache counts the bytes of headers, keys and bodies", () => {
    const plain = bytesOf(entry("a", 10));
    expect(bytesOf(entry("a", 11))).toBe(plain + 1);
    expect(bytesOf(entry("aaa", 10))).toBe(plain + 2);
    expect(bytesOf(entry("a", 10, { headers: ["Name", "value"] }))).toBeGreaterThan(plain + 9);
  });

  it("the store of a cache never holds more than its bound, and counts nothing once everything is released", () => {
    const from = random(9);
    const store = storeOf(50_000);
    const reserved: number[] = [];
    const held: { body: Buffer; release: () => void }[] = [];
    for (let i = 0; i < 5_000; i++) {
      const key = `k${from.int(0, 30)}`;
      const headers = ["V", String(from.int(0, 40))];
      switch (from.int(0, 8)) {
        case 0: {
          const bytes = from.int(1, 20_000);
          if (store.reserve(bytes)) reserved.push(bytes);
          break;
        }
        case 1:
          if (reserved.length > 0) store.release(reserved.pop()!);
          break;
        case 2:
          store.change(key);
          break;
        case 3:
          store.markUnshared(key, i);
          break;
        case 4: {
          const found = store.find(key, headers);
          if (found !== null) store.remove(found);
          break;
        }
        case 5: {
          const body = store.find(key, headers)?.body;
          if (body) held.push({ body, release: store.hold(body) });
          break;
        }
        case 6:
          if (held.length > 20) held.splice(from.int(0, held.length - 1), 1)[0]!.release();
          break;
        case 7: {
          const found = store.find(key, headers);
          if (found !== null) store.put({ ...found, headers: ["Age", String(i)] }, headers);
          break;
        }
        default:
          store.put(entry(key, from.int(0, 9_000), { vary: ["v"], variant: variantOf(["v"], headers) }), headers);
      }
      expect(store.used).toBeLessThanOrEqual(50_000);
      let sent = 0;
      for (const body of new Set(held.map((each) => each.body))) sent += body.length;
      expect(store.used).toBeGreaterThanOrEqual(sent);
    }
    for (const { release } of held) release();
    for (const bytes of reserved) store.release(bytes);
    store.close();
    expect(store.used).toBe(0);
    expect(store.put(entry("a", 1), [])).toBe(false);
  });

  it("the store of a cache refuses an entry larger than its bound, and drops nothing for it", () => {
    const store = storeOf(10_000);
    store.put(entry("a", 1_000), []);
    expect(store.put(entry("b", 10_000), [])).toBe(false);
    expect(store.find("a", [])).not.toBe(null);
  });

  it("the store of a cache finds an entry by its own key only, and removes a target under all keys", () => {
    const store = storeOf(1_000_000);
    const [keys, variant] = [
      ["guarded", "open", ""].map((audience) => "a" + END_OF_TARGET + audience),
      variantOf(["v"], []),
    ];
    const [guarded, open] = [entry(keys[0]!, 1, { vary: ["v"], variant }), entry(keys[1]!, 1)];
    store.put(guarded, []);
    store.put(open, []);
    expect(keys.map((key) => store.find(key, []))).toEqual([guarded, open, null]);
    expect(keys.map((key) => store.varyOf(key))).toEqual([["v"], [], null]);
    store.change("a");
    expect(keys.map((key) => store.find(key, []))).toEqual([null, null, null]);
    expect(store.used).toBe(0);
  });

  it(
    "the store of a cache takes no reply that was requested before a change of its target, " +
      "whichever store the change was made in",
    () => {
      const changes = new Changes(new ArrayBuffer(CHANGES_BYTES));
      const [one, other] = [storeOf(10_000, changes), storeOf(10_000, changes)];
      const early = entry("a", 1);
      other.change("a");
      expect([one.takes(early), one.put(early, []), one.find("a", [])]).toEqual([false, false, null]);
      expect(one.put({ ...early, changes: one.changesOf("a") }, [])).toBe(true);
    },
  );

  it("the store of a cache keeps the newest 32 variants of a target", () => {
    const store = storeOf(1_000_000);
    for (let i = 0; i < 40; i++)
      store.put(entry("a", 1, { vary: ["v"], variant: variantOf(["v"], ["V", String(i)]) }), ["V", String(i)]);
    const known = Array.from({ length: 40 }, (_each, i) => store.find("a", ["V", String(i)]) !== null);
    expect(known.indexOf(true)).toBe(8);
    expect(known.filter(Boolean).length).toBe(32);
  });

  it(
    "the store of a cache remembers targets whose replies cannot be shared, " +
      "until a time or until a reply is stored",
    () => {
      const store = storeOf(10_000);
      store.markUnshared("a", 100);
      expect([store.isUnshared("a", 99), store.isUnshared("a", 100), store.isUnshared("b", 0)]).toEqual([
        true,
        false,
        false,
      ]);
      expect(store.varyOf("a")).toBe(null);
      store.put(entry("a", 1), []);
      expect(store.isUnshared("a", 99)).toBe(false);
    },
  );

  it(
    "the store of a cache remembers 4096 such targets and forgets the oldest: " + "no other target is taken for one",
    () => {
      const store = storeOf(10_000);
      for (let i = 0; i < 5_000; i++) store.markUnshared(`a${i}`, 100);
      const marked = (name: string, count: number) =>
        Array.from({ length: count }, (_each, i) => store.isUnshared(`${name}${i}`, 99)).filter(Boolean).length;
      expect(marked("b", 100)).toBe(0);
      expect(marked("a", 5_000)).toBe(4_096);
    },
  );

  it("changes of 1000 targets outdate few of 1000 others", () => {
    const store = storeOf(10_000_000);
    for (let i = 0; i < 1_000; i++) store.put(entry(`a${i}`, 1, { changes: store.changesOf(`a${i}`) }), []);
    for (let i = 0; i < 1_000; i++) store.change(`b${i}`);
    const found = Array.from({ length: 1_000 }, (_each, i) => store.find(`a${i}`, [])).filter(
      (each) => each !== null,
    ).length;
    expect(found).toBeGreaterThan(950);
  });
});

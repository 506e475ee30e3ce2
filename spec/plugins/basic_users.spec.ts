import { describe, expect, it } from "vitest";
import { verifyPassword } from "../../lib/base/password.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { createBasicUsers } from "../../lib/plugins/basic_users.ts";

/** scrypt of "quick" with N = 1024, which takes a millisecond. */
const QUICK = "scrypt$1024$8$1$BwcHBwcHBwcHBwcHBwcHBw$Dj4MCJX6B5OKDIzJjNvQXdnTIySlUIIoys9kE_3K7cQ";
const OTHER = QUICK.replace("$BwcH", "$CwcH");

const memory = () => new SharedMemory(1024 * 1024).part<string>();

/** Users with a verification that is counted, and ends when told to. */
function held(users: { username: string; password: string }[]) {
  const asked: { given: string; stored: string; end: (right: boolean) => void }[] = [];
  const made = createBasicUsers(users, memory(), (given, stored) => new Promise((resolve) => asked.push({ given, stored, end: resolve })));
  return { ...made, asked, identify: (user: string, password: string) => made.identify({ user, password }) };
}

function counted(users: { username: string; password: string }[]) {
  let verifications = 0;
  const made = createBasicUsers(users, memory(), async (given, stored) => (verifications++, verifyPassword(given, stored)));
  return { identify: (user: string, password: string) => made.identify({ user, password }), count: () => verifications };
}

describe("plain passwords", () => {
  it("are answered at once, and nothing slow is done for wrong ones", () => {
    const { identify, count } = counted([{ username: "ada", password: "secret" }, { username: "bob", password: "other" }]);
    expect(identify("ada", "secret")).toBe("ada");
    expect(identify("bob", "other")).toBe("bob");
    for (const [user, password] of [["ada", "other"], ["bob", "secret"], ["ada", ""], ["", ""], ["", "secret"], ["ADA", "secret"], ["ada", "Secret"], ["eve", "secret"]] as const) {
      expect(identify(user, password)).toBeNull();
    }
    expect(count()).toBe(0);
  });

  it("and user names are the same however Unicode composes them", () => {
    const { identify } = counted([{ username: "ren\u00e9", password: "cle\u0301" }]);
    expect(identify("rene\u0301", "cl\u00e9")).toBe("ren\u00e9");
    expect(identify("rene", "cle")).toBeNull();
  });
});

describe("hashed passwords", () => {
  it("are verified once for a pair, then remembered", async () => {
    const { identify, count } = counted([{ username: "ada", password: QUICK }]);
    expect(await identify("ada", "quick")).toBe("ada");
    expect(identify("ada", "quick")).toBe("ada");
    expect(count()).toBe(1);
    expect(await identify("ada", "Quick")).toBeNull();
    expect(await identify("ada", QUICK)).toBeNull();
    expect(count()).toBe(3);
  });

  it("of another user do not count", async () => {
    const { identify } = counted([{ username: "ada", password: QUICK }, { username: "bob", password: "plain" }]);
    expect(await identify("bob", "quick")).toBeNull();
    expect(await identify("ada", "plain")).toBeNull();
  });

  it("cost an unknown user, and a user with a plain password, the same verification", async () => {
    const { identify, count } = counted([{ username: "bob", password: "plain" }, { username: "ada", password: QUICK }]);
    for (const [user, password] of [["eve", "quick"], ["bob", "quick"], ["ada", "slow"]] as const) expect(await identify(user, password)).toBeNull();
    expect(count()).toBe(3);
    expect(identify("bob", "plain")).toBe("bob");
  });

  it("are verified once for all who present the pair meanwhile, right or wrong", async () => {
    const { identify, asked } = held([{ username: "ada", password: QUICK }]);
    const first = [identify("ada", "x"), identify("ada", "x"), identify("ada", "y")];
    expect(asked.map(({ given }) => given)).toEqual(["x", "y"]);
    asked[0]!.end(true);
    asked[1]!.end(false);
    expect(await Promise.all(first)).toEqual(["ada", "ada", null]);
    // What was wrong is not remembered, what was right is.
    expect(identify("ada", "x")).toBe("ada");
    void identify("ada", "y");
    expect(asked).toHaveLength(3);
  });

  it("are compared with the user's own hash", () => {
    const { identify, asked } = held([{ username: "ada", password: QUICK }, { username: "bob", password: OTHER }]);
    void identify("bob", "x");
    void identify("ada", "x");
    expect(asked.map(({ stored }) => stored)).toEqual([OTHER, QUICK]);
  });

  it("are verified two at a time; beyond 32 that wait, nobody can say", async () => {
    const { identify, asked } = held([{ username: "ada", password: QUICK }]);
    const answers = Array.from({ length: 34 }, (_, i) => identify("ada", `p${i}`));
    expect(asked).toHaveLength(2);
    expect(identify("ada", "p34")).toBeUndefined();
    // Who only waits for what is under way takes no place.
    expect(identify("ada", "p33")).toBe(answers[33]);
    for (let i = 0; i < 34; i++) {
      asked[i]!.end(i === 33);
      await answers[i];
    }
    expect(await answers[33]).toBe("ada");
    expect(asked).toHaveLength(34);
  });

  it("that cannot be verified fail those who asked, and nobody after them", async () => {
    let broken = true;
    const { identify } = createBasicUsers([{ username: "ada", password: QUICK }], memory(), async () => {
      if (broken) throw new Error("out of memory");
      return true;
    });
    await expect(identify({ user: "ada", password: "x" })).rejects.toThrow("out of memory");
    broken = false;
    expect(await identify({ user: "ada", password: "x" })).toBe("ada");
  });

  it("are verified anew once the memory that all instances share has no room for them", async () => {
    let verifications = 0;
    const memory = new SharedMemory(2_000);
    const users = Array.from({ length: 10 }, (_, i) => ({ username: `u${i}`, password: QUICK }));
    const [one, two] = [0, 1].map(() => createBasicUsers(users, memory.part(), async () => (verifications++, true)));
    const present = (instance: typeof one, i: number) => instance!.identify({ user: `u${i}`, password: "x" });
    await present(one, 0);
    await present(one, 1);
    expect(present(one, 0)).toBe("u0");
    for (let i = 0; i < 5; i++) await present(two, i);
    expect(verifications).toBe(7);
    expect(memory.used).toBeLessThanOrEqual(2_000);
    expect(present(one, 0)).toBe("u0");
    expect(await present(one, 1)).toBe("u1");
    expect(verifications).toBe(8);
    one!.close();
    two!.close();
    expect(memory.used).toBe(0);
  });
});

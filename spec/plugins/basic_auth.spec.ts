import { describe, expect, it } from "vitest";
import { verifyPassword } from "../../lib/base/password.ts";
import { SharedCount } from "../../lib/base/shared_counts.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { createTaskQueue } from "../../lib/base/task_queue.ts";
import { ALONE } from "../../lib/base/threads.ts";
import { headerValue } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { basicAuth, createVerifier } from "../../lib/plugins/basic_auth.ts";
import type { KeptState, Tools } from "../../lib/plugins/plugin.ts";
import {
  atOnce,
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";

/** scrypt of "quick" with N = 1024, which takes a millisecond. */
const QUICK = "scrypt$1024$8$1$BwcHBwcHBwcHBwcHBwcHBw$Dj4MCJX6B5OKDIzJjNvQXdnTIySlUIIoys9kE_3K7cQ";
const ADA = { username: "ada", password: "secret" };

const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
const headersWith = (...authorization: string[]) => [
  "Host",
  "h",
  ...authorization.flatMap((value) => ["Authorization", value]),
  "X",
  "1",
];

/** Asks an instance with these Authorization headers; for what is answered at once. */
function ask(config: unknown, authorization: string[], tools = madeUpTools()) {
  const exchange = madeUpExchange({ headers: headersWith(...authorization) });
  const { returned, forwarded } = exercise(instance(basicAuth, config, tools), exchange);
  const reply = atOnce(returned);
  return {
    status: reply.status,
    code: reply.status === 200 ? null : problemOf(reply)["code"],
    forwarded,
    reply,
    exchange,
  };
}

describe("who passes", () => {
  it("basic_auth admits a configured user with its password, synchronously where it is plain", () => {
    expect(ask(ADA, [basic("ada", "secret")]).status).toBe(200);
    const both = { ...ADA, users: [{ username: "bob", password: "other" }] };
    expect(ask(both, [basic("ada", "secret")]).forwarded?.identity).toBe("ada");
    expect(ask(both, [basic("bob", "other")]).forwarded?.identity).toBe("bob");
  });

  it(
    "basic_auth admits a user whose password is stored as a hash, " + "and refuses the hash itself as a password",
    async () => {
      const middleware = instance(basicAuth, { username: "ada", password: QUICK });
      const present = (password: string) =>
        exercise(middleware, madeUpExchange({ headers: headersWith(basic("ada", password)) })).returned;
      expect((await present("quick")).status).toBe(200);
      expect((await present(QUICK)).status).toBe(401);
      expect((await present("quick\0")).status).toBe(401);
      // Remembered: no promise any more.
      expect(atOnce(present("quick"))).toBe(plainReply);
    },
  );

  it("basic_auth accepts names and passwords beyond ASCII, in UTF-8 (RFC 7617 §2.1)", () => {
    expect(ask({ username: "жанна", password: "clé:£" }, [basic("жанна", "clé:£")]).forwarded?.identity).toBe("жанна");
    const latin1 = `Basic ${Buffer.from("rené:x", "latin1").toString("base64")}`;
    expect(ask({ username: "rené", password: "x" }, [latin1]).code).toBe("credentials_invalid");
  });

  it.each<[string, string[]]>([
    ["no Authorization", []],
    ["an empty one", [""]],
    ["another scheme", ["Bearer abc"]],
    ["a scheme that begins the same", ["Basically abc"]],
  ])("basic_auth answers 401 credentials_missing with %s", (_, authorization) => {
    expect(ask(ADA, authorization)).toMatchObject({ status: 401, code: "credentials_missing", forwarded: null });
  });

  it.each<[string, string[]]>([
    ["a wrong password", [basic("ada", "Secret")]],
    ["a wrong user", [basic("eve", "secret")]],
    ["the user in another case", [basic("Ada", "secret")]],
    ["nothing behind the scheme", ["Basic"]],
    ["what is not base64", ["Basic ada:secret"]],
    ["no colon", [`Basic ${Buffer.from("ada").toString("base64")}`]],
    ["two headers, one of them right", [basic("ada", "secret"), "Bearer abc"]],
    ["the right one twice", [basic("ada", "secret"), basic("ada", "secret")]],
  ])("basic_auth answers 401 credentials_invalid with %s", (_, authorization) => {
    expect(ask(ADA, authorization)).toMatchObject({ status: 401, code: "credentials_invalid", forwarded: null });
  });

  it("basic_auth answers 503 auth_unavailable when too many passwords wait to be verified", async () => {
    const middleware = instance(basicAuth, { username: "ada", password: QUICK });
    const asked = Array.from(
      { length: 40 },
      (_, i) => exercise(middleware, madeUpExchange({ headers: headersWith(basic("ada", `p${i}`)) })).returned,
    );
    const replies = await Promise.all(asked);
    expect(replies.map(({ status }) => status)).toEqual([
      ...Array<number>(34).fill(401),
      ...Array<number>(6).fill(503),
    ]);
    expect(problemOf(replies[39]!)["code"]).toBe("auth_unavailable");
    expect(headerValue(replies[39]!.headers, "retry-after")).toBe("1");
  });
});

describe("the 401", () => {
  it("names scheme, realm and charset; the realm is the gateway's name by default", () => {
    const challenge = (config: object, gatewayName: string, ...authorization: string[]) =>
      headerValue(
        ask({ ...ADA, ...config }, authorization, madeUpTools({ gatewayName })).reply.headers,
        "www-authenticate",
      );
    expect(challenge({}, "the gateway")).toBe('Basic realm="the gateway", charset="UTF-8"');
    expect(challenge({ realm: "Staff only" }, "gw")).toBe('Basic realm="Staff only", charset="UTF-8"');
    expect(challenge({}, "gw", basic("ada", "x"))).toBe('Basic realm="gw", charset="UTF-8"');
  });

  it("the 401 reveals neither the sent nor the right password; the log gets the code alone", () => {
    const tools = madeUpTools();
    const { reply, exchange } = ask(ADA, [basic("ada", "wrong-one")], tools);
    expect(String(reply.body)).not.toMatch(/ada|wrong-one|secret/);
    expect(tools.lines).toEqual([]);
    expect(exchange.call.notes).toMatchObject({ code: "credentials_invalid", identity: null, fault: null });
  });
});

describe("what is passed on", () => {
  it("basic_auth sets the user's name as identity, for plugins further in and for the log", () => {
    const { forwarded } = ask(ADA, [basic("ada", "secret")]);
    expect(forwarded).toMatchObject({ identity: "ada", headers: headersWith(basic("ada", "secret")) });
    expect(forwarded?.call.notes.identity).toBe("ada");
  });

  it("basic_auth removes Authorization with hide_credentials", () => {
    expect(ask({ ...ADA, hide_credentials: true }, [basic("ada", "secret")]).forwarded?.headers).toEqual([
      "Host",
      "h",
      "X",
      "1",
    ]);
  });

  it("basic_auth returns the same reply or promise that the next handler returned", () => {
    const promise = Promise.resolve(plainReply);
    const exchange = madeUpExchange({ headers: headersWith(basic("ada", "secret")) });
    expect(exercise(instance(basicAuth, ADA), exchange).returned).toBe(plainReply);
    expect(exercise(instance(basicAuth, ADA), exchange, () => promise).returned).toBe(promise);
  });
});

it("verified passwords are kept over reloads that do not change the users", async () => {
  const kept = new Map<string, KeptState>();
  const keep: Tools["keep"] = <T extends KeptState>(name: string, settings: unknown, make: () => T): T => {
    const key = JSON.stringify([name, settings]);
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key) as T;
  };
  const present = (config: object) =>
    exercise(
      instance(basicAuth, config, madeUpTools({ keep })),
      madeUpExchange({ headers: headersWith(basic("ada", "quick")) }),
    ).returned;
  const config = { username: "ada", password: QUICK };
  expect((await present(config)).status).toBe(200);
  expect(atOnce(present({ ...config, realm: "new" })).status).toBe(200);
  expect(present({ ...config, users: [{ username: "bob", password: "x" }] })).toBeInstanceOf(Promise);
});

describe("configuration", () => {
  it("basic_auth accepts one user, several, or both; hide_credentials is false by default", () => {
    expect(checked(basicAuth.schema, ADA).value).toEqual({ ...ADA, hideCredentials: false });
    expect(checked(basicAuth.schema, { users: [ADA, { username: "bob", password: QUICK }] }).issues).toEqual([]);
    expect(
      checked(basicAuth.schema, { username: "bob", password: "x", users: [ADA], realm: "r", hide_credentials: true })
        .issues,
    ).toEqual([]);
  });

  it.each<[string, unknown, string]>([
    ["nothing", {}, ': needs "username" and "password", or "users"'],
    ["a user without password", { username: "ada" }, ': needs "username" and "password" together'],
    ["a password without user", { password: "x", users: [ADA] }, ': needs "username" and "password" together'],
    ["an empty list", { users: [] }, "users: expected at least 1 item, found none"],
    ["a colon in a name", { username: "a:b", password: "x" }, "username: cannot contain a colon: it would end there"],
    [
      "a control character in a name",
      { users: [{ username: "a\nb", password: "x" }] },
      "users[0].username: cannot contain control characters",
    ],
    [
      "a control character in a password",
      { username: "a", password: "secret\n" },
      "password: cannot contain control characters",
    ],
    ["a user twice", { users: [ADA, { ...ADA, password: "x" }] }, "users[1].username: is the same user as users[0]"],
    ["the single user again", { ...ADA, users: [ADA] }, "users[0].username: is the same user as username"],
    [
      "a user twice, composed in two ways",
      {
        users: [
          { username: "ren\u00e9", password: "x" },
          { username: "rene\u0301", password: "y" },
        ],
      },
      "users[1].username: is the same user as users[0]",
    ],
    ...[
      "$2y$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe",
      "$apr1$dHJ6o1F2$sTl1Un1b8vPNaK5i0Qy4o.",
      "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.",
      "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b9dWRWJTmaaJObG",
      "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
    ].map((password): [string, unknown, string] => [
      password,
      { username: "a", password },
      "password: is a hash of another kind; only what `edge-gateway hash-password` prints is understood",
    ]),
    [
      "a realm that a header cannot quote",
      { ...ADA, realm: 'a"b' },
      'realm: expected printable ASCII without quotes and backslashes, found "a\\"b"',
    ],
  ])("basic_auth reports %s as a configuration error", (_, config, issue) => {
    expect(checked(basicAuth.schema, config).issues).toEqual([issue]);
  });

  it.each(["$2", "$1$", "$ecret$1", "{SHA}", "$2y$ is the start of my password", "$1$short"])(
    "%s is accepted as a plain password",
    (password) => {
      expect(checked(basicAuth.schema, { username: "a", password }).issues).toEqual([]);
    },
  );

  it("a malformed hash is an error whose message does not show it", () => {
    const slip = QUICK.replace("$1024$", "$1023$");
    const { issues } = checked(basicAuth.schema, { username: "ada", password: slip });
    expect(issues).toEqual(["password: N of a scrypt hash is a power of two, at least 1024"]);
  });
});

const OTHER = QUICK.replace("$BwcH", "$CwcH");

const memory = () => new SharedMemory(1024 * 1024).part<string>();
/** Two passwords are verified at a time, and 32 wait. */
const bounds = () => ({ queue: createTaskQueue(2, 32), admitted: { take: () => true, give() {} } });

/** Users with a verification that is counted, and ends when told to. */
function held(users: { username: string; password: string }[]) {
  const asked: { given: string; stored: string; end: (right: boolean) => void }[] = [];
  const made = createVerifier(
    users,
    memory(),
    (given, stored) => new Promise((resolve) => asked.push({ given, stored, end: resolve })),
    bounds(),
  );
  return { ...made, asked, identify: (user: string, password: string) => made.identify({ user, password }) };
}

function counted(users: { username: string; password: string }[]) {
  let verifications = 0;
  const made = createVerifier(
    users,
    memory(),
    async (given, stored) => (verifications++, verifyPassword(given, stored)),
    bounds(),
  );
  return {
    identify: (user: string, password: string) => made.identify({ user, password }),
    count: () => verifications,
  };
}

describe("plain passwords", () => {
  it("plain passwords get an answer synchronously, without a slow hash for wrong ones", () => {
    const { identify, count } = counted([
      { username: "ada", password: "secret" },
      { username: "bob", password: "other" },
    ]);
    expect(identify("ada", "secret")).toBe("ada");
    expect(identify("bob", "other")).toBe("bob");
    for (const [user, password] of [
      ["ada", "other"],
      ["bob", "secret"],
      ["ada", ""],
      ["", ""],
      ["", "secret"],
      ["ADA", "secret"],
      ["ada", "Secret"],
      ["eve", "secret"],
    ] as const) {
      expect(identify(user, password)).toBeNull();
    }
    expect(count()).toBe(0);
  });

  it("plain passwords match in any Unicode composition", () => {
    const { identify } = counted([{ username: "ren\u00e9", password: "cle\u0301" }]);
    expect(identify("rene\u0301", "cl\u00e9")).toBe("ren\u00e9");
    expect(identify("rene", "cle")).toBeNull();
  });
});

describe("hashed passwords", () => {
  it("hashed passwords are verified once and remembered", async () => {
    const { identify, count } = counted([{ username: "ada", password: QUICK }]);
    expect(await identify("ada", "quick")).toBe("ada");
    expect(identify("ada", "quick")).toBe("ada");
    expect(count()).toBe(1);
    expect(await identify("ada", "Quick")).toBeNull();
    expect(await identify("ada", QUICK)).toBeNull();
    expect(count()).toBe(3);
  });

  it("hashed passwords do not admit another user", async () => {
    const { identify } = counted([
      { username: "ada", password: QUICK },
      { username: "bob", password: "plain" },
    ]);
    expect(await identify("bob", "quick")).toBeNull();
    expect(await identify("ada", "plain")).toBeNull();
  });

  it("hashed passwords cost the same time for an unknown user and for a user with a plain password", async () => {
    const { identify, count } = counted([
      { username: "bob", password: "plain" },
      { username: "ada", password: QUICK },
    ]);
    for (const [user, password] of [
      ["eve", "quick"],
      ["bob", "quick"],
      ["ada", "slow"],
    ] as const)
      expect(await identify(user, password)).toBeNull();
    expect(count()).toBe(3);
    expect(identify("bob", "plain")).toBe("bob");
  });

  it("equal pairs are verified once for all requests that present the same pair meanwhile", async () => {
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

  it("passwords are compared with the hash of the same user", () => {
    const { identify, asked } = held([
      { username: "ada", password: QUICK },
      { username: "bob", password: OTHER },
    ]);
    void identify("bob", "x");
    void identify("ada", "x");
    expect(asked.map(({ stored }) => stored)).toEqual([OTHER, QUICK]);
  });

  it("passwords are verified two at a time, and refused beyond 32 that wait", async () => {
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

  it(
    "hashed passwords of all instances are verified two at a time, 32 of them wait, " +
      "and further ones get 503 from every instance",
    async () => {
      const common = new Map<string, unknown>();
      const admitted = new SharedCount(ALONE, "admitted");
      const asked: ((right: boolean) => void)[] = [];
      const shared = {
        common: <T>(name: string, make: () => T): T => (common.get(name) ?? common.set(name, make()).get(name)) as T,
        count: () => admitted,
        verifyPassword: () => new Promise<boolean>((resolve) => asked.push(resolve)),
      };
      const instances = ["a", "b", "c"].map((username) =>
        instance(basicAuth, { username, password: QUICK }, madeUpTools({ key: username, ...shared })),
      );
      const ask = (i: number, password: string) => {
        const headers = ["Authorization", `Basic ${Buffer.from(`${"abc"[i]!}:${password}`).toString("base64")}`];
        return exercise(instances[i]!, madeUpExchange({ headers }), () => plainReply).returned;
      };
      const waiting = Array.from({ length: 34 }, (_, n) => ask(n % 2, `wrong ${n}`));
      for (const i of [0, 1, 2]) expect(((await ask(i, "one more")) as Reply).status).toBe(503);
      expect([asked.length, admitted.total]).toEqual([2, 34]);
      for (let n = 0; n < 34; n++) {
        asked[n]!(n === 33);
        await waiting[n];
      }
      expect([((await waiting[33]) as Reply).status, admitted.total]).toEqual([200, 0]);
    },
  );

  it("hashed passwords reject only the waiting requests if they cannot be verified", async () => {
    let broken = true;
    const verify = () => (broken ? Promise.reject(new Error("out of memory")) : Promise.resolve(true));
    const { identify } = createVerifier([{ username: "ada", password: QUICK }], memory(), verify, bounds());
    await expect(identify({ user: "ada", password: "x" })).rejects.toThrow("out of memory");
    broken = false;
    expect(await identify({ user: "ada", password: "x" })).toBe("ada");
  });

  it("passwords are verified again once the shared memory has dropped them", async () => {
    let verifications = 0;
    const memory = new SharedMemory(2_000);
    const users = Array.from({ length: 10 }, (_, i) => ({ username: `u${i}`, password: QUICK }));
    const [one, two] = [0, 1].map(() =>
      createVerifier(users, memory.part(), async () => (verifications++, true), bounds()),
    );
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

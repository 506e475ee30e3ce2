import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { SessionKeys, type SessionKeyTools } from "../../../lib/plugins/mcp/session_keys.ts";
import { ownerOf, sessionIn, sessionText } from "../../../lib/plugins/mcp/sessions.ts";
import { madeUpExchange, madeUpTools } from "../../support/exercise.ts";
import { manualClock } from "../../support/clock.ts";

const KEY = randomBytes(32);
const SESSION = { id: "s.1~", revision: "2025-11-25" } as const;

describe("the id of a session", () => {
  it("is that of one owner, one key and one revision", () => {
    const text = sessionText(SESSION, "a", KEY)!;
    expect(sessionIn(text, "a", KEY)).toEqual(SESSION);
    expect([sessionIn(text, "b", KEY), sessionIn(text, "a", randomBytes(32))]).toEqual([null, null]);
    for (let i = 0; i < text.length; i++) {
      const other = text[i] === "A" ? "B" : "A";
      expect(sessionIn(text.slice(0, i) + other + text.slice(i + 1), "a", KEY)).toBeNull();
      expect(sessionIn(text.slice(0, i), "a", KEY)).toBeNull();
    }
  });

  it("of a caller is not that of an address of the same text, or of another service", () => {
    const owners = [
      madeUpExchange({ identity: "192.0.2.1" }),
      madeUpExchange({ identity: null, clientAddress: "192.0.2.1" }),
      madeUpExchange({ identity: null, service: { name: "b", basePath: "/b" } }),
    ].map(ownerOf);
    expect(new Set(owners).size).toBe(3);
  });
});

describe("the keys of sessions", () => {
  const keysWith = (parts: Partial<SessionKeyTools>) => new SessionKeys(madeUpTools(parts as never));

  it("are the same in all threads, whichever asks first", async () => {
    const memory = new SharedArrayBuffer(32);
    const of = () => keysWith({ shared: () => memory }).latest();
    const [first, second] = [await of(), await of()];
    expect(first!.equals(second!)).toBe(true);
    expect(first!.equals(Buffer.alloc(32))).toBe(false);
    expect(Buffer.from(memory).equals(first!)).toBe(true);
  });

  /** Gateways with one store, whose keys `given` changes. */
  function store(onError: "local" | "deny" = "local") {
    const given = { key: randomBytes(32) as Buffer | null, asked: 0 };
    const secrets = {
      report: { onError },
      secret: () => {
        given.asked++;
        return Promise.resolve(given.key);
      },
    };
    const clock = manualClock();
    const kept = new Map<string, unknown>();
    const gateway = () =>
      keysWith({
        clock,
        gatewaySecrets: secrets,
        keep: (name, _settings, make) => {
          if (!kept.has(name)) kept.set(name, make());
          return kept.get(name) as never;
        },
      });
    return { given, clock, gateway };
  }

  it("are those of the store, asked once in half a minute, and over reloads", async () => {
    const { given, clock, gateway } = store();
    const keys = gateway();
    expect([await keys.latest(), await keys.latest(), await gateway().latest()]).toEqual([
      given.key,
      given.key,
      given.key,
    ]);
    expect(given.asked).toBe(1);
    clock.advance(30_000);
    await keys.latest();
    expect(given.asked).toBe(2);
  });

  it("find a session of the former key, and one that another gateway has opened with a new one", async () => {
    const { given, clock, gateway } = store();
    const keys = gateway();
    const before = sessionText(SESSION, "a", (await keys.latest())!)!;
    given.key = randomBytes(32);
    const elsewhere = sessionText(SESSION, "a", given.key)!;
    const find = (text: string) => keys.find((key) => sessionIn(text, "a", key));
    expect(await find(elsewhere)).toBeNull();
    clock.advance(1_000);
    expect([await find(elsewhere), await find(before)]).toEqual([SESSION, SESSION]);
    expect(await find("x")).toBeNull();
    expect(given.asked).toBe(2);
  });

  it("are the program's own while the store does not answer, unless on_error refuses", async () => {
    const local = store("local");
    local.given.key = null;
    const key = (await local.gateway().latest())!;
    const text = sessionText(SESSION, "a", key)!;
    local.clock.advance(1_000);
    local.given.key = randomBytes(32);
    const keys = local.gateway();
    expect([
      (await keys.latest())!.equals(local.given.key),
      await keys.find((each) => sessionIn(text, "a", each)),
    ]).toEqual([true, SESSION]);
    const denying = store("deny");
    denying.given.key = null;
    expect([await denying.gateway().latest(), await denying.gateway().find(() => null)]).toEqual([null, "unasked"]);
  });
});

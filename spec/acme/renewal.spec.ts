import { describe, expect, it } from "vitest";
import { renewalTime } from "../../lib/acme/renewal.ts";
import { renewalId } from "../../lib/acme/chain.ts";
import { X509Certificate } from "node:crypto";
import { kept, keptValid, nextAttempt, type Kept } from "./kept.ts";
import { problem } from "./fake_directory.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

describe("the moment of a renewal", () => {
  const of90 = { notBefore: 0, notAfter: 90 * DAY_MS, obtainedAt: null };
  it.each([
    ["two thirds of 90 days", of90, null, 60 * DAY_MS],
    ["two thirds of a minute", { notBefore: 0, notAfter: MINUTE_MS, obtainedAt: 0 }, null, 40_000],
    ["where the directory asks", of90, 20 * DAY_MS, 20 * DAY_MS],
    ["never in the last sixth", of90, 89 * DAY_MS, 75 * DAY_MS],
    ["at once where the directory's window is over", of90, -5, -5],
    [
      "an hour behind the last order, for a directory that asks again and again",
      { ...of90, obtainedAt: DAY_MS },
      -5,
      DAY_MS + HOUR_MS,
    ],
    [
      "two thirds of what is left, of one that is dated back to before its two thirds",
      { notBefore: 0, notAfter: 90 * MINUTE_MS, obtainedAt: 60 * MINUTE_MS },
      null,
      80 * MINUTE_MS,
    ],
  ])("is %s", (_where, lifetime, askedFor, at) => {
    expect(renewalTime(lifetime, askedFor)).toBe(at);
  });
});

describe("a renewal", () => {
  it("is at two thirds of the lifetime, with another key, and the former certificate stays until then", async () => {
    const made = await keptValid();
    const [former] = made.presented();
    made.directory.proves = () => {
      expect(made.presented()).toEqual([former]);
      return null;
    };
    made.clock.setWall(60 * DAY_MS - MINUTE_MS);
    made.clock.advance(30_000);
    await made.settled();
    expect(made.directory.orders.length).toBe(1);
    await nextAttempt(made);
    expect(made.directory.orders.length).toBe(2);
    const [renewed] = made.presented();
    expect(renewed!.cert).not.toEqual(former!.cert);
    expect(renewed!.key).not.toEqual(former!.key);
    expect(made.keeper.state).toMatchObject({ state: "valid", orders: { succeeded: 2, failed: 0 } });
  });

  it("of a certificate of a minute is every 40 seconds", async () => {
    const made = await kept();
    made.directory.lifetimeMs = MINUTE_MS;
    made.keeper.start();
    await made.settled();
    const waits: number[] = [];
    for (let i = 0; i < 3; i++) {
      waits.push(Math.round((made.keeper.state.nextAt! - made.clock.wall()) / 1_000));
      await nextAttempt(made);
    }
    expect(waits.every((seconds) => seconds >= 36 && seconds <= 40)).toBe(true);
    expect(made.directory.orders.length).toBe(4);
  });

  it("is noticed within 30 seconds of a clock that was set forwards", async () => {
    const made = await keptValid();
    made.clock.setWall(61 * DAY_MS);
    made.clock.advance(30_000);
    await made.until(() => made.directory.orders.length === 2);
  });

  it("is not made because a clock was set back", async () => {
    const made = await keptValid();
    made.clock.setWall(-10 * DAY_MS);
    made.clock.advance(MINUTE_MS);
    await made.settled();
    expect(made.directory.orders.length).toBe(1);
    expect(made.presented().length).toBe(1);
    expect(made.keeper.state.state).toBe("valid");
  });

  it("after failures comes by the time that passes, also where the clock is set back", async () => {
    const made = await kept();
    made.directory.instead = () => "broken";
    made.keeper.start();
    await made.settled();
    made.directory.instead = () => undefined;
    made.clock.setWall(-10 * DAY_MS);
    made.clock.advance(10_000);
    await made.until(() => made.keeper.state.state === "valid");
  });
});

/** Has a directory that asks for renewal in a window of days after the start. */
async function withWindow(startDay: number, endDay: number, headers: Record<string, string> = {}): Promise<Kept> {
  const made = await kept();
  const moment = (day: number) => new Date(made.clock.wall() + day * DAY_MS).toISOString();
  made.directory.renewalInfo = {
    headers,
    body: { suggestedWindow: { start: moment(startDay), end: moment(endDay) } },
  };
  made.keeper.start();
  await made.settled();
  await made.until(() => made.directory.asked.some(({ path }) => path.startsWith("/renewal-info/")));
  await made.settled();
  return made;
}

const dayOf = ({ keeper }: Kept) => (keeper.state.nextAt! - Date.UTC(2026, 0, 1)) / DAY_MS;

describe("renewal information", () => {
  it("has the identifier of RFC 9773 in its URL", () => {
    expect(renewalId(new X509Certificate(EXAMPLE))).toBe("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
  });

  it("goes before two thirds of the lifetime, at a moment by chance in its window", async () => {
    expect(dayOf(await withWindow(20, 30))).toBeCloseTo(25, 2);
    expect(dayOf(await withWindow(62, 64))).toBeCloseTo(63, 2);
  });

  it("does not go beyond the last sixth", async () => {
    expect(dayOf(await withWindow(80, 90))).toBeCloseTo(75, 2);
  });

  it("in the past renews once, with the certificate that is replaced", async () => {
    const made = await withWindow(-2, -1);
    await nextAttempt(made);
    const { pathname } = new URL(
      made.directory.asked.find(({ path }) => path.startsWith("/renewal-info/"))!.path,
      "x:/",
    );
    expect(made.directory.orders.map(({ payload }) => payload.replaces)).toEqual([
      undefined,
      pathname.slice("/renewal-info/".length),
    ]);
    expect(made.directory.orders.length).toBe(2);
    // Not again and again.
    expect(made.keeper.state.nextAt! - made.clock.wall()).toBeGreaterThan(HOUR_MS - MINUTE_MS);
  });

  it("is asked again when Retry-After says so, within a minute and a day", async () => {
    const count = ({ directory }: Kept) =>
      directory.asked.filter(({ path }) => path.startsWith("/renewal-info/")).length;
    const made = await withWindow(20, 30, { "Retry-After": "1" });
    made.clock.advance(MINUTE_MS - 5_000);
    await made.settled();
    expect(count(made)).toBe(1);
    made.clock.advance(5_000);
    await made.until(() => count(made) === 2);
    await made.settled();
    // The moment by chance stays where the window does.
    expect(dayOf(made)).toBeCloseTo(25, 2);
  });

  it.each([
    ["none", { status: 404 }],
    ["no JSON", { body: "soon" }],
    [
      "a window that ends before it starts",
      { body: { suggestedWindow: { start: "2026-02-02T00:00:00Z", end: "2026-02-01T00:00:00Z" } } },
    ],
    ["no dates", { body: { suggestedWindow: { start: "soon", end: "later" } } }],
  ])("with %s leaves two thirds of the lifetime", async (_what, answer) => {
    const made = await kept();
    made.directory.renewalInfo = answer;
    made.keeper.start();
    await made.settled();
    expect(dayOf(made)).toBeCloseTo(60, 2);
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
  });

  it("of a certificate that the directory counts as replaced leads to an order without that", async () => {
    const made = await withWindow(-2, -1);
    made.directory.instead = ({ payload, path }) =>
      path === "/new-order" && payload?.replaces !== undefined ? problem("alreadyReplaced", "", {}, 409) : undefined;
    await nextAttempt(made);
    expect(made.keeper.state).toMatchObject({ state: "valid", orders: { succeeded: 2, failed: 1 } });
  });
});

/** RFC 9773, appendix A. */
const EXAMPLE = `-----BEGIN CERTIFICATE-----
MIIBQzCB66ADAgECAgUAh2VDITAKBggqhkjOPQQDAjAVMRMwEQYDVQQDEwpFeGFt
cGxlIENBMCIYDzAwMDEwMTAxMDAwMDAwWhgPMDAwMTAxMDEwMDAwMDBaMBYxFDAS
BgNVBAMTC2V4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEeBZu
7cbpAYNXZLbbh8rNIzuOoqOOtmxA1v7cRm//AwyMwWxyHz4zfwmBhcSrf47NUAFf
qzLQ2PPQxdTXREYEnKMjMCEwHwYDVR0jBBgwFoAUaYhba4dGQEHhs3uEe6CuLN4B
yNQwCgYIKoZIzj0EAwIDRwAwRAIge09+S5TZAlw5tgtiVvuERV6cT4mfutXIlwTb
+FYN/8oCIClDsqBklhB9KAelFiYt9+6FDj3z4KGVelYM5MdsO3pK
-----END CERTIFICATE-----
`;

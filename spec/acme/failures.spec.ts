import { describe, expect, it } from "vitest";
import { problem } from "./fake_directory.ts";
import { kept, keptValid, nextAttempt, type Kept } from "./kept.ts";

const secondsToNext = ({ keeper, clock }: Kept) => Math.round((keeper.state.nextAt! - clock.wall()) / 1_000);

describe("a directory that is down", () => {
  it("is asked again after 10 seconds, then after pauses that double up to an hour", async () => {
    const made = await kept();
    made.directory.instead = () => "broken";
    made.keeper.start();
    await made.settled();
    const pauses: number[] = [];
    for (let i = 0; i < 11; i++) {
      pauses.push(secondsToNext(made));
      await nextAttempt(made);
    }
    expect(pauses).toEqual([10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
    expect(made.keeper.state).toMatchObject({ state: "waiting", orders: { succeeded: 0, failed: 0 } });
  });

  it.each([
    [0, 8],
    [0.999999, 12],
  ])("is asked again after pauses that differ by a fifth (%d: %d s)", async (random, seconds) => {
    const made = await kept({}, { random: () => random });
    made.directory.instead = () => "broken";
    made.keeper.start();
    await made.settled();
    expect(secondsToNext(made)).toBe(seconds);
  });

  it("for a day leaves the certificate, and the renewal follows", async () => {
    const made = await keptValid();
    const [former] = made.presented();
    made.directory.instead = () => "broken";
    for (let hour = 0; hour < 24; hour++) await nextAttempt(made);
    expect(made.presented()).toEqual([former]);
    made.directory.instead = () => undefined;
    await nextAttempt(made);
    expect(made.keeper.state).toMatchObject({ state: "valid", error: null });
    expect(made.presented()).not.toEqual([former]);
  });

  it("in the middle of an order is asked for the same order later", async () => {
    const made = await kept();
    let isDown = true;
    made.directory.instead = ({ path }) => (isDown && path === "/finalize/0" ? { status: 503 } : undefined);
    made.keeper.start();
    await made.settled();
    expect(made.files.content.has("order.json")).toBe(true);
    expect(made.challenges.size).toBe(0);
    isDown = false;
    await nextAttempt(made);
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(1);
  });

  it("with a certificate of another CA is not asked, and the error says so", async () => {
    const made = await kept({ ca: null });
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toMatch(/^localhost:\d+ cannot be asked: .*certificate/);
    expect(made.directory.asked).toEqual([]);
  });
});

describe("a nonce that the directory refuses", () => {
  it("is replaced by the one of the refusal", async () => {
    const made = await kept();
    let refusals = 0;
    made.directory.instead = ({ method }) =>
      method === "POST" && refusals++ % 3 < 2 ? problem("badNonce", "again", {}, 400) : undefined;
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state).toMatchObject({ state: "valid", orders: { succeeded: 1, failed: 0 } });
    expect(made.directory.asked.filter(({ method }) => method === "HEAD").length).toBe(1);
  });

  it("again and again is a failure of this attempt", async () => {
    const made = await kept();
    made.directory.instead = ({ method }) => (method === "POST" ? problem("badNonce", "again", {}, 400) : undefined);
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toBe("badNonce: again");
    expect(made.directory.asked.length).toBeLessThan(30);
  });
});

describe("a rate limit", () => {
  const limited = (headers: Record<string, string>) => ({ ...problem("rateLimited", "too many", {}, 429), headers });

  it("is kept to for as long as Retry-After says, also by a reload", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) => (path === "/new-order" ? limited({ "Retry-After": "7200" }) : undefined);
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toBe("rateLimited: too many");
    expect(secondsToNext(made)).toBe(7200);
    const asked = made.directory.asked.length;
    made.keeper.configure(made.settings);
    made.clock.advance(7_199_000);
    await made.settled();
    expect(made.directory.asked.length).toBe(asked);
    made.directory.instead = () => undefined;
    made.clock.advance(1_000);
    await made.until(() => made.keeper.state.state === "valid");
  });

  it("with a date in Retry-After is kept to until then", async () => {
    const made = await kept();
    const until = new Date(made.clock.wall() + 3_000_000).toUTCString();
    made.directory.instead = ({ path }) => (path === "/new-order" ? limited({ "Retry-After": until }) : undefined);
    made.keeper.start();
    await made.settled();
    expect(secondsToNext(made)).toBe(3000);
  });

  it("without Retry-After is kept to for an hour", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) => (path === "/new-order" ? limited({}) : undefined);
    made.keeper.start();
    await made.settled();
    expect(secondsToNext(made)).toBe(3600);
  });

  it("of a former directory does not hold for another one", async () => {
    const made = await kept();
    made.directory.instead = ({ path }) => (path === "/new-order" ? limited({ "Retry-After": "7200" }) : undefined);
    made.keeper.start();
    await made.settled();
    const other = await kept();
    made.keeper.configure({ ...made.settings, directory: other.directory.url });
    await made.until(() => made.keeper.state.state === "valid");
  });
});

describe("an order that takes its time", () => {
  it("is asked for again at the pace of Retry-After", async () => {
    const made = await kept();
    let looks = 0;
    const began = made.clock.now();
    made.directory.amend = ({ path }, answer) => {
      if (path === "/order/0" && made.directory.orders[0]!.status === "valid" && ++looks <= 3)
        return { headers: { "Retry-After": "40" }, body: { ...(answer.body as object), status: "processing" } };
      return answer;
    };
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.state).toBe("valid");
    expect(made.clock.now() - began).toBeGreaterThanOrEqual(120_000);
  });

  it("without an end is left after ten minutes, and taken up later", async () => {
    const made = await kept();
    let isEndless = true;
    made.directory.amend = ({ path }, answer) =>
      isEndless && path === "/order/0" && made.directory.orders[0]!.status === "valid"
        ? { body: { ...(answer.body as object), status: "processing" } }
        : answer;
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toBe("the directory still works on the order");
    isEndless = false;
    await nextAttempt(made);
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(1);
  });

  it("and is not done after a day gives way to another one", async () => {
    const made = await kept();
    made.directory.amend = ({ path }, answer) =>
      path === "/order/0" ? { body: { ...(answer.body as object), status: "processing" } } : answer;
    made.keeper.start();
    await made.settled();
    made.clock.setWall(86_400_001);
    await nextAttempt(made);
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.orders.length).toBe(2);
  });
});

describe("a profile", () => {
  it("is asked for where the directory lists it", async () => {
    const made = await kept({ profile: "shortlived" });
    made.directory.members = { meta: { profiles: { shortlived: "six days" } } };
    made.keeper.start();
    await made.settled();
    expect(made.directory.orders[0]!.payload.profile).toBe("shortlived");
    expect(made.lines.join("")).not.toContain("profile");
  });

  it("that is another one now gets an order of its own, in place of one that was interrupted", async () => {
    const made = await kept({ profile: "shortlived" });
    made.directory.members = { meta: { profiles: { shortlived: "six days" } } };
    made.directory.amend = ({ path }, answer) => (path.startsWith("/finalize/") ? { status: 500 } : answer);
    made.keeper.start();
    await made.settled();
    expect(made.files.content.has("order.json")).toBe(true);
    await made.keeper.close();
    made.directory.amend = (_asked, answer) => answer;
    const again = made.again({ profile: null });
    again.keeper.start();
    await again.settled();
    expect(again.keeper.state.state).toBe("valid");
    expect(made.directory.orders.map(({ payload }) => payload.profile)).toEqual(["shortlived", undefined]);
  });

  it.each([{}, { meta: {} }, { meta: { profiles: { classic: "" } } }, { meta: { profiles: "shortlived" } }])(
    "is left out with a warning where it does not (%j)",
    async (members) => {
      const made = await kept({ profile: "shortlived" });
      made.directory.members = members;
      made.keeper.start();
      await made.settled();
      expect("profile" in made.directory.orders[0]!.payload).toBe(false);
      expect(made.lines[0]).toContain("the directory does not list the profile, which is left out");
    },
  );
});

describe("this machine's clock", () => {
  it.each([
    ["behind", -86_400_000, "is not valid yet: look at this machine's clock"],
    ["ahead", 100 * 86_400_000, "has expired: look at this machine's clock"],
  ])("%s of the directory's: the certificate is not used, and the error says so", async (_how, byMs, says) => {
    const made = await kept();
    made.directory.proves = () => {
      made.directory.proves = () => null;
      made.directory.backdatedMs = byMs;
      return null;
    };
    made.keeper.start();
    await made.settled();
    expect(made.keeper.state.error).toBe(`the directory's certificate ${says}`);
    expect(made.presented()).toEqual([]);
  });

  it("that is set right makes a certificate of use that was not valid yet", async () => {
    const made = await kept();
    made.directory.backdatedMs = -86_400_000;
    made.keeper.start();
    await made.settled();
    expect(made.presented()).toEqual([]);
    const body = made.directory.asked.length;
    made.clock.setWall(3_600_000);
    made.directory.backdatedMs = 3_600_000;
    await nextAttempt(made);
    expect(made.keeper.state.state).toBe("valid");
    expect(made.directory.asked.slice(body).some(({ path }) => path === "/new-order")).toBe(false);
  });
});

/** The fields serial and expires_at of signed configurations, and which configurations they keep out. */
import { describe, expect, it } from "vitest";
import type { Clock } from "../../lib/base/clock.ts";
import { parseJson } from "../../lib/config/json_parser.ts";
import { timeOf } from "../../lib/config/validity_fields.ts";
import type { ConfigError } from "../../lib/gateway/config_error.ts";
import type { Seen } from "../../lib/gateway/features.ts";
import { SignedValidity } from "../../lib/gateway/validity.ts";

const root = parseJson("{}").node!;
const [EARLY, END, LATE] = ["2027-01-31T11:59:59Z", "2027-01-31T12:00:00Z", "2027-01-31T12:00:01Z"].map((text) =>
  Date.parse(text),
) as [number, number, number];

function validityFrom(seen: Seen = { serial: null, time: 0 }) {
  const written: Seen[] = [];
  let wall = EARLY;
  const validity = new SignedValidity({ read: () => seen, write: (each) => void written.push(each) }, {
    wall: () => wall,
  } as Clock);
  const why = (config: { serial?: number; expiresAt?: string }, at = EARLY): string[] => {
    wall = at;
    try {
      validity.check({ source: { value: {} }, valid: { config, secrets: { root } } } as never);
      return [];
    } catch (error) {
      return (error as ConfigError).issues.map((issue) => `${issue.at.join(".")}: ${issue.message}`);
    }
  };
  const take = (config: object, at = EARLY) => {
    wall = at;
    validity.applied(config as never);
  };
  return { take, written, why };
}

describe("a time of RFC 3339", () => {
  it.each([
    ["2027-01-31T12:00:00Z", END],
    ["2027-01-31t12:00:00z", END],
    ["2027-01-31T14:00:00+02:00", END],
    ["2027-01-30T23:30:00.250-12:30", END + 250],
    ["2028-02-29T00:00:00Z", Date.UTC(2028, 1, 29)],
  ])("%s is read", (text, at) => expect(timeOf(text)).toBe(at));

  it.each([
    "",
    "2027-01-31",
    "2027-01-31T12:00:00",
    "2027-01-31 12:00:00Z",
    "2027-02-29T00:00:00Z",
    "2027-02-30T00:00:00Z",
    "2027-13-01T00:00:00Z",
    "2027-01-31T25:00:00Z",
    "2027-01-31T12:00:60Z",
    "2027-01-31T12:00:00+25:00",
    "31 Jan 2027",
    "1801396800",
  ])("%j is none", (text) => expect(timeOf(text)).toBeNull());
});

describe("the order of signed configurations", () => {
  it("a serial below the highest, or none, is refused after one; the same and higher ones are taken", () => {
    const { take, why } = validityFrom();
    expect([why({}), why({ serial: 0 }), why({ serial: 7 })]).toEqual([[], [], []]);
    take({ serial: 7 }, EARLY);
    expect(why({ serial: 6 })).toEqual([
      "serial: 6 is older than 7, which has been in force: sign it again with a higher one",
    ]);
    expect(why({})).toEqual([
      "serial: is missing, and serial 7 has been in force: give this configuration a higher one",
    ]);
    expect([why({ serial: 7 }), why({ serial: 8 })]).toEqual([[], []]);
  });

  it("what was only looked at raises nothing", () => {
    const { why } = validityFrom();
    expect([why({ serial: 9 }), why({ serial: 1 })]).toEqual([[], []]);
  });

  it("the end counts from its second on, also for a clock that has been set back", () => {
    const { take, why, written } = validityFrom();
    const ended = "expires_at: the configuration has ended at 2027-01-31T12:00:00Z: sign it again with a later end";
    const until = { expiresAt: "2027-01-31T12:00:00Z" };
    expect([why(until, EARLY), why(until, END), why(until, LATE)]).toEqual([[], [ended], [ended]]);
    take({ serial: 1, expiresAt: "2027-12-31T00:00:00Z" }, LATE);
    expect(why({ serial: 1, ...until }, EARLY)).toEqual([
      `${ended}; the clock has been set back from 2027-01-31T12:00:01.000Z`,
    ]);
    take({ serial: 2 }, EARLY);
    expect(written).toEqual([
      { serial: 1, time: LATE },
      { serial: 2, time: LATE },
    ]);
  });

  it(
    "what an earlier program has written counts, and nothing is written for a " +
      "configuration that has neither field",
    () => {
      const { take, why, written } = validityFrom({ serial: 3, time: LATE });
      expect(why({ serial: 2 })).toEqual([expect.stringMatching(/^serial: 2 is older than 3/)]);
      const fresh = validityFrom();
      fresh.take({}, EARLY);
      take({ serial: 3 }, EARLY);
      expect([fresh.written, written]).toEqual([[], [{ serial: 3, time: LATE }]]);
    },
  );
});

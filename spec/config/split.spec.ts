import { expect, it } from "vitest";
import { formatPath } from "../../lib/config/schema.ts";
import { loadConfig } from "../support/schema.ts";

const UPSTREAMS = [
  { host: "a", port: 80 },
  { host: "b", port: 80, group: "canary" },
  { host: "c", port: 80, group: "beta" },
];

function load(split: unknown, upstreams: unknown = UPSTREAMS) {
  const value = { services: [{ name: "s", base_path: "/s", upstreams, routes: [{ path: "/{id}" }], split }] };
  return loadConfig({ value }, { kinds: [], environment: {} });
}

function issues(split: unknown, upstreams?: unknown): string[] {
  const result = load(split, upstreams);
  return result.ok
    ? []
    : result.issues.map(({ at, message }) => `${formatPath(at)}: ${message}`.replace("services[0].", ""));
}

it("upstreams have the group that is written, and no other", () => {
  const result = load([{ group: "canary", percent: 5 }]);
  if (!result.ok) throw new Error("invalid");
  expect(result.config.services[0]!.upstreams.map(({ group }) => group)).toEqual([undefined, "canary", "beta"]);
  expect(result.config.services[0]!.split).toEqual([{ group: "canary", percent: 5 }]);
});

it.each([
  ["one group", [{ group: "canary", percent: 5 }]],
  [
    "0 % and 100 %",
    [
      { group: "canary", percent: 0 },
      { group: "beta", percent: 100 },
    ],
  ],
  [
    "two decimals",
    [
      { group: "canary", percent: 0.01 },
      { group: "beta", percent: 33.33 },
    ],
  ],
  [
    "fractions that add up to 100 %, whatever the sum of floating-point numbers is",
    [
      { group: "canary", percent: 18.1 },
      { group: "beta", percent: 81.9 },
    ],
  ],
  ["a parameter of a route", [{ group: "canary", percent: 5, hash_on: "param:id" }]],
  [
    "callers by one key",
    [
      { group: "canary", percent: 5, hash_on: "credential" },
      { group: "beta", percent: 5, hash_on: "credential" },
    ],
  ],
  [
    "a group twice, once with a match",
    [
      { group: "canary", percent: 100, match: { headers: { "X-Canary": true } } },
      { group: "canary", percent: 5 },
    ],
  ],
  [
    "over 100 % in sum, if entries with a match are left out",
    [
      { group: "canary", percent: 100, match: { query: { beta: "1" } } },
      { group: "beta", percent: 100 },
    ],
  ],
  [
    "another key in an entry with a match",
    [
      { group: "canary", percent: 5, hash_on: "client_ip", match: { cookies: { tester: "yes" } } },
      { group: "beta", percent: 5, hash_on: "credential" },
    ],
  ],
])("accepts %s", (_title, split) => {
  expect(issues(split)).toEqual([]);
});

it.each([
  ["no list", { canary: 5 }, ["split: expected an array, found an object"]],
  ["an empty list", [], ["split: expected 1–100 items, found none"]],
  ["an entry without a group", [{ percent: 5 }], [expect.stringMatching(/^split\[0\]\.group: is required/)]],
  [
    "an entry without a percentage",
    [{ group: "canary" }],
    ["split[0].percent: is required (Percentage of the requests that goes to the group.)"],
  ],
  [
    "a negative percentage",
    [{ group: "canary", percent: -1 }],
    ["split[0].percent: expected a number 0–100 with at most two decimals, found -1"],
  ],
  [
    "a percentage above 100",
    [{ group: "canary", percent: 101 }],
    ["split[0].percent: expected a number 0–100 with at most two decimals, found 101"],
  ],
  [
    "three decimals",
    [{ group: "canary", percent: 0.125 }],
    ["split[0].percent: expected a number 0–100 with at most two decimals, found 0.125"],
  ],
  [
    "a percentage as text",
    [{ group: "canary", percent: "5%" }],
    ['split[0].percent: expected a number 0–100 with at most two decimals, found "5%"'],
  ],
  [
    "an unknown field",
    [{ group: "canary", percent: 5, weight: 1 }],
    [expect.stringMatching(/^split\[0\]\.weight: is not a known field/)],
  ],
  [
    "a mistyped group",
    [{ group: "canery", percent: 5 }],
    ['split[0].group: is the group of no upstream of this service (did you mean "canary"?)'],
  ],
  [
    "an unknown group",
    [{ group: "v2", percent: 5 }],
    ["split[0].group: is the group of no upstream of this service (known here: canary, beta)"],
  ],
  [
    "percentages over 100 in sum",
    [
      { group: "canary", percent: 50 },
      { group: "beta", percent: 50.01 },
    ],
    ['split: adds up to 100.01 %: entries without "match" divide 100 %'],
  ],
  [
    "a group twice",
    [
      { group: "canary", percent: 5 },
      { group: "canary", percent: 6 },
    ],
    ['split[1].group: has its percentage in split[0]: write one entry, or give one of them a "match"'],
  ],
  [
    "different keys",
    [
      { group: "canary", percent: 5, hash_on: "credential" },
      { group: "beta", percent: 5, hash_on: "client_ip" },
    ],
    [
      'split[1].hash_on: "hash_on" has to be the same in all entries without "match", ' +
        'so that no caller changes sides: split[0] has "hash_on": "credential"',
    ],
  ],
  [
    "a key in one entry only",
    [
      { group: "canary", percent: 5 },
      { group: "beta", percent: 5, hash_on: "client_ip" },
    ],
    [
      'split[1].hash_on: "hash_on" has to be the same in all entries without "match", ' +
        'so that no caller changes sides: split[0] has no "hash_on"',
    ],
  ],
  [
    "a key in the other entry only",
    [
      { group: "canary", percent: 5, hash_on: "client_ip" },
      { group: "beta", percent: 5 },
    ],
    [
      'split[1]: "hash_on" has to be the same in all entries without "match", so that no caller changes sides: ' +
        'split[0] has "hash_on": "client_ip"',
    ],
  ],
  [
    "a parameter that no route has",
    [{ group: "canary", percent: 5, hash_on: "param:idd" }],
    ['split[0].hash_on: no route of this service has a placeholder {idd}: did you mean "param:id"?'],
  ],
  [
    "an unknown key",
    [{ group: "canary", percent: 5, hash_on: "ip" }],
    [expect.stringMatching(/^split\[0\]\.hash_on: expected "client_ip"/)],
  ],
  [
    "a match without conditions",
    [{ group: "canary", percent: 5, match: {} }],
    [expect.stringMatching(/^split\[0\]\.match: needs at least one condition/)],
  ],
  [
    "a match that can never hold",
    [{ group: "canary", percent: 5, match: { headers: { Connection: "x" } } }],
    [expect.stringMatching(/^split\[0\]\.match\.headers\.Connection: cannot be a condition/)],
  ],
  [
    "an unknown group with a match",
    [{ group: "v2", percent: 5, match: { query: { a: true } } }],
    ["split[0].group: is the group of no upstream of this service (known here: canary, beta)"],
  ],
])("refuses %s", (_title, split, expected) => {
  expect(issues(split)).toEqual(expected);
});

it("says how to name groups where no upstream has one", () => {
  expect(issues([{ group: "canary", percent: 5 }], [{ host: "a", port: 80 }])).toEqual([
    'split[0].group: is the group of no upstream of this service (add "group" to some of them)',
  ]);
});

it.each([
  ["", /^upstreams\[0\]\.group: expected a name of 1–200 characters/],
  [null, /^upstreams\[0\]\.group: expected a name/],
  ["a\nb", /control characters/],
])("refuses the group %j of an upstream", (group, message) => {
  expect(issues(undefined, [{ host: "a", port: 80, group }]).filter((issue) => issue.startsWith("upstreams"))).toEqual([
    expect.stringMatching(message),
  ]);
});

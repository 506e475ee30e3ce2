import { describe, expect, it } from "vitest";
import type { Figures, ServiceStats, Stats } from "../../../lib/manager/assets/api.ts";
import { RANKINGS } from "../../../lib/manager/assets/rankings.ts";

const FIGURES: Figures = {
  requests_per_s: 0,
  errors_per_s: 0,
  limited_per_s: 0,
  statuses_per_s: {},
  p50_ms: null,
  p95_ms: null,
  p99_ms: null,
  in_flight: 0,
};

function statsOf(
  services: Record<string, Record<string, Partial<Figures>>> | null,
  codes: Record<string, number> = {},
): Stats {
  const listed = (routes: Record<string, Partial<Figures>>) =>
    Object.entries(routes).map(([name, figures]) => ({ name, ...FIGURES, ...figures }));
  const all: readonly ServiceStats[] | null =
    services === null
      ? null
      : Object.entries(services).map(([name, routes]) => ({
          name,
          total: FIGURES,
          routes: listed(routes),
          upstreams: [],
          groups: [],
        }));
  return { services: all, codes_per_s: codes } as unknown as Stats;
}

function rowsOf(title: string, stats: Stats) {
  return RANKINGS.find((ranking) => ranking.title === title)!.rowsOf(stats);
}

describe("the first routes", () => {
  const stats = statsOf({
    shop: { "a/b": { requests_per_s: 10, errors_per_s: 1, p95_ms: 20 }, idle: { in_flight: 1 } },
    stock: { list: { requests_per_s: 40, p95_ms: 5 }, slow: { requests_per_s: 1, errors_per_s: 0.5, p95_ms: 1500 } },
  });

  it(
    "the first routes are those of all services by requests, duration and errors, " + "with bars relative to the first",
    () => {
      expect(rowsOf("Busiest routes", stats)!.map(({ name, value, share }) => [name, value, share])).toEqual([
        ["list", "40/s", 1],
        ["a/b", "10/s", 0.25],
        ["slow", "1/s", 0.025],
      ]);
      expect(rowsOf("Slowest routes", stats)!.map(({ name, value }) => [name, value])).toEqual([
        ["slow", "1.5 s"],
        ["a/b", "20 ms"],
        ["list", "5 ms"],
      ]);
      expect(rowsOf("Most failing routes", stats)!.map(({ name, value }) => [name, value])).toEqual([
        ["a/b", "1/s · 10 %"],
        ["slow", "0.5/s · 50 %"],
      ]);
    },
  );

  it("the first routes lead to their pages, and name their services", () => {
    expect(rowsOf("Slowest routes", stats)![1]).toMatchObject({ hash: "#/routes/shop/a%2Fb", note: "shop" });
  });

  it("the first routes are five at most, none without requests, and not known without figures of routes", () => {
    const many = Object.fromEntries(Array.from("abcdefgh", (name, i) => [name, { requests_per_s: i + 1 }]));
    expect(rowsOf("Busiest routes", statsOf({ shop: many }))!.map(({ name }) => name)).toEqual([
      "h",
      "g",
      "f",
      "e",
      "d",
    ]);
    expect(rowsOf("Busiest routes", statsOf({ shop: { idle: {} } }))).toEqual([]);
    expect(rowsOf("Busiest routes", statsOf(null))).toBe(null);
  });
});

describe("refusals by code", () => {
  it("refusals by code are named as the gateway names them, the most frequent first", () => {
    const rows = rowsOf("Refusals by code", statsOf(null, { key_missing: 1, rate_limited: 4, of_a_plugin: 2 }))!;
    expect(rows.map(({ name, hash, value, share }) => [name, hash, value, share])).toEqual([
      ["rate_limited", "#/requests?code=rate_limited", "4/s", 1],
      ["of_a_plugin", "#/requests?code=of_a_plugin", "2/s", 0.5],
      ["key_missing", "#/requests?code=key_missing", "1/s", 0.25],
    ]);
  });
});

/**
 * The first routes of the gateway by requests, duration and errors, and the codes of its refusals: as rows of a list.
 */
import type { Figures, Stats } from "./api.ts";
import { milliseconds, percent, perSecond } from "./format.ts";
import { errorShare } from "./inventory.ts";
import { hashFor, hashForRequests } from "./url_hash.ts";

/** Rows of each list; GET /gateway/now?figures=top has as many routes for each. */
const MAX_ROWS = 5;

export interface RankingRow {
  readonly name: string;
  /** Where its name leads; null: nowhere. */
  readonly hash: string | null;
  /** Below the name; "": nothing. */
  readonly note: string;
  readonly value: string;
  /** Of the first row's value, 0 to 1. */
  readonly share: number;
}

export interface Ranking<Source = Stats> {
  readonly title: string;
  /** What the values are. */
  readonly unit: string;
  /** The text without rows. */
  readonly none: string;
  /** The first ones; null: not known yet. */
  rowsOf(source: Source): readonly RankingRow[] | null;
}

export const RANKINGS: readonly Ranking[] = [
  ofRoutes(
    "Busiest routes",
    "requests",
    "No requests.",
    (route) => route.requests_per_s,
    ({ requests_per_s: rate }) => perSecond(rate),
  ),
  ofRoutes(
    "Slowest routes",
    "p95",
    "No requests.",
    (route) => route.p95_ms,
    (route) => milliseconds(route.p95_ms),
  ),
  ofRoutes(
    "Most failing routes",
    "5xx",
    "No reply with 5xx.",
    (route) => route.errors_per_s,
    (route) => `${perSecond(route.errors_per_s)} · ${percent(errorShare(route))}`,
  ),
  {
    title: "Refusals by code",
    unit: "by the gateway",
    none: "The gateway refused nothing.",
    rowsOf({ codes_per_s: codes }) {
      const rows = Object.entries(codes).map(([name, rate]) => ({
        name,
        hash: hashForRequests({ code: name }),
        note: "",
        value: perSecond(rate),
        by: rate,
      }));
      return first(rows);
    },
  },
];

function ofRoutes(
  title: string,
  unit: string,
  none: string,
  by: (route: Figures) => number | null,
  text: (route: Figures) => string,
): Ranking {
  return {
    title,
    unit,
    none,
    rowsOf({ services }) {
      if (services === null) return null;
      const rows = services.flatMap((service) =>
        service.routes.map((route) => ({
          name: route.name,
          hash: hashFor("routes", service.name, route.name),
          note: service.name,
          value: text(route),
          by: by(route) ?? 0,
        })),
      );
      return first(rows);
    },
  };
}

/** The first ones by `by`. */
export function first(rows: readonly (Omit<RankingRow, "share"> & { readonly by: number })[]): readonly RankingRow[] {
  const sorted = rows
    .filter(({ by }) => by > 0)
    .sort((a, b) => b.by - a.by)
    .slice(0, MAX_ROWS);
  return sorted.map(({ by, ...row }) => ({ ...row, share: by / sorted[0]!.by }));
}

/** Computes medians and formats figures and tables. */

/** The middle of an odd number of values, the mean of the two middle ones of an even number; NaN of none. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Three significant digits: "1.23", "45.6", "789", "12345"; "–" without a figure. */
export function brief(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toFixed(digits);
}

/** One target: the figure, the bound, and whether it is met. */
export interface Verdict {
  readonly what: string;
  readonly figure: string;
  readonly target: string;
  /** Null: not measured on this machine. */
  readonly met: boolean | null;
}

/** As a Markdown table, with whether each is met. */
export function verdictTable(verdicts: readonly Verdict[]): string {
  const told = (met: boolean | null) => (met === null ? "not measured" : met ? "met" : "**NOT met**");
  return markdown(
    ["figure", "is", "target", ""],
    verdicts.map(({ what, figure, target, met }) => [what, figure, target, told(met)]),
  );
}

/** Rows as a Markdown table. */
export function markdown(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  return [heads, heads.map((_, i) => (i === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
}

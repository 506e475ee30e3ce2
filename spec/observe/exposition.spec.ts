import { describe, expect, it } from "vitest";
import { exposition, type Family } from "../../lib/observe/exposition.ts";
import { Recent } from "../../lib/observe/recent.ts";
import { readMetrics } from "../support/metrics_text.ts";

const timed = new Recent();
for (const ms of [0.5, 1, 3, 70_000]) {
  timed.requests++;
  timed.time(ms);
}

const FAMILIES: readonly Family[] = [
  { name: "a_total", type: "counter", help: 'With "quotes", a \\ and a\nbreak.', samples: [[["x", 'a"b\\c\nd', "y", ""], 3]] },
  { name: "b", type: "gauge", help: "None.", samples: [] },
  { name: "c_seconds", type: "histogram", help: "Times.", samples: [[["r", "1"], timed]] },
  { name: "d_info", type: "info", help: "What.", samples: [[["v", "1"], 1]] },
];

describe("exposition", () => {
  it("writes Prometheus' text format 0.0.4", () => {
    const text = exposition(FAMILIES, "prometheus");
    expect(text.split("\n").filter((line) => !line.includes("_bucket"))).toEqual([
      '# HELP a_total With "quotes", a \\\\ and a\\nbreak.',
      "# TYPE a_total counter",
      'a_total{x="a\\"b\\\\c\\nd",y=""} 3',
      "# HELP b None.",
      "# TYPE b gauge",
      "# HELP c_seconds Times.",
      "# TYPE c_seconds histogram",
      'c_seconds_sum{r="1"} 70.0045',
      'c_seconds_count{r="1"} 4',
      "# HELP d_info What.",
      "# TYPE d_info gauge",
      'd_info{v="1"} 1',
      "",
    ]);
    expect(readMetrics(text, "prometheus").one("a_total", { x: 'a"b\\c\nd', y: "" })).toBe(3);
  });

  it("writes OpenMetrics 1.0: families without the ends of samples, quotes escaped, an end", () => {
    const text = exposition(FAMILIES, "openmetrics");
    expect(text).toMatch(/^# TYPE a counter\n# HELP a With \\"quotes\\", a \\\\ and a\\nbreak.\na_total\{/);
    expect(text).toContain("# TYPE d info\n");
    expect(text.endsWith("\n# EOF\n")).toBe(true);
    expect(text).toContain('c_seconds_bucket{r="1",le="1.0"} 3\n');
    expect([...readMetrics(text, "openmetrics").families.keys()]).toEqual(["a", "b", "c_seconds", "d"]);
  });

  it.each(["prometheus", "openmetrics"] as const)("counts what is at a bound below it, and sums up buckets (%s)", (format) => {
    const read = readMetrics(exposition(FAMILIES, format), format);
    const counts = read.all("c_seconds_bucket").map(({ labels, value }) => [Number(labels.le!.replace("Inf", "Infinity")), value]);
    expect(counts.slice(0, 4)).toEqual([[0.001, 2], [0.0025, 2], [0.005, 3], [0.01, 3]]);
    expect(counts.slice(-2)).toEqual([[60, 3], [Infinity, 4]]);
  });
});

describe("the reader that specs use", () => {
  const HEAD = "# HELP a_total A.\n# TYPE a_total counter\n";
  it.each([
    ["", /no end/],
    ["a_total 1\n", /without HELP/],
    [`${HEAD}a_total 1`, /no end/],
    [`${HEAD}b_total 1\n`, /not of the family/],
    [`${HEAD}a_total -1\n`, /from 0 on/],
    [`${HEAD}a_total 1\na_total 2\n`, /second time/],
    [`${HEAD}a_total{x="1",} 1\n`, /no comma/],
    [`${HEAD}a_total{x="\\q"} 1\n`, /no label/],
    [`${HEAD}a_total one\n`, /from 0 on|no number/],
    [`${HEAD}${HEAD}`, /second time/],
    [`# HELP h H.\n# TYPE h histogram\nh_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n`, /do not go up/],
    [`# HELP h H.\n# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n`, /not that of/],
  ])("refuses %j", (text, why) => {
    expect(() => readMetrics(text, "prometheus")).toThrow(why);
  });

  it("refuses OpenMetrics without an end, and with a family named as its samples", () => {
    expect(() => readMetrics("# TYPE a counter\n# HELP a A.\n", "openmetrics")).toThrow(/EOF/);
    expect(() => readMetrics("# TYPE a_total counter\n# HELP a_total A.\n# EOF\n", "openmetrics")).toThrow(/end of a sample/);
  });
});

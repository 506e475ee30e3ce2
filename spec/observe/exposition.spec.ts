import { describe, expect, it } from "vitest";
import { exposition, type Family } from "../../lib/observe/exposition.ts";
import { Recent } from "../../lib/observe/metrics.ts";
import { readMetrics } from "../support/metrics_text.ts";

const timed = new Recent();
for (const ms of [0.5, 1, 3, 70_000]) timed.count(false, false, ms);

const FAMILIES: readonly Family[] = [
  {
    name: "a_total",
    type: "counter",
    help: 'With "quotes", a \\ and a\nbreak.',
    samples: [[["x", 'a"b\\c\nd', "y", ""], 3]],
  },
  { name: "b", type: "gauge", help: "None.", samples: [] },
  {
    name: "c_seconds",
    type: "histogram",
    help: "Times.",
    samples: [[["r", "1"], { counts: timed.counts!, sumMs: timed.sumMs }]],
  },
  { name: "d_info", type: "gauge", help: "What.", samples: [[["v", "1"], 1]] },
];

describe("exposition", () => {
  it("writes Prometheus' text format 0.0.4", () => {
    const text = exposition(FAMILIES);
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
    expect(readMetrics(text).one("a_total", { x: 'a"b\\c\nd', y: "" })).toBe(3);
  });

  it("counts a time that equals a bound in its bucket, and sums up the buckets", () => {
    const read = readMetrics(exposition(FAMILIES));
    const counts = read
      .all("c_seconds_bucket")
      .map(({ labels, value }) => [Number(labels.le!.replace("Inf", "Infinity")), value]);
    expect(counts.slice(0, 4)).toEqual([
      [0.001, 2],
      [0.0025, 2],
      [0.005, 3],
      [0.01, 3],
    ]);
    expect(counts.slice(-2)).toEqual([
      [60, 3],
      [Infinity, 4],
    ]);
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
    [
      `# HELP h H.\n# TYPE h histogram\nh_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n`,
      /do not go up/,
    ],
    [`# HELP h H.\n# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n`, /not that of/],
  ])("the reader that specs use refuses %j", (text, why) => {
    expect(() => readMetrics(text)).toThrow(why);
  });
});

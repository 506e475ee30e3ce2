import { describe, expect, it, vi } from "vitest";
import { parsePattern } from "../../lib/route/pattern.ts";
import { HostTrees } from "../../lib/route/tree.ts";
import { random } from "../support/random.ts";

function grow(patterns: readonly string[]): { find(path: string): readonly string[] | null } {
  const trees = new HostTrees<string>();
  for (const pattern of patterns) {
    const parsed = parsePattern(pattern, "path");
    if ("error" in parsed) throw new Error(parsed.error);
    for (const routes of trees.routesAt([], parsed.segments)) routes.push(pattern);
  }
  return { find: (path) => trees.find("", path) };
}

describe("the most specific pattern that matches", () => {
  const SETS: [patterns: string[], [path: string, winner: string | null][]][] = [
    // Literal, then {name}, then {name*}, at each segment from the left.
    [
      ["/a/b", "/a/{x}", "/a/{x*}", "/{x}/b", "/{x*}"],
      [
        ["/a/b", "/a/b"],
        ["/a/c", "/a/{x}"],
        ["/a/c/d", "/a/{x*}"],
        ["/c/b", "/{x}/b"],
        ["/c", "/{x*}"],
        ["/", null],
      ],
    ],
    // Backtracking: /a/b/z fails under /a/b, try /a/{x}/z, then /{x*}.
    [
      ["/a/b/c", "/a/{x}/z", "/{x*}"],
      [
        ["/a/b/c", "/a/b/c"],
        ["/a/b/z", "/a/{x}/z"],
        ["/a/b/y", "/{x*}"],
        ["/a/b", "/{x*}"],
        ["/a/b/c/d", "/{x*}"],
      ],
    ],
    [
      ["/a/{x}/c/d", "/a/b/{y}/e"],
      [
        ["/a/b/c/d", "/a/{x}/c/d"],
        ["/a/b/c/e", "/a/b/{y}/e"],
        ["/a/b/c/f", null],
      ],
    ],
    // A pattern matches a whole path, not a prefix; {name} one segment, {name*} at least one.
    [
      ["/a", "/b/{x}", "/c/{x*}"],
      [
        ["/a/b", null],
        ["/ab", null],
        ["/b", null],
        ["/b/", null],
        ["/b/x/y", null],
        ["/c", null],
        ["/c/", null],
        ["/c/x", "/c/{x*}"],
        ["/c/x/y/z/", "/c/{x*}"],
        ["/A", null],
      ],
    ],
    // One trailing "/" is ignored.
    [
      ["/", "/a/b", "/u/{x}"],
      [
        ["/", "/"],
        ["/a/b/", "/a/b"],
        ["/u/1/", "/u/{x}"],
        ["/u/", null],
      ],
    ],
    // Literals are compared whole.
    [
      ["/api/v1/items/all", "/api/v1/items/all/new", "/api/v1/orders", "/other/long/chain"],
      [
        ["/api/v1/items/all", "/api/v1/items/all"],
        ["/api/v1/items/all/new/", "/api/v1/items/all/new"],
        ["/api/v1/items", null],
        ["/api/v1/items/allx", null],
        ["/api/v1/item", null],
        ["/api", null],
        ["/other/long/chain/", "/other/long/chain"],
        ["/other/long/chai", null],
        ["/other/long/chainx", null],
        ["/other/lon", null],
      ],
    ],
    [
      ["/p/{x}/long/tail/a", "/p/{x}/long/tail/b"],
      [
        ["/p/1/long/tail/b", "/p/{x}/long/tail/b"],
        ["/p/1/long/tail", null],
      ],
    ],
  ];
  for (const [patterns, requests] of SETS) {
    it.each(requests)(`patterns of ${patterns.join(" | ")}: %s -> %s`, (path, winner) => {
      const expected = winner === null ? null : [winner];
      expect(grow(patterns).find(path)).toEqual(expected);
      expect(grow(patterns.toReversed()).find(path), "declared in reverse").toEqual(expected);
    });
  }

  it("routes share a pattern whatever the names of their placeholders", () => {
    expect(grow(["/a/{x}", "/a/{y}/", "/a/<z>"]).find("/a/1")).toEqual(["/a/{x}", "/a/{y}/", "/a/<z>"]);
  });
});

describe("literals at one position", () => {
  const ASCII = "abcXYZ0189-._~!&'+,;=:@".split("");

  it("literals stay distinct, even if they are similar", () => {
    const r = random(11);
    let found = 0;
    for (let n = 0; n < 300; n++) {
      const alphabet = r.list(1, 5, () => r.pick(ASCII));
      const word = () => "k" + r.list(0, 6, () => r.pick(alphabet)).join("");
      // ".+" at the end of a segment is refused as a regular expression.
      const words = new Set(r.list(1, 80, word).filter((each) => !each.includes(".+")));
      const below = (name: string) => (name.length % 3 === 0 ? `/k${name}` : "");
      const tree = grow([...words].map((name) => `/${name}${below(name)}`));
      for (let m = 0; m < 60; m++) {
        const name = word() + r.pick(["", "", "", "k", "%2F", "{"]);
        const rest = r.pick(["", "/", below(name), `${below(name)}/`, "/k", "/" + "k".repeat(9)]);
        const expected = words.has(name) && rest.replace(/\/$/, "") === below(name) ? [`/${name}${below(name)}`] : null;
        expect(tree.find(`/${name}${rest}`), `${name}${rest} of ${[...words].join(" ")}`).toEqual(expected);
        if (expected !== null) found++;
      }
    }
    expect(found).toBeGreaterThan(2_000);
  });
});

describe("the work of a search", () => {
  /** Each node that is visited looks a segment up once, and the host is looked up once. */
  function visits(search: () => void): number {
    const lookUps = vi.spyOn(Map.prototype, "get");
    try {
      search();
      return lookUps.mock.calls.length;
    } finally {
      lookUps.mockRestore();
    }
  }

  it("the number of visited nodes does not grow with the number of routes or with the length of the path", () => {
    const most = (routes: number) => {
      const tree = grow(Array.from({ length: routes }, (_, i) => `/svc${i % 10}/v1/things${i}/{id}/parts/{part}`));
      const r = random(7);
      let all = 0;
      for (let n = 0; n < 500; n++) {
        const i = r.int(0, routes - 1);
        const path = `/svc${i % 10}/v1/things${i}/x/parts/${r.pick(["y", "y/", "y/z", "y/z" + "/deep".repeat(1000)])}`;
        all = Math.max(
          all,
          visits(() => expect(tree.find(path) !== null).toBe(!path.includes("/z"))),
        );
      }
      return all;
    };
    expect(most(10_000)).toBe(most(100));
    expect(most(10_000)).toBeLessThanOrEqual(8);
  });

  it("a search visits no node twice, however often it backtracks", () => {
    // Every mix of "a" and {x} over six segments, none of which ends in "z": 2^7 - 1 nodes, all tried once.
    const tree = grow(
      Array.from({ length: 64 }, (_, mask) => {
        const segments = Array.from({ length: 6 }, (_, i) => ((mask >> i) & 1 ? "a" : `{x${i}}`));
        return `/${segments.join("/")}/end`;
      }),
    );
    let found: readonly string[] | null = [];
    const all = visits(() => (found = tree.find("/a/a/a/a/a/a/z")));
    expect(found).toBeNull();
    expect(all).toBeLessThanOrEqual(128);
    expect(all).toBeGreaterThan(60);
  });
});

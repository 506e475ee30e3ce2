import { describe, expect, it } from "vitest";
import { parsePattern } from "../../lib/route/pattern.ts";
import { endpointFor, endpointsOf, growTree, lookUp, NONE, Search, type Endpoint } from "../../lib/route/tree.ts";
import { random } from "../support/random.ts";

type Named = Omit<Endpoint, "id"> & { readonly name: string };

/** "GET,PUT /a/{x}": the methods (or "*") and the pattern; the name is the whole. */
function endpoint(name: string, baseLength = 0): Named {
  const [methods, pattern] = name.split(" ") as [string, string];
  const parsed = parsePattern(pattern, "path");
  if ("error" in parsed) throw new Error(parsed.error);
  return { name, segments: parsed.segments, baseLength, methods: methods === "*" ? [] : methods.split(",") };
}

function grow(endpoints: readonly Named[]): (search: Search, method?: string) => string | null {
  const tree = growTree(endpoints.map((each, id) => ({ ...each, id })));
  return (search, method = "GET") => {
    const id = lookUp(tree, search) ? endpointFor(search, method) : NONE;
    return id === NONE ? null : endpoints[id]!.name;
  };
}

/** The winner; the methods that its pattern takes instead, or null where no pattern matches. */
function ask(endpoints: Named[], request: string): string | string[] | null {
  const [method, path] = request.split(" ") as [string, string];
  const search = new Search(path);
  return grow(endpoints)(search, method) ?? (search.leaf === 0 ? null : [...endpointsOf(search).methods].sort());
}

describe("which pattern wins", () => {
  const SETS: [string[], [request: string, winner: string | string[] | null][]][] = [
    // Literal, then {name}, then {name*}, at each segment from the left.
    [["* /a/b", "* /a/{x}", "* /a/{x*}", "* /{x}/b", "* /{x*}"], [
      ["GET /a/b", "* /a/b"], ["GET /a/c", "* /a/{x}"], ["GET /a/c/d", "* /a/{x*}"], ["GET /c/b", "* /{x}/b"], ["GET /c", "* /{x*}"],
      ["GET /", null],
    ]],
    // Backtracking: /a/b/z fails under /a/b, try /a/{x}/z, then /{x*}.
    [["* /a/b/c", "* /a/{x}/z", "* /{x*}"], [
      ["GET /a/b/c", "* /a/b/c"], ["GET /a/b/z", "* /a/{x}/z"], ["GET /a/b/y", "* /{x*}"], ["GET /a/b", "* /{x*}"], ["GET /a/b/c/d", "* /{x*}"],
    ]],
    [["* /a/{x}/c/d", "* /a/b/{y}/e"], [["GET /a/b/c/d", "* /a/{x}/c/d"], ["GET /a/b/c/e", "* /a/b/{y}/e"], ["GET /a/b/c/f", null]]],
    // A route matches its whole remainder, not a prefix; {name} one segment, {name*} at least one.
    [["* /a", "* /b/{x}", "* /c/{x*}"], [
      ["GET /a/b", null], ["GET /ab", null], ["GET /b", null], ["GET /b/", null], ["GET /b/x/y", null], ["GET /c", null], ["GET /c/", null],
      ["GET /c/x", "* /c/{x*}"], ["GET /c/x/y/z/", "* /c/{x*}"], ["GET /A", null],
    ]],
    // One trailing "/" is ignored.
    [["* /", "* /a/b", "* /u/{x}"], [["GET /", "* /"], ["GET /a/b/", "* /a/b"], ["GET /u/1/", "* /u/{x}"], ["GET /u/", null]]],
    // Joined steps end at segments, wherever they are cut.
    [["* /api/v1/items/all", "* /api/v1/items/all/new", "* /api/v1/orders", "* /other/long/chain"], [
      ["GET /api/v1/items/all", "* /api/v1/items/all"], ["GET /api/v1/items/all/new/", "* /api/v1/items/all/new"], ["GET /api/v1/items", null],
      ["GET /api/v1/items/allx", null], ["GET /api/v1/item", null], ["GET /api", null], ["GET /other/long/chain/", "* /other/long/chain"],
      ["GET /other/long/chai", null], ["GET /other/long/chainx", null], ["GET /other/lon", null],
    ]],
    [["* /p/{x}/long/tail/a", "* /p/{x}/long/tail/b"], [["GET /p/1/long/tail/b", "* /p/{x}/long/tail/b"], ["GET /p/1/long/tail", null]]],
    // The path decides: what the most specific pattern does not take, no other one gets.
    [["GET /users/me", "DELETE /users/{id}", "PUT /{x*}"], [
      ["GET /users/me", "GET /users/me"], ["HEAD /users/me", "GET /users/me"], ["DELETE /users/me", ["GET", "HEAD"]],
      ["PUT /users/me", ["GET", "HEAD"]], ["DELETE /users/you", "DELETE /users/{id}"], ["POST /users/you", ["DELETE"]],
      ["PUT /users/you/x", "PUT /{x*}"], ["POST /x", ["PUT"]], ["GET /", null],
    ]],
    // Backtracking is over paths: /a/b/c fails under /a/b, so /a/{x}/c decides, whatever its methods.
    [["GET /a/b/d", "PUT /a/{x}/c", "GET /{x*}"], [["PUT /a/b/c", "PUT /a/{x}/c"], ["GET /a/b/c", ["PUT"]], ["GET /a/b/e", "GET /{x*}"], ["PUT /a/b/d", ["GET", "HEAD"]]]],
    // GET implies HEAD unless HEAD is declared on the same pattern.
    [["GET /a", "HEAD /a", "GET /b", "HEAD /{x}"], [["HEAD /a", "HEAD /a"], ["HEAD /b", "GET /b"], ["HEAD /c", "HEAD /{x}"], ["PUT /c", ["HEAD"]]]],
    [["GET /a", "* /{x}"], [["HEAD /a", "GET /a"], ["PUT /a", ["GET", "HEAD"]], ["BREW /b", "* /{x}"]]],
    [["GET /a", "PUT /a", "* /{x}"], [["GET /a", "GET /a"], ["PUT /a", "PUT /a"], ["POST /a", ["GET", "HEAD", "PUT"]]]],
  ];
  for (const [patterns, requests] of SETS) {
    it.each(requests)(`of ${patterns.join(" | ")}: %s -> %j`, (request, winner) => {
      const endpoints = patterns.map((pattern) => endpoint(pattern));
      expect(ask(endpoints, request)).toEqual(winner);
      expect(ask(endpoints.reverse(), request), "declared in reverse").toEqual(winner);
    });
  }

  it("of one pattern in two services the longer base_path wins, for each method", () => {
    const short = { ...endpoint("GET,PUT /a/b", 1), name: "short" };
    const long = { ...endpoint("GET /a/b", 2), name: "long" };
    for (const list of [[short, long], [long, short]]) {
      expect(ask(list, "GET /a/b")).toBe("long");
      expect(ask(list, "HEAD /a/b")).toBe("long");
      expect(ask(list, "PUT /a/b")).toBe("short");
      expect(ask(list, "DELETE /a/b")).toEqual(["GET", "HEAD", "PUT"]);
    }
    const all = { ...endpoint("* /a/b", 0), name: "all" };
    expect(ask([all, short, long], "DELETE /a/b")).toBe("all");
    expect(ask([all, short, long], "PUT /a/b")).toBe("short");
  });
});

describe("literals of one place", () => {
  const ASCII = "abcXYZ0189-._~!$&'()*+,;=:@".split("");

  it("are told apart however alike they are, from what is only like them too", () => {
    const r = random(11);
    let found = 0;
    for (let n = 0; n < 300; n++) {
      const alphabet = r.list(1, 5, () => r.pick(ASCII));
      const word = () => "k" + r.list(0, 6, () => r.pick(alphabet)).join("");
      const words = new Set(r.list(1, 80, word));
      const below = (name: string) => (name.length % 3 === 0 ? `/k${name}` : "");
      const find = grow([...words].map((name) => endpoint(`* /${name}${below(name)}`)));
      for (let m = 0; m < 60; m++) {
        const name = word() + r.pick(["", "", "", "k", "%2F", "{"]);
        const rest = r.pick(["", "/", below(name), `${below(name)}/`, "/k", "/" + "k".repeat(9)]);
        const expected = words.has(name) && rest.replace(/\/$/, "") === below(name) ? `* /${name}${below(name)}` : null;
        expect(find(new Search(`/${name}${rest}`)), `${name}${rest} of ${[...words].join(" ")}`).toBe(expected);
        if (expected !== null) found++;
      }
    }
    expect(found).toBeGreaterThan(2_000);
  });

  it("placeholders of a branch that fails leave nothing behind", () => {
    const find = grow([endpoint("* /{a}/{b}/x/end"), endpoint("* /{a}/{b}/{c}/{d}"), endpoint("* /{rest*}")]);
    const cut = (path: string, names: number) => {
      const search = new Search(path);
      const found = find(search);
      return [found, ...Array.from({ length: names }, (_, i) => path.slice(search.marks[2 * i], search.marks[2 * i + 1]))];
    };
    expect(cut("/1/22/x/end", 2)).toEqual(["* /{a}/{b}/x/end", "1", "22"]);
    expect(cut("/1/22/x/other/", 4)).toEqual(["* /{a}/{b}/{c}/{d}", "1", "22", "x", "other"]);
    expect(cut("/1/22/x/end/more/", 1)).toEqual(["* /{rest*}", "1/22/x/end/more"]);
  });
});

describe("growing", () => {
  it("is not limited by how many literals are alike, each in one character more", () => {
    const literals = Array.from({ length: 7_000 }, (_, i) => "a".repeat(i + 1));
    const list = literals.map((text) => ({ ...endpoint("GET /"), name: String(text.length), segments: [{ kind: "literal", text }] as const }));
    const find = grow(list);
    for (const length of [1, 3_500, 7_000]) expect(find(new Search(`/${"a".repeat(length)}`))).toBe(String(length));
    expect(find(new Search(`/${"a".repeat(7_001)}`))).toBeNull();
  }, 30_000);
});

describe("the work of a search", () => {
  it("does not grow with the number of routes, nor with what the client sends", () => {
    const most = (routes: number) => {
      const find = grow(Array.from({ length: routes }, (_, i) => endpoint(`GET /svc${i % 10}/v1/things${i}/{id}/parts/{part}`)));
      const r = random(7);
      let visits = 0;
      for (let n = 0; n < 500; n++) {
        const i = r.int(0, routes - 1);
        const path = `/svc${i % 10}/v1/things${i}/x/parts/${r.pick(["y", "y/", "y/z", "y/z" + "/deep".repeat(1000)])}`;
        const search = new Search(path);
        expect(find(search) !== null).toBe(!path.includes("/z"));
        visits = Math.max(visits, search.visits);
      }
      return visits;
    };
    expect(most(10_000)).toBe(most(100));
    expect(most(10_000)).toBeLessThanOrEqual(8);
  });

  it("looks at no node twice, however much it has to go back", () => {
    // Every mix of "a" and {x} over six segments, none of which ends in "z": 2^7 - 1 nodes, all tried once.
    const list = Array.from({ length: 64 }, (_, mask) => {
      const segments = Array.from({ length: 6 }, (_, i) => ((mask >> i) & 1 ? "a" : `{x${i}}`));
      return endpoint(`GET /${segments.join("/")}/end`);
    });
    const search = new Search("/a/a/a/a/a/a/z");
    expect(grow(list)(search)).toBeNull();
    expect(search.visits).toBeLessThanOrEqual(127);
  });
});

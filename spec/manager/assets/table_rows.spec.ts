import { describe, expect, it } from "vitest";
import {
  sorted,
  countText,
  matches,
  viewIn,
  withView,
  type SortValue,
} from "../../../lib/manager/assets/table_rows.ts";

describe("a search", () => {
  it("a search finds rows that have every word somewhere, whatever the case", () => {
    expect(matches("items get /shop/items/{id} key_auth", "SHOP get")).toBe(true);
    expect(matches("items get /shop/items/{id}", "shop post")).toBe(false);
  });

  it("a search finds all rows for an empty or blank search", () => {
    expect([matches("x", ""), matches("x", "  "), matches("", "")]).toEqual([true, true, true]);
  });

  it("a search treats special characters literally, not as a pattern", () =>
    expect([matches("/a/{rest*}", "{rest*}"), matches("abc", "a.c")]).toEqual([true, false]));
});

describe("an order", () => {
  const order = (values: readonly SortValue[], descending = false) => sorted(values, (value) => value, descending);

  it("an order takes numbers within names as numbers", () =>
    expect(order(["r10", "r9", "R1"])).toEqual(["R1", "r9", "r10"]));

  it("an order sorts numbers by size, both ways", () => {
    expect(order([10, 9, 100])).toEqual([9, 10, 100]);
    expect(order([10, 9, 100], true)).toEqual([100, 10, 9]);
  });

  it("an order puts rows without a value last, both ways", () => {
    expect(order([null, 2, null, 1])).toEqual([1, 2, null, null]);
    expect(order([null, 2, null, 1], true)).toEqual([2, 1, null, null]);
  });

  it("an order keeps the order of equal rows, and does not change the given list", () => {
    const given = [
      { name: "b", value: 1 },
      { name: "a", value: 1 },
    ];
    expect(sorted(given, ({ value }) => value, true)).toEqual(given);
    expect(sorted(given, ({ name }) => name, false)).not.toBe(given);
  });
});

describe("the count beside a search", () => {
  it.each([
    [1, 1, "1 route"],
    [1000, 1000, "1,000 routes"],
    [1, 1000, "1 of 1,000 routes"],
    [0, 2, "0 of 2 routes"],
  ])("the count beside a search writes %i of %i rows as %s", (found, all, text) =>
    expect(countText(found, all, ["route", "routes"])).toBe(text),
  );
});

describe("the table view in the address", () => {
  const view = { query: "shop & co?", sort: { key: "p95", descending: true }, all: true };

  it(
    "the table view in the address returns as it was stored, " +
      "beside those of other tables and other data of the page",
    () => {
      const hash = withView(withView("#/services/a%2Fb?x=1", "routes", view), "upstreams", { ...view, query: "x" });
      expect(viewIn(hash, "routes")).toEqual(view);
      expect(viewIn(hash, "upstreams")).toEqual({ ...view, query: "x" });
      expect(hash.startsWith("#/services/a%2Fb?x=1&")).toBe(true);
    },
  );

  it(
    "the table view in the address has short names on the page of its own, " +
      "and is nothing where nothing was chosen",
    () => {
      expect(withView("#/routes", "routes", view)).toBe("#/routes?search=shop+%26+co%3F&sort=-p95&rows=all");
      expect(withView("#/routes?search=x&sort=name", "routes", { query: "", sort: null, all: false })).toBe("#/routes");
      expect(withView("#/routes?search=x&sort=name", "routes", { sort: { key: "p50", descending: false } })).toBe(
        "#/routes?search=x&sort=p50",
      );
    },
  );

  it.each([
    "",
    "#",
    "#/",
    "#/routes",
    "#/routes?",
    "#/routes?sort=&rows=some",
    "#/routes?sort=-",
    "#/services?search=x",
    "#/routes?routes.search=x",
    "?search=x",
  ])("the table view in the address does not exist in %j", (hash) => {
    expect(viewIn(hash, "routes")).toEqual({ query: "", sort: null, all: false });
  });

  it("the table view in the address is read from whatever somebody writes there", () => {
    expect(viewIn("#/routes?search=%E0%A4%A&sort=--p95&search=two\n", "routes")).toEqual({
      query: expect.any(String),
      sort: null,
      all: false,
    });
  });
});

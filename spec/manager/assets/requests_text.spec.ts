import { describe, expect, it } from "vitest";
import {
  barsOf,
  curlOf,
  filterIn,
  isChosen,
  listedLine,
  placeOfAnswer,
  statusesText,
  stepText,
  toggled,
  urlOf,
} from "../../../lib/manager/assets/requests_text.ts";
import { hashForRequests } from "../../../lib/manager/assets/url_hash.ts";

describe("the filter of the page Requests", () => {
  it("is read from the address, without what is blank or is no filter", () => {
    expect(filterIn("#/requests?status=4xx%2C5xx&route=%20list%20&code=&live=1&sort=x")).toEqual({
      status: "4xx,5xx",
      route: "list",
    });
  });

  it("is written into the address, also beside one request whose id has any characters", () => {
    expect(hashForRequests({ status: "4xx,5xx", live: "" })).toBe("#/requests?status=4xx%2C5xx");
    expect(hashForRequests({ caller: "a b" }, "a/b#?")).toBe("#/requests/a%2Fb%23%3F?caller=a+b");
  });

  it("has several statuses, codes and methods, and one of all else", () => {
    expect(toggled("status", "", "4xx")).toBe("4xx");
    expect(toggled("status", "4xx", "5xx")).toBe("4xx,5xx");
    expect(toggled("status", "4xx,5xx", "4xx")).toBe("5xx");
    expect(toggled("route", "list", "one")).toBe("one");
    expect(toggled("route", "a,b", "a,b")).toBe("");
    expect([isChosen("code", "a,b", "b"), isChosen("route", "a,b", "b")]).toEqual([true, false]);
  });
});

describe("the histogram of the page Requests", () => {
  const bar = (at: string, status: Record<string, number>) => ({
    at: `2026-01-01T00:${at}.000Z`,
    count: Object.values(status).reduce((sum, each) => sum + each),
    status,
  });

  it("has places for all of the time, and parts of the highest bar for refusals and failures", () => {
    const histogram = {
      step_s: 10,
      bars: [bar("00:20", { "2xx": 4, "4xx": 2, "5xx": 1, none: 1 }), bar("00:40", { "3xx": 2 })],
    };
    expect(barsOf({ histogram, since: "2026-01-01T00:00:05.000Z" })).toEqual({
      places: 5,
      bars: [
        { place: 2, ...histogram.bars[0], parts: [0.5, 0.25, 0.25] },
        { place: 4, ...histogram.bars[1], parts: [0.25, 0, 0] },
      ],
    });
    expect(barsOf({ histogram: { step_s: 1, bars: [] }, since: null })).toEqual({ bars: [], places: 0 });
  });

  it("is said in words", () => {
    expect(statusesText({ "5xx": 1, "2xx": 1_200, none: 3 })).toBe("1,200 2xx, 1 5xx, 3 without a reply");
    expect([1, 30, 300, 7_200].map(stepText)).toEqual(["1 s", "30 s", "5 min", "2 h"]);
  });
});

describe("one request of the page Requests", () => {
  it("is a row whether it is remembered or has just ended", () => {
    const line = { request_id: "r", client_ip: "192.0.2.1", duration_ms: 3, status: 200 };
    expect(listedLine(line as never)).toMatchObject({ id: "r", client: "192.0.2.1", ms: 3, status: 200 });
  });

  it("is a command in which nothing of a client is run by a shell", () => {
    const asked = { method: "GET", host: "shop.example:8008", path: "/a'; rm -rf $HOME `x`" };
    expect(urlOf(asked)).toBe("http://shop.example:8008/a'; rm -rf $HOME `x`");
    expect(curlOf(asked)).toBe("curl -i 'http://shop.example:8008/a'\\''; rm -rf $HOME `x`'");
    expect(curlOf({ ...asked, method: "HEAD", path: "/" })).toBe("curl -I 'http://shop.example:8008/'");
    expect(curlOf({ method: "PU'T", host: null, path: null })).toBe("curl -i -X 'PU'\\''T' '/'");
  });

  it("names which of the plugins of its route has answered", () => {
    const of = (level: string, name: string, id: string | null = null) => ({ level, name, id });
    const plugins = [
      of("global", "acl"),
      of("service", "rate_limit", "per.plugins.ip"),
      of("route", "rate_limit"),
      of("route", "rate_limit"),
      of("route", "acl", "lan"),
    ];
    const place = (by: string, plugin: string | null) => placeOfAnswer(plugins, { by, plugin });
    expect(place("acl", "global.plugins.acl")).toBe(0);
    expect(place("rate_limit", "services.s.routes.r.plugins.rate_limit")).toBe(2);
    expect(place("rate_limit", "services.s.routes.r.plugins.rate_limit#2")).toBe(3);
    expect(place("acl", "services.s.routes.r.plugins.lan")).toBe(4);
    expect([place("upstream", null), place("jwt", "global.plugins.jwt")]).toEqual([-1, -1]);
  });
});

import { describe, expect, it } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { silentLog } from "../../lib/base/log.ts";
import { RecentRequests } from "../../lib/gateway/recent_requests.ts";
import { serve } from "../../lib/gateway/serve.ts";
import type { Snapshot } from "../../lib/gateway/snapshot.ts";
import { injected } from "../../lib/proof/made_request.ts";
import { compileTable } from "../../lib/route/table.ts";
import type { ReceiveOptions } from "../../lib/server/inbound.ts";
import { threadsOf } from "../support/threads.ts";

describe("RecentRequests", () => {
  const listed = (recent: RecentRequests) =>
    recent.list().map(({ method, authority, path }) => `${method} ${authority} ${path}`);

  it("keeps method, host and normalised path of the requests that were looked up, without the query", () => {
    const limits = { maxHeaderBytes: 32_768, maxHeaders: 200, maxUriBytes: 8_192 };
    const receiving = { clock: systemClock, proxies: null, limits, underscores: "drop" } as ReceiveOptions;
    const snapshot = { table: compileTable([]) } as unknown as Snapshot;
    const recent = new RecentRequests();
    for (const path of [
      "/a/x?key=secret",
      "/a//%78",
      "http://api.example.com:81/nowhere?q",
      "/a/../x",
      "http://no host/",
      "/a#b",
    ]) {
      const inbound = injected({ url: path, headers: { Host: "shop.example.com" } }, receiving);
      expect(serve(inbound, snapshot, { clock: systemClock, log: silentLog, recent })).toMatchObject({
        body: expect.anything() as unknown,
      });
    }
    expect(listed(recent)).toEqual([
      "GET shop.example.com /a/x",
      "GET shop.example.com /a/x",
      "GET api.example.com:81 /nowhere",
    ]);
  });

  it("keeps the last 1000 and no more", () => {
    const recent = new RecentRequests();
    for (let i = 0; i < 2_345; i++) recent.add("GET", "a.test", `/${i}${"x".repeat(i % 7)}`);
    const paths = recent
      .list()
      .map(({ path }) => Number(/\d+/.exec(path)![0]))
      .sort((a, b) => a - b);
    expect(paths).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 1_345));
  });

  it("leaves out a request that is longer than its slot, and keeps one that just fits", () => {
    const recent = new RecentRequests();
    const path = (length: number) => `/${"p".repeat(length - 1)}`;
    recent.add("GET", "a.test", path(501));
    recent.add("GET", "a.test", path(500));
    recent.add("PUT", "b.test", "/");
    expect(listed(recent)).toEqual([`GET a.test ${path(500)}`, "PUT b.test /"]);
  });

  it(
    "keeps the last requests of each worker, 1000 in all, " +
      "and the main thread lists those of all workers, of dead ones too",
    () => {
      const threads = threadsOf(2);
      const created = (place: number) => new RecentRequests(threads(place));
      const [main, first, second] = [-1, 0, 1].map(created);
      first!.add("GET", "a.test", "/first");
      second!.add("GET", "a.test", "/second");
      expect(listed(main!)).toEqual(["GET a.test /first", "GET a.test /second"]);
      for (let i = 0; i < 700; i++) first!.add("GET", "a.test", `/${i}`);
      expect(
        main!
          .list()
          .map(({ path }) => path)
          .sort(),
      ).toEqual([...Array.from({ length: 500 }, (_, i) => `/${i + 200}`), "/second"].sort());
      const next = created(1);
      expect(listed(main!)).toContain("GET a.test /second");
      next.add("PUT", "a.test", "/");
      expect(listed(main!).slice(500)).toEqual(["PUT a.test /"]);
    },
  );

  it("a shorter request shows nothing of the longer one that was in its slot", () => {
    const recent = new RecentRequests();
    recent.add("DELETE", "long.example.com", "/a/long/path");
    for (let i = 0; i < 1_000; i++) recent.add("GET", "", "/");
    expect(new Set(listed(recent))).toEqual(new Set(["GET  /"]));
  });
});

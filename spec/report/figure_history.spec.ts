/**
 * The history of services, routes and upstreams: what it holds, for how long, in how much memory, and what `GET
 * /gateway/figures` makes of it.
 */
import { describe, expect, it, onTestFinished } from "vitest";
import { readFiguresQuestion, figuresOf } from "../../lib/admin/figures_request.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { createGateway, type ConfigInput, type Gateway as Shown } from "../../lib/index.ts";
import { FigureHistory, seriesKey } from "../../lib/report/figure_history.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { backend, oneService } from "../support/gateway.ts";
import { startAdmin } from "../admin/harness.ts";

const config = (port: number, ...names: string[]): ConfigInput =>
  oneService(port, { routes: names.map((name) => ({ path: `/${name}`, name })) });

/** A gateway whose admin interface can be asked, at the beginning of a step of five minutes. */
async function recorded(input: ConfigInput, most?: number) {
  const clock = manualClock();
  clock.advance(300_000 - (clock.wall() % 300_000));
  const gateway = createGateway({ config: input, clock });
  onTestFinished(async () => void (await gateway.close(0)));
  const parts = Gateway.internalsOf(gateway as Gateway);
  let history: FigureHistory;
  /** Anew, as if what it is made of had been loaded now. */
  const begin = () => {
    history = new FigureHistory(parts, most);
    Object.assign(Gateway.reportingOf(gateway as Gateway), { history, openHistory: async () => history });
    return history;
  };
  // Starts the statistics.
  parts.requests.activate();
  const read = (query: string) => {
    gateway.recentStats("total");
    const question = readFiguresQuestion(`/gateway/figures?${query}`);
    return typeof question === "string" ? question : figuresOf(history, question, parts.metrics!.services);
  };
  return { gateway, clock, history: begin(), read, begin };
}

const get = (gateway: Shown, url: string) => gateway.inject({ url, headers: { Host: "shop.example" } });
/** In steps of five seconds, as the timer of the statistics has them. */
function pass(clock: ManualClock, seconds: number): void {
  for (let i = 0; i < seconds; i += 5) clock.advance(5_000);
}
const pointsOf = (found: ReturnType<Awaited<ReturnType<typeof recorded>>["read"]>) =>
  (found as Extract<typeof found, object>).points;

describe("the history of figures", () => {
  it(
    "has steps of ten seconds for a service, a route, an upstream and all together, " +
      "and each counts what came within it",
    async () => {
      const { port } = await backend(
        (_request, response) => void response.writeHead(response.req.url === "/b" ? 500 : 200).end(),
      );
      const { gateway, clock, read } = await recorded(config(port, "a", "b"));
      for (const url of ["/a/a", "/a/a", "/a/b", "/nowhere"]) await get(gateway, url);
      expect(pointsOf(read("service=s"))).toEqual([]);
      pass(clock, 10);
      await get(gateway, "/a/a");
      pass(clock, 20);
      const counts = (query: string) => pointsOf(read(query)).map(({ requests, errors }) => [requests, errors]);
      expect(counts("service=s")).toEqual([
        [3, 1],
        [1, 0],
        [0, 0],
      ]);
      expect(counts("service=s&route=a")).toEqual([
        [2, 0],
        [1, 0],
        [0, 0],
      ]);
      expect(counts("service=s&route=b")).toEqual([
        [1, 1],
        [0, 0],
        [0, 0],
      ]);
      expect(counts(`service=s&upstream=127.0.0.1:${port}`)).toEqual([
        [3, 1],
        [1, 0],
        [0, 0],
      ]);
      expect(counts("")).toEqual([
        [4, 1],
        [1, 0],
        [0, 0],
      ]);
      const [first, , quiet] = pointsOf(read("service=s"));
      expect(first).toMatchObject({
        at: new Date(clock.wall() - 30_000).toISOString(),
        limited: 0,
        p50_ms: expect.any(Number) as number,
        p99_ms: expect.any(Number) as number,
      });
      expect(quiet).toMatchObject({
        at: new Date(clock.wall() - 10_000).toISOString(),
        p50_ms: null,
        p95_ms: null,
        p99_ms: null,
      });
    },
  );

  it(
    "keeps 15 minutes in steps of ten seconds, and a day in steps of five minutes, " +
      "whose quantiles are of all of its requests",
    async () => {
      const { port } = await backend();
      const { gateway, clock, read } = await recorded(config(port, "a"));
      await get(gateway, "/a/a");
      pass(clock, 300);
      expect(pointsOf(read("service=s&route=a&span=1d"))).toMatchObject([
        { requests: 1, p50_ms: expect.any(Number) as number },
      ]);
      pass(clock, 600);
      expect(pointsOf(read("service=s&route=a")).map(({ requests }) => requests)).toEqual([
        1,
        ...Array.from({ length: 89 }, () => 0),
      ]);
      pass(clock, 10);
      expect(pointsOf(read("service=s&route=a")).map(({ requests }) => requests)).toEqual(
        Array.from({ length: 90 }, () => 0),
      );
      pass(clock, 86_400 - 910);
      expect(pointsOf(read("service=s&span=1d")).map(({ requests }) => requests)).toEqual([
        1,
        ...Array.from({ length: 287 }, () => 0),
      ]);
      pass(clock, 300);
      expect(pointsOf(read("service=s&span=1d")).every(({ requests }) => requests === 0)).toBe(true);
    },
  );

  it("says nothing of steps that have not ended, and nothing of the time before it began", async () => {
    const { port } = await backend();
    const { gateway, clock, read } = await recorded(config(port, "a"));
    expect(read("service=s")).toEqual({ step_s: 10, since: null, recorded: true, points: [], reloads: [] });
    clock.advance(5_000);
    await get(gateway, "/a/a");
    expect(read("service=s")).toMatchObject({ since: new Date(clock.wall() - 5_000).toISOString(), points: [] });
    clock.advance(5_000);
    expect(pointsOf(read("service=s"))).toMatchObject([{ requests: 1 }]);
  });

  it.each([true, false])(
    "has a mark for a reload within its first step, also where that is what it is loaded after: %s",
    async (isLate) => {
      const { port } = await backend();
      const { gateway, clock, read, begin } = await recorded(config(port, "a"));
      await get(gateway, "/a/a");
      clock.advance(1_000);
      await gateway.reload(config(port, "a", "b"));
      const [at, { digest }] = [new Date(clock.wall()).toISOString(), gateway];
      if (isLate) begin();
      pass(clock, 10);
      expect(read("")).toMatchObject({ reloads: [{ at, digest }] });
    },
  );

  it("has no mark for the start, nor for a reload before its first step", async () => {
    const { port } = await backend();
    const { gateway, clock, read, begin } = await recorded(config(port, "a"));
    pass(clock, 10);
    expect(read("")).toMatchObject({ reloads: [] });
    await gateway.reload(config(port, "a", "b"));
    pass(clock, 10);
    begin();
    pass(clock, 10);
    expect(read("")).toMatchObject({ reloads: [] });
  });

  it(
    "goes on over reloads, also of a route that was away for a while, " +
      "and has a mark for each reload that changed something",
    async () => {
      const { port } = await backend();
      const { gateway, clock, read } = await recorded(config(port, "a", "b"));
      await get(gateway, "/a/b");
      pass(clock, 10);
      await gateway.reload(config(port, "a"));
      const at = new Date(clock.wall()).toISOString();
      const { digest } = gateway;
      await gateway.reload(config(port, "a"));
      await expect(gateway.reload({ services: [{}] } as unknown as ConfigInput)).rejects.toThrow();
      pass(clock, 10);
      expect(read("service=s&route=b")).toMatchObject({
        points: [{ requests: 1 }, { requests: 0 }],
        reloads: [{ at, digest }],
      });
      await gateway.reload(config(port, "a", "b"));
      await get(gateway, "/a/b");
      pass(clock, 10);
      expect(read("service=s&route=b")).toMatchObject({
        points: [{ requests: 1 }, { requests: 0 }, { requests: 1 }],
        reloads: [{ at, digest }, { digest: gateway.digest }],
      });
      pass(clock, 86_400);
      expect(read("")).toMatchObject({ reloads: [] });
    },
  );

  it(
    "holds a bounded number: a further one is said not to be recorded, " +
      "until another one has had no request for 15 minutes",
    async () => {
      const { port } = await backend();
      // All, the service, and two routes: none for the third, and for the upstream.
      const { gateway, clock, history, read } = await recorded(config(port, "a", "b", "c"), 4);
      for (const name of ["a", "b", "c"]) await get(gateway, `/a/${name}`);
      pass(clock, 10);
      expect(read("service=s&route=b")).toMatchObject({ recorded: true, points: [{ requests: 1 }] });
      expect(read("service=s&route=c")).toMatchObject({ recorded: false, points: [] });
      pass(clock, 885);
      await get(gateway, "/a/c");
      pass(clock, 5);
      expect(read("service=s&route=c")).toMatchObject({ recorded: false });
      await get(gateway, "/a/c");
      pass(clock, 10);
      expect(read("service=s&route=c")).toMatchObject({
        recorded: true,
        since: new Date(clock.wall() - 10_000).toISOString(),
        points: [{ requests: 1 }],
      });
      expect([
        history.series.size,
        history.series.has(seriesKey("s", "route", "a")),
        history.series.has(seriesKey()),
      ]).toEqual([4, false, true]);
    },
  );

  it("takes memory for what has had requests alone: nothing for a thousand routes that are quiet", async () => {
    const { port } = await backend();
    const { clock, history } = await recorded(config(port, ...Array.from({ length: 1_000 }, (_, i) => `r${i}`)));
    pass(clock, 60);
    expect(history.series.size).toBe(0);
  });
});

describe("GET /gateway/figures", () => {
  it.each([
    ["span=2d", '"span" must be one of 15m, 1d.'],
    ["span=constructor", '"span" must be one of 15m, 1d.'],
    ["service=s&route=a&upstream=u", 'Ask for a "route" or for an "upstream", not for both.'],
    ["route=a", '"route" needs "service".'],
    ["upstream=a", '"upstream" needs "service".'],
  ])("refuses the query %s: %s", async (query, detail) => {
    const { read } = await recorded(config(9, "a"));
    expect(read(query)).toBe(detail);
  });

  it(
    "answers a session and a caller with credentials, in JSON; " +
      "404 for names that nothing has, 401 without a session",
    async () => {
      const { gateway, clock } = await recorded(config(9, "a"));
      const { ask, session } = await startAdmin({ clock, gateway });
      const headers = { cookie: await session() };
      await get(gateway, "/a/a");
      pass(clock, 10);
      const { status, json } = await ask("GET", "/gateway/figures?service=s&route=a", { headers });
      expect([status, json]).toMatchObject([
        200,
        { step_s: 10, recorded: true, points: [{ requests: 1, errors: 1 }], reloads: [] },
      ]);
      for (const query of ["service=x", "service=s&route=x", "service=s&upstream=x", "service=__proto__"]) {
        expect([query, (await ask("GET", `/gateway/figures?${query}`, { headers })).status]).toEqual([query, 404]);
      }
      expect((await ask("GET", "/gateway/figures?span=1h", { headers })).json).toMatchObject({
        status: 400,
        code: "request_invalid",
      });
      expect((await ask("GET", "/gateway/figures")).status).toBe(401);
      expect((await ask("POST", "/gateway/figures", { headers })).status).toBe(405);
    },
  );
});

describe("the statistics of a gateway", () => {
  it(
    "open the history with their first step that has a request, " + "where somebody can ask for it, and only there",
    async () => {
      const clock = manualClock();
      const gateway = createGateway({ config: config(9, "a"), clock });
      onTestFinished(async () => void (await gateway.close(0)));
      const [parts, reporting] = [Gateway.internalsOf(gateway as Gateway), Gateway.reportingOf(gateway as Gateway)];
      parts.requests.activate();
      await get(gateway, "/a/a");
      pass(clock, 10);
      expect(reporting.history).toBe(null);
      let opened = 0;
      reporting.openHistory = async () => {
        if (++opened === 1) throw new Error("the file is gone");
        return (reporting.history ??= new FigureHistory(parts));
      };
      pass(clock, 60);
      expect(opened).toBe(0);
      await get(gateway, "/a/a");
      for (const times of [1, 2]) {
        pass(clock, 5);
        // The promise of a load that has failed.
        await new Promise(setImmediate);
        expect(opened).toBe(times);
        await get(gateway, "/a/a");
      }
      pass(clock, 5);
      expect([opened, [...reporting.history!.series.keys()]]).toEqual([
        2,
        [seriesKey(), seriesKey("s", "route", "a"), seriesKey("s"), seriesKey("s", "upstream", "127.0.0.1:9")],
      ]);
    },
  );
});

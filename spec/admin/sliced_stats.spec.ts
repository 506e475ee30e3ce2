import { expect, it, vi } from "vitest";
import { shownRequest } from "../../lib/admin/shown_request.ts";
import { statsInSlices } from "../../lib/admin/sliced_stats.ts";
import { ReportedGateway } from "../../lib/embed/reported_gateway.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";

async function ofThree() {
  const [service] = oneService(9).services;
  const services = ["a", "b", "c"].map((name) => ({ ...service!, name, base_path: `/${name}` }));
  return (await running({ services }, { clock: manualClock() })).gateway;
}

it("statistics in slices are those of one moment, made service by service", async () => {
  const gateway = await ofThree();
  expect(gateway).toBeInstanceOf(ReportedGateway);
  let slices = 0;
  const slice = () => void slices++;
  for (const extent of ["all", "busy", "services", "total"] as const) {
    slices = 0;
    const stats = gateway.recentStats(extent);
    expect([extent, await statsInSlices(gateway, extent, slice as never)]).toEqual([extent, stats]);
    expect([extent, slices]).toEqual([extent, extent === "total" ? 0 : 3]);
  }
  expect(gateway.recentStats("all").services.map(({ name }) => name)).toEqual(["a", "b", "c"]);
});

it("GET /gateway/stats makes them so, however many services there are", async () => {
  const gateway = await ofThree();
  const made = vi.spyOn(ReportedGateway.reportingOf(gateway), "services");
  const options = { gateway, refresh: () => null };
  const reply = await shownRequest("/gateway/stats", { headers: [] } as never, options as never, "masked");
  const { services: shown } = JSON.parse(String(reply.body)) as {
    readonly services: readonly { readonly name: string }[];
  };
  expect(shown.map(({ name }) => name)).toEqual(["a", "b", "c"]);
  expect(made.mock.calls.map(([, asked]) => Array.from(asked, ([name]) => name))).toEqual([["a"], ["b"], ["c"]]);
});

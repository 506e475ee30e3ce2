import { expect, it } from "vitest";
import { Call } from "../../lib/http/exchange.ts";
import { withServerTiming } from "../../lib/observe/server_timing.ts";

it.each([
  [{ route: null }, "gateway;dur=20"],
  [{ route: "r" }, "gateway;dur=20, plugins;dur=20"],
  [{ route: "r", upstreamMs: 12.345 }, "gateway;dur=20, plugins;dur=7.7, upstream;dur=12.3"],
  [{ route: "r", upstreamMs: 25 }, "gateway;dur=20, plugins;dur=0, upstream;dur=25"],
])("writes for the notes %j the header Server-Timing: %s", (notes, value) => {
  const call = new Call({ id: "r", remoteAddress: "", trustedRemote: false, startedAt: 5, inform: () => {} });
  Object.assign(call.notes, notes);
  const reply = { status: 200, headers: ["server-timing", "db;dur=1"], body: null };
  expect(withServerTiming(reply, call, 25).headers).toEqual(["server-timing", "db;dur=1", "Server-Timing", value]);
  expect(reply.headers).toHaveLength(2);
});

import { describe, expect, it } from "vitest";
import { upstreamFaults } from "../contracts/upstream_faults.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { headBackend } from "./harness.ts";

describe.each(["wire", "node"] as const)("the upstream client %s", upstreamFaults);

it(
  "upstream_client selects the client, a reload changes it, " + "and the admin interface shows the one in force",
  async () => {
    // Node accepts a blank line before a response.
    const upstream = await headBackend(
      ({ socket }) => void socket.write("\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    );
    const config = oneService(upstream.port);
    const { gateway, port } = await running(config);
    const shown = () =>
      (gateway.shownConfig as { services: { upstream_client: string }[] }).services[0]!.upstream_client;
    const status = async () => (await ask(port, { path: "/a/x" })).status;
    expect([shown(), await status()]).toEqual(["wire", 502]);
    await gateway.reload(oneService(upstream.port, { upstream_client: "node" }));
    expect([shown(), await status()]).toEqual(["node", 200]);
    await gateway.reload(config);
    expect([shown(), await status()]).toEqual(["wire", 502]);
  },
);

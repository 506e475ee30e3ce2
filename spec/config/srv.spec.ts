/** The schema of upstreams that are SRV records, and what may not stand beside them. */
import { describe, expect, it } from "vitest";
import { configJsonSchema } from "../../lib/cli/schema.ts";
import { ConfigError, createGateway } from "../../lib/index.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { oneService } from "../support/gateway.ts";

const SRV = "_http._tcp.orders.internal";

function issuesOf(...upstreams: readonly object[]): string[] {
  try {
    createGateway({ config: oneService([], { upstreams } as never) });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.issues.map(({ at, message }) => `${at.slice(2).join(".")}: ${message}`);
  }
}

describe("an upstream with srv", () => {
  it("needs nothing else, and has the name of the record as its id", () => {
    const gateway = createGateway({ config: oneService([], { upstreams: [{ srv: "_HTTP._tcp.Orders.internal" }] }) });
    const [service] = (gateway.shownConfig as unknown as { services: { upstreams: object[] }[] }).services;
    expect(service!.upstreams).toEqual([{ id: "_HTTP._tcp.Orders.internal", srv: "_HTTP._tcp.Orders.internal" }]);
  });

  it.each([
    ["orders.internal", 'it begins with the service and the protocol, "_http._tcp."'],
    ["_http._udp.orders.internal", 'it begins with the service and the protocol, "_http._tcp."'],
    ["_http._tcp.", 'it begins with the service and the protocol, "_http._tcp."'],
    ["_http._tcp.two words", "no domain follows that is one"],
    ["_http._tcp.orders.internal:80", "no domain follows that is one"],
  ])("%j is refused: %s", (srv, why) => {
    expect(issuesOf({ srv })).toEqual([
      `upstreams.0.srv: expected the name of an SRV record, as "_http._tcp.orders.internal", ` +
        `found ${JSON.stringify(srv)}: ${why}`,
    ]);
  });

  it.each([
    ["host", "10.0.0.1", "the record names its hosts"],
    ["port", 80, "the record names its ports"],
    ["weight", 5, "the record has the weights of its targets"],
  ])("has no %s beside it", (field, value, why) => {
    expect(issuesOf({ srv: SRV, [field]: value })).toEqual([
      `upstreams.0.${field}: is not for an upstream with "srv": ${why}`,
    ]);
  });

  it("may have no other upstream whose id begins as those of its targets do", () => {
    expect(issuesOf({ id: "u", srv: SRV }, { id: "u/a:80", host: "127.0.0.1", port: 80 })).toEqual([
      'upstreams.1.id: begins as the targets of an SRV record do: "u/TARGET:PORT"',
    ]);
    expect(issuesOf({ id: "u", srv: SRV }, { id: "u2", host: "127.0.0.1", port: 80 })).toEqual([]);
  });

  it("may not be a backup alone, and an upstream without it needs host and port as before", () => {
    expect(issuesOf({ srv: SRV, backup: true })).toEqual([expect.stringContaining("are all backups")]);
    expect(issuesOf({})).toEqual([
      expect.stringContaining("upstreams.0.host: is required"),
      expect.stringContaining("upstreams.0.port: is required"),
    ]);
  });

  it("is in the JSON Schema: either srv, or host and port", () => {
    const { Upstream } = (
      configJsonSchema(builtinPlugins) as unknown as { $defs: Record<string, Record<string, unknown>> }
    ).$defs;
    expect(Upstream).toMatchObject({
      if: { required: ["srv"] },
      then: { properties: { host: false, port: false, weight: false } },
      else: { required: ["host", "port"] },
    });
  });
});

/** What status, metrics and warnings say of `global.acme`; a stand-in has the state. */
import { X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import { statusView } from "../../lib/admin/views.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { AcmeState } from "../../lib/server/issued_certificates.ts";
import { SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { SHOP } from "../support/more_certs.ts";

const DAY_MS = 86_400_000;
const acme = { directory: "https://ca.example/directory", hosts: ["a.example", "b.example"], terms_agreed: true };

async function told(state: Partial<AcmeState>, pairs: readonly { cert: string; key: string }[] = [], epoch = 0) {
  const clock = manualClock(epoch);
  const config = oneService(9, {}, { acme } as never);
  const { gateway } = await running(config, { clock, acme: "checked" });
  const { features, runtime } = Gateway.internalsOf(gateway);
  const issued = features.serverTls.issuedIn(runtime);
  issued.use(pairs.map(({ cert, key }) => ({ cert: Buffer.from(cert), key: Buffer.from(key), hosts: ["a.example"] })));
  const hosts = acme.hosts.map((host) => ({ host, notAfter: null, error: null, isDue: true }));
  const whole = { directory: acme.directory, state: "waiting" as const, hosts, error: null, nextAt: null };
  issued.state = () => ({ ...whole, orders: { succeeded: 2, failed: 1 }, fleet: null, ...state });
  const samples = (name: string) => gateway.metrics().match(new RegExp(`^${name}.*$`, "gm"));
  const warned = () => gateway.status.warnings.filter(({ code }) => code.startsWith("certificate_"));
  return { gateway, samples, warned };
}

describe("reports of global.acme", () => {
  it("the status has its state, with times, and its certificates without a path", async () => {
    const hosts = [
      { host: "a.example", notAfter: DAY_MS, error: null, isDue: false },
      { host: "b.example", notAfter: null, error: "no route to it", isDue: true },
    ];
    const { gateway } = await told({ hosts, error: "b.example: no route to it", nextAt: 1_500 }, [SERVER]);
    const view = statusView(gateway.status);
    expect(view.acme).toEqual({
      directory: acme.directory,
      state: "waiting",
      hosts: [
        { host: "a.example", not_after: "1970-01-02T00:00:00.000Z", error: null, is_due: false },
        { host: "b.example", not_after: null, error: "no route to it", is_due: true },
      ],
      error: "b.example: no route to it",
      next_at: "1970-01-01T00:00:02.000Z",
      orders: { succeeded: 2, failed: 1 },
      fleet: null,
    });
    expect(view.certificates).toMatchObject([{ where: "global.acme", path: null, names: ["localhost", "127.0.0.1"] }]);
    await gateway.reload(oneService(9));
    expect([gateway.status.acme, gateway.status.certificates]).toEqual([null, []]);
  });

  it("status and metrics say who orders for the fleet", async () => {
    const holder = { id: "0f", name: "web-1:8008" };
    const { gateway, samples } = await told({ fleet: { holder, isHolder: true, problem: null } });
    expect(statusView(gateway.status).acme!.fleet).toEqual({ holder, is_holder: true, problem: null });
    expect(samples("edge_gateway_acme_fleet_holder")).toEqual(["edge_gateway_acme_fleet_holder 1"]);
    const other = await told({ fleet: { holder, isHolder: false, problem: null } });
    expect(other.samples("edge_gateway_acme_fleet_holder")).toEqual(["edge_gateway_acme_fleet_holder 0"]);
    expect((await told({})).samples("edge_gateway_acme_fleet_holder")).toBeNull();
  });

  it("metrics have the end of each certificate by host, the outcomes of orders, and what is missing", async () => {
    const hosts = [
      { host: "a.example", notAfter: 2 * DAY_MS, error: null, isDue: false },
      { host: "b.example", notAfter: null, error: null, isDue: true },
    ];
    const { samples } = await told({ hosts });
    expect(samples("edge_gateway_tls_certificate_expiry_timestamp_seconds")).toEqual([
      'edge_gateway_tls_certificate_expiry_timestamp_seconds{file="",host="a.example"} 172800',
    ]);
    expect(samples("edge_gateway_acme_orders_total")).toEqual([
      'edge_gateway_acme_orders_total{outcome="succeeded"} 2',
      'edge_gateway_acme_orders_total{outcome="failed"} 1',
    ]);
    expect(samples("edge_gateway_acme_hosts_without_certificate")).toEqual([
      "edge_gateway_acme_hosts_without_certificate 1",
    ]);
    const failing = await told({ error: "refused" });
    expect(failing.samples("edge_gateway_acme_last_attempt_successful")).toEqual([
      "edge_gateway_acme_last_attempt_successful 0",
    ]);
  });

  it("warns of a certificate that ends within 14 days only where its renewal has failed", async () => {
    const end = Date.parse(new X509Certificate(SHOP.cert).validTo);
    const error = "the directory does not answer";
    const other = { host: "b.example", notAfter: null, error: "no route to it", isDue: true };
    const warned = async (left: number, state: Partial<AcmeState>, isDue = true, own: string | null = null) => {
      const hosts = [{ host: "a.example", notAfter: end, error: own, isDue }, other];
      return (await told({ hosts, ...state }, [SHOP], end - left)).warned();
    };
    expect(await warned(15 * DAY_MS, { error })).toEqual([]);
    expect(await warned(13 * DAY_MS, {})).toEqual([]);
    expect(await warned(13 * DAY_MS, { error })).toMatchObject([
      {
        code: "certificate_expires",
        path: "global.acme",
        remedy: "The last attempt to renew it has failed: the directory does not answer",
      },
    ]);
    // Another host fails, and this one is not due.
    expect(await warned(13 * DAY_MS, { error: "b.example: no route to it" }, false)).toEqual([]);
    expect(await warned(13 * DAY_MS, { error: "a.example: refused; b.example: …" }, true, "refused")).toMatchObject([
      { code: "certificate_expires", remedy: "The last attempt to renew it has failed: refused" },
    ]);
    expect(await warned(-1, {})).toMatchObject([{ code: "certificate_expired", remedy: "Another one is ordered." }]);
  });
});

import { expect, it, onTestFinished } from "vitest";
import type { AcmeFleet } from "../../lib/acme/fleet.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { KeptCertificates } from "../../lib/cli/kept_certificates.ts";
import type { GatewayInternals } from "../../lib/gateway/internals.ts";
import { IssuedCertificates } from "../../lib/server/issued_certificates.ts";
import { memoryFiles } from "../support/acme_files.ts";

const ACME = { directory: "https://ca.example/dir", hosts: ["a.example"], challenge: "http-01", hostsAllowed: [] };

it("begin again only after all former ones have ended, also where a reload removes them twice in a row", async () => {
  const global: { acme?: unknown } = {};
  const events: string[] = [];
  let endFirst = (): void => {};
  const first = new Promise<void>((resolve) => (endFirst = resolve));
  let made = 0;
  const share = () => {
    const name = ++made;
    const fleet = {
      ...{ files: memoryFiles(), answers: {}, state: { holder: null, isHolder: false, problem: null }, stop() {} },
      start: () => void events.push(`start ${name}`),
      close: async () => {
        if (name === 1) await first;
        events.push(`end ${name}`);
      },
    };
    return fleet as unknown as AcmeFleet;
  };
  const issued = new IssuedCertificates();
  const internals = {
    ...{ features: { serverTls: { issuedIn: () => issued } }, runtime: {}, clock: systemClock },
    configuration: { snapshot: { global, egressProxy: null }, followers: null },
    log: createLog({ write() {} }),
  } as unknown as GatewayInternals;
  const certificates = new KeptCertificates(internals, memoryFiles(), share);
  onTestFinished(() => certificates.close());
  certificates.start();
  const turns = () => new Promise((turn) => setImmediate(turn));
  for (const acme of [ACME, undefined, ACME, undefined, ACME]) {
    global.acme = acme;
    certificates.follow();
    await turns();
  }
  expect(events).toEqual(["start 1", "end 2"]);
  endFirst();
  await turns();
  expect(events).toEqual(["start 1", "end 2", "end 1", "start 3"]);
});

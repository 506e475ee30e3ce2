import { describe, expect, it } from "vitest";
import type { Config } from "../../lib/config/model.ts";
import { hostCertificates } from "../../lib/server/certificates.ts";
import { EXPIRED, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { SHOP, WILDCARD } from "../support/more_certs.ts";

type Entry = Config["global"]["certificates"][number];

const entry = ({ cert, key }: { cert: string; key: string }, ...hosts: string[]): Entry => ({
  hosts,
  cert: { path: `/tls/${hosts[0]}.crt`, content: Buffer.from(cert) },
  key: { path: `/tls/${hosts[0]}.key`, content: Buffer.from(key) },
});

function made(...entries: Entry[]) {
  const warned: [string, unknown][] = [];
  const log = {
    debug() {},
    info() {},
    error() {},
    warn: (message: string, fields?: unknown) => void warned.push([message, fields]),
  };
  const found = hostCertificates({ certificates: entries }, null, log, manualClock());
  const names: readonly (readonly [string, string])[] = [
    ["shop", SHOP.cert],
    ["wildcard", WILDCARD.cert],
    ["server", SERVER.cert],
  ];
  return {
    warned,
    find(host: string) {
      const pair = found.find(host);
      return !pair ? "default" : names.find(([, cert]) => pair.cert.equals(Buffer.from(cert)))?.[0];
    },
    pair: found.find,
  };
}

describe("hostCertificates", () => {
  const { find, pair } = made(
    entry(WILDCARD, "*.example.com"),
    entry(SHOP, "shop.example.com", "shop.example.org"),
    entry(SERVER, "*.deep.example.com"),
  );

  it.each([
    ["shop.example.com", "shop"],
    ["SHOP.Example.ORG", "shop"],
    ["other.example.com", "wildcard"],
    ["OTHER.example.com", "wildcard"],
    ["a.deep.example.com", "server"],
    ["deep.example.com", "wildcard"],
    ["example.com", "default"],
    ["a.b.example.com", "default"],
    [".example.com", "default"],
    ["*.example.com", "wildcard"],
    ["example.org", "default"],
    ["", "default"],
    ["__proto__", "default"],
  ])("finds the certificate for %s: %s", (host, which) => expect(find(host)).toBe(which));

  it("returns the same pair object for all hosts of an entry", () => {
    expect(pair("shop.example.com")).toBe(pair("shop.example.org"));
  });

  it("returns undefined for every host without entries", () => expect(made().find("shop.example.com")).toBe("default"));

  it("warns of a certificate that has expired, and uses it", () => {
    const { warned, pair: of } = made(entry(EXPIRED, "old.example"), entry(SHOP, "new.example"));
    expect(warned).toEqual([
      [
        "the certificate for old.example has expired",
        { file: "/tls/old.example.crt", date: "Jan  1 00:00:00 2021 GMT" },
      ],
    ]);
    expect(of("old.example")?.cert.toString()).toBe(EXPIRED.cert);
  });
});

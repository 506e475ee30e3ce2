import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { Socket } from "node:net";
import type { Dial } from "../../lib/base/egress.ts";
import { createGateway } from "../../lib/index.ts";
import type { Address, HostName } from "../../lib/upstream/contracts.ts";
import { connect } from "../../lib/upstream/connect.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { addressOf, madeUpNames } from "../support/addresses.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { madeUpTools } from "../support/exercise.ts";
import { loadConfig } from "../support/schema.ts";

describe("the look-up of a connection", () => {
  const ask = (name: HostName, first: Address, all: boolean) =>
    new Promise((resolve) =>
      name.connectOptions(first).lookup("any", { all }, (...answer: unknown[]) => resolve(answer)),
    );

  it(
    "the look-up of a connection returns every address that the name has by " + "then, the given address first",
    async () => {
      const { again, named } = madeUpNames(["192.0.2.1", "192.0.2.2", "::1"]);
      const name = await named("a.example");
      const second = name.addresses[1]!;
      expect(await ask(name, second, true)).toEqual([null, ["192.0.2.2", "::1", "192.0.2.1"].map(addressOf)]);
      expect(await ask(name, second, false)).toEqual([null, "192.0.2.2", 4]);
      await again(["192.0.2.1", "192.0.2.3"]);
      expect(await ask(name, second, true)).toEqual([null, ["192.0.2.1", "192.0.2.3"].map(addressOf)]);
    },
  );

  it("the look-up of a connection uses Node's look-up if the host is not a name", () => {
    const given: object[] = [];
    const dial: Dial = (options) => {
      given.push(options);
      return new Socket();
    };
    connect({ host: "a.example", port: 1, dial }, null, undefined);
    expect(given).toEqual([{}]);
  });
});

function files(): { readonly folder: string; path(name: string): string } {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const content = {
    "ca.pem": CA.cert,
    "client.pem": CLIENT.cert,
    "client.key": CLIENT.key,
    "other.key": SERVER.key,
    "text.pem": "no certificate",
  };
  for (const [name, text] of Object.entries(content)) writeFileSync(join(folder, name), text);
  return { folder, path: (name) => join(folder, name) };
}

const configWith = (service: object) => ({
  services: [
    { name: "s", base_path: "/a", upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ path: "/x" }], ...service },
  ],
});

function issues(service: object): string[] {
  const result = loadConfig({ value: configWith(service) }, { kinds: [], environment: {} });
  return result.ok ? [] : result.issues.map(({ at, message }) => `${at.join(".")}: ${message}`);
}

describe("service.tls", () => {
  it.each(["http", "h2c"])("causes an error with protocol %s", (protocol) => {
    expect(issues({ protocol, tls: {} })).toEqual([
      `services.0.tls: is for protocol "https" and "h2"; this service has "${protocol}"`,
    ]);
  });

  it.each(["https", "h2"])("passes validation with protocol %s", (protocol) => {
    const { path } = files();
    expect(
      issues({
        protocol,
        tls: { ca: path("ca.pem"), cert: path("client.pem"), key: path("client.key"), servername: "a.example" },
      }),
    ).toEqual([]);
  });

  it.each<[string, (path: (name: string) => string) => object, RegExp]>([
    [
      "a CA file without a certificate",
      (path) => ({ ca: path("text.pem") }),
      /^services\.0\.tls\.ca: .*text\.pem: is not a certificate/,
    ],
    ["a file that is not there", (path) => ({ ca: path("none.pem") }), /^services\.0\.tls\.ca: cannot read/],
    ["a certificate without a key", (path) => ({ cert: path("client.pem") }), /needs "key" beside "cert"/],
    ["a key without a certificate", (path) => ({ key: path("client.key") }), /needs "cert" beside "key"/],
    [
      "a key of another certificate",
      (path) => ({ cert: path("client.pem"), key: path("other.key") }),
      /^services\.0\.tls\.key: .*does not belong/,
    ],
    ["a server name with a scheme", () => ({ servername: "https://a" }), /^services\.0\.tls\.servername: .*no scheme/],
    ["a CA that verifies nothing", (path) => ({ ca: path("ca.pem"), verify: false }), /"ca" verifies nothing/],
  ])("refuses %s", (_title, tls, expected) => {
    const { path } = files();
    expect(issues({ protocol: "https", tls: tls(path) })).toEqual([expect.stringMatching(expected)]);
  });

  it("logs verify: false at the start and at each reload, with the service's name", async () => {
    const { lines, log } = madeUpTools();
    const config = configWith({ protocol: "https", tls: { verify: false } });
    const gateway = createGateway({ config: config as never, log });
    const warned = () =>
      lines.filter(
        ({ level, fields, message }) =>
          level === "warn" && fields?.["service"] === "s" && message.includes("not verified"),
      );
    expect(warned()).toHaveLength(1);
    await gateway.reload();
    expect(warned()).toHaveLength(2);
    await gateway.close(0);
  });
});

describe("the identity of TLS settings", () => {
  const file = (content: string, path = "/f") => ({ path, content: Buffer.from(content) });

  it("the identity of TLS settings depends on the contents of files, not on their names", () => {
    expect(new UpstreamTls({ ca: file("a", "/1"), verify: true }).identity).toBe(
      new UpstreamTls({ ca: file("a", "/2"), verify: true }).identity,
    );
  });

  it("the identity of TLS settings differs with each part", () => {
    const all = [
      { verify: true },
      { verify: false },
      { verify: true, ca: file("a") },
      { verify: true, ca: file("b") },
      { verify: true, cert: file("a") },
      { verify: true, key: file("a") },
      { verify: true, servername: "a" },
    ];
    expect(new Set(all.map((each) => new UpstreamTls(each).identity)).size).toBe(all.length);
  });
});

describe("the host name that TLS asks for", () => {
  it.each([
    ["a.example", undefined, "a.example"],
    ["a.example.", undefined, "a.example"],
    ["127.0.0.1", undefined, ""],
    ["::1", undefined, ""],
    ["127.0.0.1", "b.example", "b.example"],
    ["a.example", "127.0.0.1", ""],
  ])("the host name that TLS asks for with host %s and servername %s equals %j", (host, servername, expected) => {
    expect(new UpstreamTls({ servername }).options(host).servername).toBe(expected);
  });

  it("the host name that TLS asks for differs where all else is read once: hosts of a service share a context", () => {
    const settings = new UpstreamTls({ verify: false });
    expect(settings.options("a.example").secureContext).toBe(settings.options("b.example").secureContext);
  });

  it("the host name that TLS asks for does not depend on NODE_TLS_REJECT_UNAUTHORIZED", () => {
    expect(new UpstreamTls().options("a.example").rejectUnauthorized).toBe(true);
  });
});

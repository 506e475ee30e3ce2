import { describe, expect, it } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import { readSourceSettings } from "../../lib/config/source_settings.ts";
import { sourceUrl } from "../../lib/config/source_url.ts";
import { areOfStart } from "../../lib/config/start_settings.ts";

function issues(environment: Record<string, string>): readonly string[] {
  const read = readSettings({}, environment);
  return read.ok ? [] : read.issues;
}

describe("sourceUrl", () => {
  it.each([
    [
      "https://config.example.com/gw.json",
      { scheme: "https", servers: [{ host: "config.example.com", port: 443 }], path: "/gw.json", isLocal: false },
    ],
    [
      "HTTP://[::1]:8080/a?v=1",
      { scheme: "http", servers: [{ host: "::1", port: 8080 }], path: "/a?v=1", name: "http://[::1]:8080/a?…" },
    ],
    [
      "etcd://127.0.0.1,localhost:2380/edge/gw.json",
      {
        servers: [
          { host: "127.0.0.1", port: 2379 },
          { host: "localhost", port: 2380 },
        ],
        path: "edge/gw.json",
        isLocal: true,
      },
    ],
    [
      "etcds://[fd00::1]:2379,b.example:1//k%20%C3%BC",
      {
        scheme: "etcds",
        servers: [
          { host: "fd00::1", port: 2379 },
          { host: "b.example", port: 1 },
        ],
        path: "/k ü",
        isLocal: false,
      },
    ],
  ])("reads %s", (text, expected) => {
    expect(sourceUrl(text)).toMatchObject(expected);
  });

  it.each([
    ["ftp://host/gw.json", /^expected https:/],
    ["file:///etc/gw.json", /the path of a file$/],
    ["https://", /is not a URL/],
    ["https://host:99999/a", /is not a URL/],
    ["https://user:pass@host/gw.json", /CONFIG_TOKEN_FILE$/],
    ["https://host/gw.json#part", /fragment/],
    ["https://host/ü.json", /%XX/],
    ["etcd://root:secret@host:2379/key", /ETCD_PASSWORD_FILE$/],
    ["etcd://host:2379", /names no key/],
    ["etcd://host:2379/", /names no key/],
    ["etcd://host:2379/edge/gw.json.sig", /names a key that belongs to another one: its signature/],
    ["etcd://host:2379/edge/gw.json/gateways/a", /names a key that belongs to another one: .*an entry of a gateway/],
    ["etcd:///key", /HOST:PORT/],
    ["etcd://a:2379,/key", /HOST:PORT/],
    ["etcd://a:0/key", /HOST:PORT/],
    ["etcd://a:65536/key", /HOST:PORT/],
    ["etcd://::1:2379/key", /HOST:PORT/],
    ["etcd://a/key?x", /query/],
    ["etcd://a/k%zz", /%/],
  ])("refuses %s, and repeats neither user nor password", (text, expected) => {
    const problem = sourceUrl(text);
    expect(problem).toMatch(expected);
    expect(problem).not.toMatch(/pass@|secret/);
  });
});

describe("the settings of a configuration from a URL", () => {
  it("are values of the source, and the path is its name without the query", () => {
    const read = readSettings(
      { config: "https://c.example/gw.json?token=t0p", "config-poll-s": "3", "config-ca-path": "ca.pem" },
      { CONFIG_TOKEN_FILE: "token", CONFIG_CERT_PATH: "c.pem", CONFIG_KEY_PATH: "k.pem" },
    );
    expect(read).toMatchObject({
      ok: true,
      settings: {
        configPath: "https://c.example/gw.json?…",
        source: {
          url: { href: "https://c.example/gw.json?token=t0p" },
          pollMs: 3000,
          tokenPath: "token",
          caPath: "ca.pem",
          certPath: "c.pem",
          keyPath: "k.pem",
          user: null,
          isReadOnly: false,
        },
      },
    });
  });

  it("name user and password of etcd, and whether it is only read", () => {
    const read = readSettings(
      {},
      {
        CONFIG_FILE_PATH: "etcds://a/k",
        ETCD_USER: "edge",
        ETCD_PASSWORD_FILE: "pw",
        CONFIG_READ_ONLY: "true",
      },
    );
    expect(read).toMatchObject({
      ok: true,
      settings: { source: { user: { name: "edge", passwordPath: "pw" }, isReadOnly: true, pollMs: 10_000 } },
    });
  });

  it.each<[Record<string, string>, RegExp]>([
    [{ CONFIG_FILE_PATH: "s3://bucket/gw.json" }, /^CONFIG_FILE_PATH \(--config\): the URL expected https:/],
    [{ CONFIG_FILE_PATH: "https://u:p@host/gw.json" }, /the URL has a user or a password/],
    [{ CONFIG_FILE_PATH: "http://config.example/gw.json" }, /use https:\/\/, or sign it, and set CONFIG_PUBLIC_KEY$/],
    [{ CONFIG_FILE_PATH: "etcd://127.0.0.1,10.0.0.1/key" }, /use etcds:\/\/, or sign it, and set CONFIG_PUBLIC_KEY$/],
    [{ CONFIG_TOKEN_FILE: "t" }, /^CONFIG_TOKEN_FILE needs .* https:\/\/ or http:\/\/$/],
    [{ CONFIG_FILE_PATH: "etcds://a/k", CONFIG_TOKEN_FILE: "t" }, /^CONFIG_TOKEN_FILE needs/],
    [{ CONFIG_FILE_PATH: "http://localhost/k", CONFIG_CA_PATH: "ca.pem" }, /^CONFIG_CA_PATH needs/],
    [
      { CONFIG_FILE_PATH: "http://localhost/k", CONFIG_CERT_PATH: "c", CONFIG_KEY_PATH: "k" },
      /^CONFIG_CERT_PATH needs a CONFIG_FILE_PATH/,
    ],
    [{ CONFIG_FILE_PATH: "https://a/k", CONFIG_CERT_PATH: "c" }, /^CONFIG_CERT_PATH needs CONFIG_KEY_PATH$/],
    [{ CONFIG_FILE_PATH: "https://a/k", CONFIG_KEY_PATH: "c" }, /^CONFIG_KEY_PATH needs CONFIG_CERT_PATH$/],
    [{ CONFIG_FILE_PATH: "https://a/k", ETCD_USER: "u", ETCD_PASSWORD_FILE: "p" }, /^ETCD_USER needs a CONFIG/],
    [{ CONFIG_FILE_PATH: "etcds://a/k", ETCD_USER: "u" }, /^ETCD_USER needs ETCD_PASSWORD_FILE$/],
    [{ CONFIG_FILE_PATH: "etcds://a/k", ETCD_PASSWORD_FILE: "p" }, /^ETCD_PASSWORD_FILE needs ETCD_USER$/],
    [{ CONFIG_READ_ONLY: "true" }, /^CONFIG_READ_ONLY needs/],
    [{ CONFIG_POLL_S: "0" }, /^CONFIG_POLL_S: expected an integer 1–86400/],
  ])("%j are refused with one sentence", (environment, expected) => {
    expect(issues(environment)).toEqual([expect.stringMatching(expected)]);
  });

  it.each<Record<string, string>>([
    { CONFIG_FILE_PATH: "http://127.0.0.1:8000/gw.json" },
    { CONFIG_FILE_PATH: "etcd://localhost,[::1]/key" },
    { CONFIG_FILE_PATH: "http://config.example/gw.json", CONFIG_PUBLIC_KEY: "key.pem" },
    { CONFIG_FILE_PATH: "https://config.example/gw.json" },
  ])("%j can be used", (environment) => {
    expect(issues(environment)).toEqual([]);
  });

  it("are no settings of a plain start", () => {
    expect(areOfStart({ config: "https://a/gw.json" })).toBe(false);
    expect(areOfStart({}, { CONFIG_FILE_PATH: "etcd://localhost/k" })).toBe(false);
    expect(areOfStart({}, { CONFIG_POLL_S: "3" })).toBe(false);
    expect(areOfStart({}, { ETCD_USER: "u" })).toBe(false);
    expect(areOfStart({ config: "a/b:c.json" }, { CONFIG_PUBLIC_KEY: "k" })).toBe(true);
  });

  it("of a command are those of what it names; a file has none", () => {
    expect(readSourceSettings("gw.json", {}, { CONFIG_FILE_PATH: "https://a/k", ETCD_USER: "u" })).toEqual({
      ok: true,
      settings: null,
    });
    expect(readSourceSettings("https://a/k", { "config-poll-s": "2" }, {})).toMatchObject({
      ok: true,
      settings: { pollMs: 2000 },
    });
    expect(readSourceSettings("http://a/k", {}, {})).toMatchObject({ ok: false });
  });
});

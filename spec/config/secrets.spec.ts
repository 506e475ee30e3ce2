/** No message repeats a secret, and a masked display shows none, whatever kind it is configured for. */
import { describe, expect, it } from "vitest";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { loadConfig } from "../support/schema.ts";

const SECRET = "hunter2-plain-key";
const HASH = "5e".repeat(32);

const load = (text: string) =>
  loadConfig(
    { text, file: "/etc/gw.json" },
    { kinds: builtinPlugins, environment: { SECRET, PEM: `-----BEGIN PRIVATE KEY-----\n${SECRET}` } },
  );

const withPlugin = (name: string, config: unknown) =>
  JSON.stringify({ global: { plugins: [{ name, config }] }, services: [] });

/** Everything that is said of a configuration that is refused. */
function said(text: string): string {
  const result = load(text);
  if (result.ok) throw new Error(`this was to be refused: ${text}`);
  return result.issues.map(({ message }) => message).join("\n");
}

describe("a message about a configuration", () => {
  it.each<[string, string, unknown, RegExp]>([
    [
      "a key in the place of its digest",
      "key_auth",
      { keys: [{ id: "a", key_sha256: SECRET }] },
      /expected 64 hex digits, found a string/,
    ],
    ["a key that is a number", "key_auth", { key: 20_261_122 }, /expected a non-empty string, found a number$/],
    ["a list of keys without their objects", "key_auth", { keys: [SECRET] }, /expected an object, found a string/],
    ["a key in the place of a list", "key_auth", { keys: SECRET }, /expected an array, found a string/],
    ["a key in the place of the settings", "key_auth", SECRET, /expected an object, found a string/],
    ["an empty list beside a key", "key_auth", { key: SECRET, keys: [] }, /at least 1 item/],
    ["the same key twice", "key_auth", { key: SECRET, keys: [{ id: "a", key: SECRET }] }, /is the same key as key/],
    ["users without their objects", "basic_auth", { users: [`ada:${SECRET}`] }, /expected an object, found a string/],
    [
      "a password with a control character",
      "basic_auth",
      { username: "a", password: `${SECRET}\n` },
      /cannot contain control characters/,
    ],
    ["a password in a list", "basic_auth", { username: "a", password: [SECRET] }, /found an array/],
    ["a password that is a broken hash", "basic_auth", { username: "a", password: `scrypt$${SECRET}` }, /six fields/],
    ["a secret in a list", "jwt", { alg: "HS256", secret: [SECRET] }, /found an array/],
    [
      "a key pair's key as the secret",
      "jwt",
      { alg: "HS256", secret: `-----BEGIN PRIVATE KEY-----${SECRET}` },
      /is a key pair's key/,
    ],
    ["a secret for a public key", "jwt", { alg: "RS256", public_key: SECRET }, /public_key|PEM|key/],
    [
      "a private key in the place of a file's name",
      "jwt",
      { alg: "RS256", jwks_file: `-----BEGIN PRIVATE KEY-----\n${SECRET}` },
      /found the content of a file: save it to a file/,
    ],
    [
      "a set of keys in the place of a file's name",
      "jwt",
      { alg: "RS256", jwks_file: `{"keys":[{"k":"${SECRET}"}]}` },
      /found the content of a file/,
    ],
    [
      "a private key that a reference stands for",
      "jwt",
      { alg: "RS256", jwks_file: "${env:PEM}" },
      /found the content of a file/,
    ],
    [
      "a reference in the place of a file's name",
      "jwt",
      { alg: "RS256", jwks_file: "${env:SECRET}" },
      /cannot read \$\{env:SECRET\}: no such file/,
    ],
    [
      "a header that HTTP cannot carry",
      "http_log",
      { http_endpoint: "http://h/", headers: { Authorization: `Bearer ${SECRET}\n` } },
      /found a string/,
    ],
    [
      "a header in a list",
      "http_log",
      { http_endpoint: "http://h/", headers: { Authorization: [`Bearer ${SECRET}`] } },
      /found an array/,
    ],
    [
      "headers that are a text",
      "http_log",
      { http_endpoint: "http://h/", headers: `Authorization: Bearer ${SECRET}` },
      /expected an object, found a string/,
    ],
    ["a URL with a slip", "http_log", { http_endpoint: `htps://h/${SECRET}` }, /found a string/],
    ["a URL without a scheme", "forward_auth", { url: `ada:${SECRET}@h` }, /found a string/],
    [
      "a secret of a client in a list",
      "introspection",
      { url: "http://h/", client_id: "a", client_secret: [SECRET] },
      /found an array/,
    ],
    [
      "a private key in the place of a file's name",
      "introspection",
      { url: "http://h/", client_id: "a", client_key: `-----BEGIN PRIVATE KEY-----\n${SECRET}` },
      /found the content of a file/,
    ],
    ["a URL with a password", "jwt", { alg: "RS256", jwks_uri: `https://ada:${SECRET}@h` }, /leave them out/],
    [
      "a header for upstreams with a line break",
      "request_headers",
      { set: { Authorization: `Bearer ${SECRET}\n` } },
      /control character or line break/,
    ],
    ["a header for upstreams that is a number", "request_headers", { set: { "X-Key": 20_261_122 } }, /found a number/],
    [
      "a header for upstreams with half a placeholder",
      "request_headers",
      { add: { "X-Key": ["${" + SECRET] } },
      /lacks its closing brace/,
    ],
    ["a reference without its end", "key_auth", { key: "${env:A " + SECRET }, /\$\{env:… lacks its closing brace/],
  ])("does not repeat it: %s", (_what, name, config, message) => {
    const text = said(withPlugin(name, config));
    expect(text).toMatch(message);
    expect(text).not.toMatch(/hunter2|20261122/);
  });

  it.each([
    `{"services": [], "global": {"plugins": [{"name": "key_auth", "config": {"key": ${SECRET}}}]}}`,
    `{"key": "a${SECRET}"${SECRET}"}`,
    `{"key": "pass"${SECRET}"}`,
    `{"key": "a" "${SECRET}"}`,
    `{"key" ${SECRET}}`,
    `{"key": 020261122}`,
    `["${SECRET}`,
  ])("does not repeat it where the text is no JSON: %s", (text) => {
    expect(said(text)).not.toMatch(/hunter2|20261122/);
  });

  it("does not repeat a private key given in place of its file's name", () => {
    const inline = `-----BEGIN PRIVATE KEY-----\n${SECRET}\n`;
    const text = said(
      JSON.stringify({ global: { certificates: [{ hosts: ["a.example"], cert: inline, key: inline }] }, services: [] }),
    );
    expect(text.match(/found the content of a file/g)).toHaveLength(2);
    expect(text).not.toContain(SECRET);
  });
});

describe("a masked configuration", () => {
  const shownAs = (name: string, config: unknown) => {
    const result = load(withPlugin(name, config));
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    const configOf = (shown: unknown) =>
      (shown as { global: { plugins: { config: unknown }[] } }).global.plugins[0]!.config;
    return [configOf(maskedConfig(result)), configOf(result.shown)] as const;
  };

  it.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    [
      "key_auth",
      {
        key: SECRET,
        keys: [
          { id: "a", key_sha256: HASH },
          { id: "b", key: SECRET + "2" },
        ],
      },
      {
        key: "********",
        keys: [
          { id: "a", key_sha256: "********" },
          { id: "b", key: "********" },
        ],
      },
    ],
    ["key_auth", { key: "${env:SECRET}" }, { key: "${env:SECRET}" }],
    ["key_auth", { key: "${env:SECRET}-2" }, { key: "${env:SECRET}********" }],
    [
      "basic_auth",
      { username: "a", password: SECRET, users: [{ username: "b", password: SECRET }] },
      { username: "a", password: "********", users: [{ username: "b", password: "********" }] },
    ],
    ["jwt", { alg: "HS256", secret: SECRET.repeat(3) }, { secret: "********" }],
    ["jwt", { alg: "RS256", jwks_uri: "https://h/keys?code=1" }, { jwks_uri: "https://h/keys?********" }],
    [
      "jwt",
      { alg: "RS256", jwks_uri: "https://h/.well-known/jwks.json" },
      { jwks_uri: "https://h/.well-known/jwks.json" },
    ],
    [
      "http_log",
      { http_endpoint: "https://h:8/services/T0/x", headers: { "X-Key": SECRET, A: "Bearer ${env:SECRET}" } },
      { http_endpoint: "https://h:8/********", headers: { "X-Key": "********", A: "********${env:SECRET}" } },
    ],
    [
      "oidc",
      { issuer: "http://h/", client_id: "a", client_secret: SECRET, session: { secret: SECRET.repeat(8) } },
      { client_secret: "********", session: { secret: "********" } },
    ],
    [
      "introspection",
      { url: "http://h/i?k=1", client_id: "a", client_secret: SECRET },
      { url: "http://h/i?********", client_id: "a", client_secret: "********" },
    ],
    ["forward_auth", { url: "http://h/check?k=1#x" }, { url: "http://h/check?********" }],
    [
      "request_headers",
      { set: { "X-Key": SECRET, "X-User": "${claim.sub}" }, add: { "X-A": [SECRET, "${env:SECRET}"] } },
      { set: { "X-Key": "********", "X-User": "${claim.sub}" }, add: { "X-A": ["********", "${env:SECRET}"] } },
    ],
    ["response_headers", { set: { "X-Env": "prod" } }, { set: { "X-Env": "prod" } }],
    [
      "fault",
      {
        status: 503,
        match: {
          headers: { Authorization: `Bearer ${SECRET}`, "X-Version": "2" },
          query: { apiKey: SECRET, monkey: "1" },
          cookies: { session_id: SECRET, b: { matches: "^1" } },
        },
      },
      {
        match: {
          headers: { Authorization: "********", "X-Version": "2" },
          query: { apiKey: "********", monkey: "1" },
          cookies: { session_id: "********", b: { matches: "^1" } },
        },
      },
    ],
  ])("shows nothing of the secrets of %s but references: %j", (name, config, expected) => {
    const [masked, shown] = shownAs(name, config);
    expect(masked).toMatchObject(expected);
    expect(shown).toMatchObject(config);
    expect(JSON.stringify(masked)).not.toMatch(/hunter2|5e5e/);
  });

  it("the masked configuration is the shown configuration itself if that contains no secret", () => {
    const result = load('{"services": []}');
    expect(result.ok && maskedConfig(result)).toBe(result.ok && result.shown);
  });
});

import { describe, expect, it } from "vitest";
import { isSecret, MASK, settingLines, summaryOf } from "../../../lib/manager/assets/secrets.ts";

/** The names of the lines that are hidden. */
const hidden = (settings: unknown) => settingLines(settings).flatMap(({ name, secret }) => (secret ? [name] : []));

describe("the recognition of secret settings", () => {
  it.each([
    "key",
    "api_key",
    "apiKey",
    "keys",
    "password",
    "client_secret",
    "token",
    "authorization",
    "Authorization",
    "X-Api-Key",
    "Set-Cookie",
    "key_sha256",
    "private_key",
    "X-Secret-Path",
  ])("the recognition of secret settings hides the value of %s", (name) => expect(isSecret(name, "s3cret")).toBe(true));

  it.each(["limit_by", "path", "public_key", "hide_credentials", "key_header", "token_url", "key_id", "keyboard", "monkey", "jwks_uri", "hash_on", "token_from", "client_key_id", "Accept"])(
    "the recognition of secret settings shows the value of %s",
    (name) => {
      // A credential of that setting is no text: "hide_credentials" is yes or no.
      const value = name === "hide_credentials" ? true : "text";
      expect(hidden({ [name]: value })).toEqual([]);
    },
  );

  it("the recognition of secret settings shows a reference, which only says where a secret is kept, and hides a text that merely contains one", () => {
    expect(hidden({ key: "${env:SHOP_KEY}", token: "${file:/run/secrets/token}", password: "abc${env:REST}" })).toEqual(["password"]);
  });

  it("the recognition of secret settings hides an address with a password in it, whatever its name", () => {
    expect(hidden({ url: "https://ann:pw@logs.example.com/in", other: "https://logs.example.com/a:b@c" })).toEqual(["url"]);
  });

  it("the recognition of secret settings judges the members of a list of objects by their own names", () => {
    expect(
      hidden({
        keys: [
          { id: "web", key: "a" },
          { id: "app", key_sha256: "b" },
        ],
      }),
    ).toEqual(["keys[0].key", "keys[1].key_sha256"]);
  });

  it("the recognition of secret settings hides every text in a list or an object that bears the name of a secret", () => {
    expect(hidden({ keys: ["a", "b"], passwords: { ann: "x", bob: "${env:BOB}" }, tokens: ["${env:A}"] })).toEqual(["keys", "passwords.ann"]);
  });
});

describe("lines of settings", () => {
  it("lines of settings have the order of the configuration, and the path of each value as name", () => {
    expect(
      settingLines({ limit_second: 5, set: { "X-Team": "shop" }, on: ["reset", 503], off: false, none: null, list: [], empty: {} }).map(
        ({ name, value }) => `${name}=${value}`,
      ),
    ).toEqual(["limit_second=5", "set.X-Team=shop", "on=reset, 503", "off=no", "none=none", "list=none", "empty=none"]);
  });

  it.each([{}, null, undefined, []])("lines of settings show no value for %j", (settings) =>
    expect(settingLines(settings).every(({ value }) => value === "none")).toBe(true),
  );

  it("lines of settings show the first few settings in the one-line form, shortened and without secrets", () => {
    expect(summaryOf({ key: "s3cret", path: "x".repeat(100), a: 1, b: 2 })).toBe(`key ${MASK} · path ${"x".repeat(31)}… · a 1 · …`);
    expect(summaryOf({})).toBe("");
  });
});

import { describe, expect, it } from "vitest";
import { CREDENTIAL_HEADERS, hasSecretField, isSecretName } from "../../lib/base/secret_names.ts";

describe("isSecretName", () => {
  it.each([
    ...CREDENTIAL_HEADERS,
    ...["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "apiKey", "api_key", "key", "x-auth"],
    ...["access_token", "accessToken", "id_token", "refresh_token", "auth_token", "token", "jwt", "authorization"],
    ...["client_secret", "clientSecret", "secret", "password", "passwd", "pwd", "pass", "sig", "signature", "sid"],
    ...["x-amz-signature", "X-Amz-Credential", "x-goog-signature", "jsessionid", "PHPSESSID", "session", "sessionid"],
    ...["x-auth-user-token", "user.password", "credentials", "api-keys", "privateKey"],
  ])("counts %s as the name of a credential", (name) => {
    expect(isSecretName(name)).toBe(true);
  });

  it.each([
    ...["monkey", "author", "X-Author", "passenger", "bypass", "tokenizer", "keyboard", "signal", "insider", ""],
    ...["X-Auth-Request-User", "X-Auth-User", "X-Auth-Email", "X-Auth-Groups", "Idempotency-Key", "Sec-WebSocket-Key"],
    ...["secretary", "sessions_total", "accept", "matches", "expect", "upstream_headers"],
  ])("does not count %s", (name) => {
    expect(isSecretName(name)).toBe(false);
  });
});

describe("hasSecretField", () => {
  it.each(['{"a":{"accessToken": "x"}}', "user=a&password=b", "<apiKey>k</apiKey>", "secret: x", "'token' : 1"])(
    "finds one in %s",
    (text) => {
      expect(hasSecretField(text)).toBe(true);
    },
  );

  it.each(["No API key was sent.", "monkey=1", "the-token", '{"a":"token"}'])("finds none in %s", (text) => {
    expect(hasSecretField(text)).toBe(false);
  });
});

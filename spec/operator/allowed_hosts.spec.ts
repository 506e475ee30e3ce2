import { describe, expect, it } from "vitest";
import { allowedHosts } from "../../lib/operator/allowed_hosts.ts";

describe("the allowed hosts over plain HTTP", () => {
  const isKnown = allowedHosts(["gateway.lan", "Admin.Example.", "10.0.0.1"]);

  it.each([
    ["127.0.0.1", true],
    ["192.0.2.7:8081", true],
    ["[::1]:8081", true],
    ["[2001:db8::7]", true],
    ["localhost", true],
    ["LOCALHOST:5173", true],
    ["localhost.", true],
    ["gateway.lan:8081", true],
    ["GATEWAY.lan.", true],
    ["admin.example", true],
    ["", true],
    ["evil.example", false],
    ["ui.localhost", false],
    ["localhost.evil.example", false],
    ["evil-localhost", false],
    ["127.0.0.1.evil.example", false],
    ["127.1", false],
    ["2130706433", false],
    ["gateway.lan.evil.example:8081", false],
    ["sub.gateway.lan", false],
    ["user@127.0.0.1", false],
    ["[::1", false],
    ["127.0.0.1:80:80", false],
    ["localhost evil", false],
  ])("the allowed hosts over plain HTTP include %s: %s", (authority, known) => {
    expect(isKnown(authority)).toBe(known);
  });
});

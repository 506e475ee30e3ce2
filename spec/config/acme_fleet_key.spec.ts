import { describe, expect, it } from "vitest";
import { readFleetKey } from "../../lib/config/acme_fleet_key.ts";

const BYTES = Buffer.from("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "hex");

function read(text: string) {
  const issues: string[] = [];
  const named = { acmeFleetKeyPath: "/key", configPath: "etcd://127.0.0.1/gw" };
  return { key: readFleetKey(named, { readFile: () => text }, issues), issues };
}

describe("the key of a fleet", () => {
  it.each([
    ["hex", BYTES.toString("hex")],
    ["hex in upper case", BYTES.toString("hex").toUpperCase()],
    ["base64", BYTES.toString("base64")],
    ["base64url", BYTES.toString("base64url")],
  ])("is read from %s", (_form, text) => {
    expect(read(text).key).toEqual(BYTES);
  });

  it.each([
    ["nothing", ""],
    ["31 bytes", BYTES.subarray(1).toString("hex")],
    ["33 bytes", Buffer.concat([BYTES, BYTES.subarray(1, 2)]).toString("base64url")],
    ["a sentence of 43 characters", "correct horse battery staple and some more!"],
    ["zeros", "0".repeat(64)],
    ["a repeated byte", Buffer.alloc(32, "changeme").toString("base64")],
    ["two lines", `${BYTES.toString("hex")}\n\n`],
  ])("is not read from %s", (_form, text) => {
    expect(read(text).key).toBeNull();
    expect(read(text).issues).toEqual([expect.stringMatching(/\/key (is empty|does not contain 32 random bytes)/)]);
  });
});

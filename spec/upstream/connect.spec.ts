import { describe, expect, it } from "vitest";
import type { Address, Name } from "../../lib/upstream/addresses.ts";
import { connectFailure, lookupOptions } from "../../lib/upstream/connect.ts";
import { addressOf, madeUpNames } from "../support/addresses.ts";

describe("the look-up of a connection", () => {
  const ask = (name: Name, first: Address, all: boolean) =>
    new Promise((resolve) => lookupOptions(name, first).lookup!("any", { all }, (...answer: unknown[]) => resolve(answer)));

  it("answers with every address that the name has by then, the given one first", async () => {
    const { again, named } = madeUpNames(["192.0.2.1", "192.0.2.2", "::1"]);
    const name = await named("a.example");
    const second = name.addresses[1]!;
    expect(await ask(name, second, true)).toEqual([null, ["192.0.2.2", "::1", "192.0.2.1"].map(addressOf)]);
    expect(await ask(name, second, false)).toEqual([null, "192.0.2.2", 4]);
    await again(["192.0.2.1", "192.0.2.3"]);
    expect(await ask(name, second, true)).toEqual([null, ["192.0.2.1", "192.0.2.3"].map(addressOf)]);
  });

  it("is left to Node if the host is no name", () => {
    expect(lookupOptions(undefined, undefined)).toEqual({});
  });
});

it("names the failure of each address that was tried", () => {
  const errors = [new Error("connect ECONNREFUSED 127.0.0.1:80"), new Error("connect ETIMEDOUT ::1:80")];
  expect(connectFailure(new AggregateError(errors))).toBe("connect ECONNREFUSED 127.0.0.1:80, connect ETIMEDOUT ::1:80");
  expect(connectFailure(errors[0]!)).toBe("connect ECONNREFUSED 127.0.0.1:80");
});

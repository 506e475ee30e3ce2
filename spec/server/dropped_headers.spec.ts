import { expect, it } from "vitest";
import { isDropped } from "../../lib/server/dropped_headers.ts";
import { CERTIFICATE_NAMES } from "./framing.cases.ts";

it.each(CERTIFICATE_NAMES)("drops %s as a forged header about the client's certificate, also where underscores are allowed: %j", (name, poses) => {
  expect(isDropped(name, "allow")).toBe(poses);
});

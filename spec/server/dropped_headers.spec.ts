import { expect, test } from "vitest";
import { isDropped } from "../../lib/server/dropped_headers.ts";
import { CERTIFICATE_NAMES } from "./framing.cases.ts";

test.each(CERTIFICATE_NAMES)("%s poses as the gateway's word on a client's certificate, also where underscores are allowed: %j", (name, poses) => {
  expect(isDropped(name, "allow")).toBe(poses);
});

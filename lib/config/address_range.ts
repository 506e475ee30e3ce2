/**
 * The schema of IP addresses and ranges of them, as in `global.trusted_proxies`.
 */
import { parseCidr } from "../base/cidr.ts";
import * as s from "./schema.ts";

export const ADDRESS_RANGE = s.string({
  references: "address",
  hint: "an IP address or a range such as 10.0.0.0/8",
  check(text) {
    if (text.includes("%")) return "leave the zone out";
    const block = parseCidr(text);
    return typeof block === "string" ? block : undefined;
  },
});

/**
 * The plugin kind `acl`: lets a request pass by the address it comes from, else answers 403 `forbidden` (RFC 9110 §15.5.4).
 * Which address that is behind trusted proxies has been found out by `server/receive.ts`.
 *
 * An IPv4 address that comes as IPv4-mapped IPv6 (RFC 4291 §2.5.5.2) is the IPv4 address. A client whose address is not known (on a
 * socket that has none) is on no whitelist, and might be on any blacklist: both refuse it.
 */
import { cidrSet } from "../base/cidr.ts";
import { ADDRESS_RANGE } from "../config/fields.ts";
import { array, object, optional } from "../config/schema.ts";
import { problem } from "../http/reply.ts";
import { definePlugin } from "./plugin.ts";

const schema = object(
  {
    whitelist: optional(array(ADDRESS_RANGE, { min: 1, describe: "Addresses and ranges that may pass; all others may not." })),
    blacklist: optional(array(ADDRESS_RANGE, { min: 1, describe: "Addresses and ranges that may not pass; all others may." })),
  },
  {
    describe: "Lets requests pass by the client's address.",
    refine({ whitelist, blacklist }, report) {
      if ((whitelist === undefined) === (blacklist === undefined)) report('needs either "whitelist" or "blacklist"');
    },
  },
);

export const acl = definePlugin({
  name: "acl",
  schema,
  guards: true,
  create({ whitelist, blacklist }) {
    const listed = cidrSet(whitelist ?? blacklist ?? []);
    const passes = whitelist !== undefined;
    return (next) => (exchange) => {
      const { clientAddress } = exchange;
      if (clientAddress !== "" && listed.has(clientAddress) === passes) return next(exchange);
      return problem(exchange.call, "forbidden", REFUSED);
    };
  },
});

const REFUSED = { detail: "Requests from this address are not taken here." };

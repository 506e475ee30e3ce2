/**
 * The plugin kind `acl`: admits requests by the client's address; refused requests get 403 `forbidden` (RFC 9110
 * §15.5.4).
 *
 * An IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2) is the IPv4 address. A client whose address is unknown (on a socket
 * that has none) is refused by both kinds of list.
 */
import { cidrSet } from "../base/cidr.ts";
import { ADDRESS_RANGE } from "../config/address_range.ts";
import { array, object, optional } from "../config/schema.ts";
import { problem } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const schema = object(
  {
    whitelist: optional(
      array(ADDRESS_RANGE, { min: 1, describe: "Accepted addresses and ranges; all others are refused." }),
    ),
    blacklist: optional(
      array(ADDRESS_RANGE, { min: 1, describe: "Refused addresses and ranges; all others are accepted." }),
    ),
  },
  {
    describe: "Accepts or refuses requests by the client's address.",
    refine({ whitelist, blacklist }, report) {
      if ((whitelist === undefined) === (blacklist === undefined)) report('needs either "whitelist" or "blacklist"');
    },
  },
);

export const acl: Plugin<typeof schema> = {
  name: "acl",
  schema,
  guards: true,
  create({ whitelist, blacklist }) {
    const listed = cidrSet(whitelist ?? blacklist ?? []);
    const passes = whitelist !== undefined;
    const why = passes ? "acl: not in the whitelist" : "acl: in the blacklist";
    const rule = passes ? "whitelist" : "blacklist";
    const refused = { detail: "Requests from this address are not accepted here.", why, rule };
    return (next) => (exchange) => {
      const { clientAddress } = exchange;
      return clientAddress !== "" && listed.has(clientAddress) === passes
        ? next(exchange)
        : problem(exchange.call, "forbidden", refused);
    };
  },
};

import { describe, expect, it } from "vitest";
import { acl } from "../../lib/plugins/acl.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply, problemOf } from "../support/exercise.ts";

function ask(config: object, clientAddress: string) {
  const { returned, forwarded } = exercise(instance(acl, config), madeUpExchange({ clientAddress }));
  const reply = atOnce(returned);
  return { status: reply.status, code: reply.status === 200 ? null : problemOf(reply)["code"], forwarded };
}

const listed = ["192.0.2.0/24", "10.1.2.3", "2001:db8::/32", "::ffff:198.51.100.7"];

it.each(["192.0.2.1", "::ffff:192.0.2.255", "10.1.2.3", "2001:db8:1::1", "2001:DB8::", "198.51.100.7"])(
  "a whitelist admits the listed address %s, and a blacklist refuses it",
  (address) => {
    expect(ask({ whitelist: listed }, address).status).toBe(200);
    expect(ask({ blacklist: listed }, address)).toMatchObject({ status: 403, code: "forbidden", forwarded: null });
  },
);

it.each(["192.0.3.1", "10.1.2.4", "2001:db9::1", "::1", "127.0.0.1", "::ffff:192.0.3.1", "0.0.0.0"])(
  "a whitelist refuses the unlisted address %s, and a blacklist admits it",
  (address) => {
    expect(ask({ whitelist: listed }, address)).toMatchObject({ status: 403, code: "forbidden", forwarded: null });
    expect(ask({ blacklist: listed }, address).status).toBe(200);
  },
);

it("a client whose address is unknown is refused by both lists", () => {
  for (const config of [{ whitelist: ["0.0.0.0/0", "::/0"] }, { blacklist: ["192.0.2.1"] }])
    expect(ask(config, "").status).toBe(403);
});

it("the client's address counts, not the address of the connection", () => {
  const call = madeUpExchange().call; // its remote address is 192.0.2.1
  const { returned } = exercise(
    instance(acl, { blacklist: ["192.0.2.1"] }),
    madeUpExchange({ call, clientAddress: "203.0.113.9" }),
  );
  expect(atOnce(returned).status).toBe(200);
});

it("passes on the same exchange, and returns the same reply or promise", () => {
  const exchange = madeUpExchange();
  const promise = Promise.resolve(plainReply);
  expect(exercise(instance(acl, { whitelist: ["192.0.2.1"] }), exchange)).toEqual({
    returned: plainReply,
    forwarded: exchange,
  });
  expect(exercise(instance(acl, { whitelist: ["192.0.2.1"] }), exchange, () => promise).returned).toBe(promise);
});

describe("configuration", () => {
  it.each<[object, string]>([
    [{}, ': needs either "whitelist" or "blacklist"'],
    [{ whitelist: ["::1"], blacklist: ["::2"] }, ': needs either "whitelist" or "blacklist"'],
    [{ whitelist: [] }, "whitelist: expected at least 1 item, found none"],
    [
      { whitelist: ["10.0.0.0/33"] },
      'whitelist[0]: expected an IP address or a range such as 10.0.0.0/8, found "10.0.0.0/33"',
    ],
    [
      { blacklist: ["localhost"] },
      'blacklist[0]: expected an IP address or a range such as 10.0.0.0/8, found "localhost"',
    ],
    [{ allow: ["::1"] }, "allow: is not a known field (known here: whitelist, blacklist)"],
  ])("acl reports %j as a configuration error", (config, issue) => {
    expect(checked(acl.schema, config).issues).toEqual([expect.stringContaining(issue)]);
  });
});

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import type { Reply } from "../../lib/http/reply.ts";
import { composeChain, type Link } from "../../lib/plugins/chain.ts";
import { madeUpExchange } from "../support/exercise.ts";

const scope = { level: "global", key: "k", id: null, service: null, route: null } as const;
const looks: Link = { name: "looks", scope, middleware: (next) => (exchange) => next(exchange) };
const awaits: Link = { name: "awaits", scope, middleware: (next) => async (exchange) => (await Promise.resolve(), await next(exchange)) };

test.each([
  ["only look", [looks, looks]],
  ["await something first", [awaits, looks]],
  ["await something later", [looks, awaits, looks, awaits]],
])("a route whose plugins %s holds nothing of its last reply once that is out", async (_what, links) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const replies: WeakRef<Reply>[] = [];
  const handler = composeChain(links, () => {
    const reply: Reply = { status: 200, headers: [], body: Buffer.alloc(10) };
    replies.push(new WeakRef(reply));
    return reply;
  }, () => {});
  // In a function of its own: what a frame has held is held until it returns.
  const once = async () => void (await handler(madeUpExchange()));
  for (let i = 0; i < 5; i++) await once();
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  expect(replies.map((each) => each.deref())).toEqual(Array(5).fill(undefined));
  expect(handler).toBeTypeOf("function");
});

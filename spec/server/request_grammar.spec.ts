/**
 * Both codecs for HTTP/1 clients have one grammar: what `request_parser.cases.ts` says of our own parser is what a
 * client meets on its connection, also where Node's parser has read the request before our checks.
 */
import { describe, expect, it, onTestFinished } from "vitest";
import { ERRORS, type ErrorCode } from "../../lib/base/errors.ts";
import { problem, type Reply } from "../../lib/http/reply.ts";
import type { Inbound } from "../../lib/server/inbound.ts";
import { Listener } from "../../lib/server/listener.ts";
import { client, statusesIn } from "../journeys/harness.ts";
import { manualClock } from "../support/clock.ts";
import { defaultLimits } from "../support/limits.ts";
import { features } from "../support/listener_features.ts";
import { CASES, type Case } from "./request_parser.cases.ts";

/**
 * What Node's parser reads as if it were something else, before anything of ours sees it; and where it meets another
 * fault first.
 */
const HIDDEN_BY_NODE = new Set([
  ...["two spaces behind the method", "two spaces before the version"],
  ...["two empty lines", "an empty line of LF alone", "an empty line of CR alone"],
  ...["a tab behind Connection", "a tab behind Upgrade"],
  ...["a size of 14 digits", "an extension without a value", "a line of more", "a line without end"],
  ...["more than 8 KiB in all", "trailers of more than 16 KiB", "a trailer of more than 16 KiB that has no end yet"],
  ...["a name without end", "a target beyond the bound that has not ended"],
]);

/** Node itself ends the connection where it has not sent a 100. */
HIDDEN_BY_NODE.add("Expect: 100-continue");

/** Of these, a client that has said all sees the end. */
const DECIDED = CASES.filter(({ end }) => end === "idle" || end === "last" || end.startsWith("refused"));

/** Reads the whole body, and answers with 200, or with why the request is refused. */
async function serve({ call, body, refusal }: Inbound): Promise<Reply> {
  if (refusal !== null) return problem(call, refusal.code, { detail: refusal.detail });
  for await (const _chunk of body ?? []);
  return { status: 200, headers: [], body: Buffer.from("ok") };
}

/** The statuses that a client gets which sends these bytes and one more request. */
async function statuses(http1: "wire" | "node", { bytes, limits }: Case): Promise<readonly number[]> {
  const clock = manualClock();
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const receiving = () => ({ clock, proxies: null, limits: { ...defaultLimits, ...limits } });
  const protocols = () => ({ http1, http2: false, h2c: false, proxyProtocol: "off" as const });
  const listener = new Listener({ features, clock, log, serve, receiving, protocols });
  onTestFinished(() => listener.destroy());
  const { port } = await listener.listenPlain("127.0.0.1", 0);
  const talk = await client(port);
  talk.send(`${bytes}GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`);
  return statusesIn(await talk.closed());
}

function expected({ reads, end }: Case): readonly number[] {
  const read = reads.map(() => 200);
  if (end === "idle") return [...read, 200];
  if (end === "last") return read;
  return [...read, ERRORS[end.slice("refused ".length) as ErrorCode].status];
}

describe.each(["wire", "node"] as const)("requests that the codec %s reads", (http1) => {
  const cases = DECIDED.filter(({ title }) => http1 === "wire" || !HIDDEN_BY_NODE.has(title));

  it.each(cases)(
    "$title: the client gets what the grammar says, and nothing behind a refusal ($rule)",
    async (each) => {
      expect(await statuses(http1, each)).toEqual(expected(each));
    },
  );
});

it("names only cases that exist among those that Node's parser hides", () => {
  const titles = new Set(DECIDED.map(({ title }) => title));
  expect([...HIDDEN_BY_NODE].filter((title) => !titles.has(title))).toEqual([]);
});

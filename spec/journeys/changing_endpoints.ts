/** For specs of services whose endpoints change: a client, look-ups, and what holds in all threads. */
import { expect } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { together, type TogetherOptions } from "../support/following.ts";
import { ask, eventually, type Ask } from "../support/raw_client.ts";
import type { ManualClock } from "../support/clock.ts";
import type { DnsServer } from "../support/dns_server.ts";
import type { RestartableBackend } from "./harness.ts";

/** Requests to GET /a/x, whose responses say which backend they are from; one that is not 200 says its status. */
export function asksOf(port: number) {
  const asked = async (more: Ask = {}) => {
    const { status, body, headers } = await ask(port, { path: "/a/x", ...more });
    return { from: status === 200 ? body.toString() : String(status), headers };
  };
  const answers = async (times: number, more: Ask = {}) => {
    const found: string[] = [];
    for (let i = 0; i < times; i++) found.push((await asked(more)).from);
    return found.join(" ");
  };
  return { asked, answers };
}

/** Looks up again, once the answer is old, or after a failure. */
export async function lookedUpAgain({ asked }: DnsServer, clock: ManualClock, ttlMs: number): Promise<void> {
  const { length } = asked;
  let looks = 0;
  await eventually(() => {
    if (asked.length > length) return true;
    // Once, unless a look-up was in progress: requests have their time limits.
    if (looks++ % 50 === 0) clock.advance(ttlMs);
    return false;
  }, "another look-up");
}

export interface ChangingEndpoints {
  /** Of the gateway, with the checks of a service, whose endpoint is `a`. */
  readonly options: TogetherOptions & { readonly clock: ManualClock };
  readonly a: RestartableBackend;
  /** What name servers say from now on: "a b". */
  readonly says: (endpoints: string) => void;
  /** Whether a thread has had the first answer. */
  readonly isKnown: (gateway: Gateway) => boolean;
}

/** Each thread follows what name servers say; the main thread checks and ejects endpoints that came later, for all. */
export async function followedByAll({ options, a, says, isKnown }: ChangingEndpoints): Promise<void> {
  const { clock } = options;
  const { main, workers, ports } = await together(options);
  const upstreamsOf = (gateway: Gateway) => gateway.health.services[0]!.upstreams;
  Gateway.internalsOf(main).requests.activate();
  const all = [main, ...workers] as readonly Gateway[];
  const until = (count: number) =>
    eventually(
      () => (clock.advance(1500), all.every((each) => upstreamsOf(each).length === count)),
      `${count} in all threads`,
    );
  await eventually(() => (clock.advance(10), all.every(isKnown)), "the first answer");
  says("a b");
  await until(2);
  a.answer = (_request, response) => void response.writeHead(500).end();
  const stateOf = (gateway: Gateway) => upstreamsOf(gateway).map(({ state, usable }) => [state, usable]);
  await eventually(() => (clock.advance(20), String(stateOf(main)) === "unhealthy,false,healthy,true"), "both checks");
  for (const worker of workers) expect(stateOf(worker as Gateway)[0]).toEqual(["unhealthy", false]);
  for (const port of ports) expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("b");
  says("b");
  await until(1);
  a.answer = (_request, response) => void response.end("a");
  says("a b");
  await until(2);
  for (const worker of workers) expect(stateOf(worker as Gateway)[0]![1]).toBe(true);
}

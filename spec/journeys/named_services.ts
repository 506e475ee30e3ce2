/** For specs of upstreams that are names: backends at addresses of their own, a name server and a gateway. */
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { manualClock } from "../support/clock.ts";
import { dnsServer } from "../support/dns_server.ts";
import { oneService, running } from "../support/gateway.ts";
import { eventually } from "../support/raw_client.ts";
import { asksOf, lookedUpAgain } from "./changing_endpoints.ts";
import { recordedLog, restartableBackend, speaking, type Protocol, type RestartableBackend } from "./harness.ts";

export type Parts = Partial<AnyConfigInput["services"][number]>;

export const HOST = "orders.test";
export const TTL_MS = 30_000;

export const addressOf = (id: string) => `127.0.0.${11 + "abcdefgh".indexOf(id)}`;
export const idOf = (address: string) => "abcdefgh"[Number(address.split(".")[3]) - 11]!;

/** A backend for each of `ids`, all on one port, each at an address of its own. */
async function site(ids: readonly string[], protocol: Protocol): Promise<readonly RestartableBackend[]> {
  for (;;) {
    const first = await restartableBackend(protocol, { host: addressOf(ids[0]!) });
    const { port } = first;
    const others = await Promise.allSettled(
      ids.slice(1).map((id) => restartableBackend(protocol, { host: addressOf(id), port })),
    );
    // The port may be in use at another address: then all of them get another one.
    if (others.every(({ status }) => status === "fulfilled"))
      return [first, ...others.map((each) => (each as PromiseFulfilledResult<RestartableBackend>).value)];
  }
}

/** Backends `a`, `b`, …, and a name server. */
export async function namedService(names: string, parts: Parts = {}, protocol: Protocol = "http") {
  const dns = await dnsServer();
  const ids = names.split(" ");
  const backends = await site(ids, protocol);
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const of = (id: string) => backends[ids.indexOf(id)]!;
  const { port } = backends[0]!;
  const says = (addresses: string, host = HOST) =>
    void dns.answers.set(host, { a: addresses.split(" ").map(addressOf) });
  const clock = manualClock();
  const { log, lines } = recordedLog();
  const config = (more: Parts = {}, global: AnyConfigInput["global"] = {}) =>
    oneService([], { ...speaking(protocol), upstreams: [{ id: "u", host: HOST, port }], ...parts, ...more }, global);
  const start = (more: Parts = {}, global: AnyConfigInput["global"] = {}) =>
    running(config(more, global), { clock, log, lookup: dns.lookup });
  const told = () => lines.map(({ level, message }) => `${level} ${message}`);
  return { dns, of, says, clock, config, start, told, backendPort: port };
}

/** A gateway in front of them, once the first answer is in force. */
export async function startedNames(names: string, first: string, parts: Parts = {}, protocol: Protocol = "http") {
  const made = await namedService(names, parts, protocol);
  const { dns, clock, says, backendPort } = made;
  says(first);
  const { gateway, port } = await made.start();
  const { asked, answers } = asksOf(port);
  const upstreams = () => gateway.health.services[0]!.upstreams;
  const shown = () =>
    upstreams()
      .map(({ id }) => (id.includes("/") ? idOf(id.split(/[/:]/)[1]!) : id))
      .join(" ");
  const until = (wanted: string) => eventually(() => (clock.advance(10), shown() === wanted), wanted);
  /** Looks the name up again, once its answer is old, or after a failure. */
  const again = () => lookedUpAgain(dns, clock, TTL_MS);
  const changes = async (addresses: string) => {
    says(addresses);
    await again();
    await until(addresses);
  };
  const { runtime } = Gateway.internalsOf(gateway as Gateway);
  const peer = (id: string) => runtime.peer("s", `u/${addressOf(id)}:${backendPort}`)!;
  await eventually(() => runtime.hostName(HOST).addresses.length > 0, "the first answer");
  if (first.includes(" ") && parts.health?.addresses !== "one") await until(sorted(first));
  return { ...made, gateway, port, asked, answers, upstreams, shown, until, again, changes, runtime, peer };
}

export const sorted = (text: string) => text.split(" ").sort().join(" ");

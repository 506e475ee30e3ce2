/** Servers on one port of several loopback addresses, and host names whose addresses the test sets. */
import { once } from "node:events";
import net, { type AddressInfo, type Server, type Socket } from "node:net";
import os from "node:os";
import { onTestFinished } from "vitest";
import { silentLog } from "../../lib/base/log.ts";
import { Names, type Name } from "../../lib/upstream/addresses.ts";
import type { Address } from "../../lib/upstream/contracts.ts";
import { manualClock } from "./clock.ts";

/** Loopback addresses of this machine, with ::1 if it has one. */
export const LOOPBACK: readonly string[] = [
  "127.0.0.1",
  "127.0.0.2",
  ...(Object.values(os.networkInterfaces()).some((all) => all?.some(({ address }) => address === "::1"))
    ? ["::1"]
    : []),
];

/** No test listens on these addresses: connections are refused. */
export const NOBODY = "127.0.0.98";
export const NOBODY_EITHER = "127.0.0.99";

export interface Site {
  /** Connections made to each address so far, and those open now. */
  readonly total: Record<string, number>;
  readonly open: Record<string, number>;
  readonly port: number;
}

/** A server of `make` for each address, all on one port, closed when the test ends. */
export async function site(addresses: readonly string[], make: () => Server): Promise<Site> {
  for (;;) {
    const made = await tryPort(addresses, make);
    if (made !== null) return made;
  }
}

/** Null when the port that was free on the first address is in use on another. */
async function tryPort(addresses: readonly string[], make: () => Server): Promise<Site | null> {
  const [total, open] = [addresses, addresses].map((each) =>
    Object.fromEntries(each.map((address) => [address, 0])),
  ) as [Site["total"], Site["open"]];
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const close = () => {
    for (const server of servers) server.close();
    for (const socket of sockets) socket.destroy();
  };
  let port = 0;
  for (const address of addresses) {
    const server = make();
    server.on("connection", (socket: Socket) => {
      sockets.add(socket.on("error", () => {}));
      total[address]!++;
      open[address]!++;
      socket.on("close", () => {
        sockets.delete(socket);
        open[address]!--;
      });
    });
    try {
      server.listen(port, address);
      await once(server, "listening");
    } catch {
      close();
      return null;
    }
    servers.push(server);
    port = (server.address() as AddressInfo).port;
  }
  onTestFinished(close);
  return { total, open, port };
}

export interface MadeUpNames {
  readonly names: Names;
  /** The result of later look-ups. */
  answer: readonly string[] | Error;
  /** The hosts looked up so far. */
  readonly asked: readonly string[];
  /** A name that is retained and has been looked up. */
  named(host: string): Promise<Name>;
  /** Looks every name up again; resolves when the results have arrived. */
  again(answer: readonly string[] | Error): Promise<void>;
}

/** Names whose look-ups give what the test sets, on their own manual clock. */
export function madeUpNames(answer: readonly string[] | Error): MadeUpNames {
  const clock = manualClock();
  const asked: string[] = [];
  const names = new Names({
    clock,
    log: silentLog,
    random: () => 0,
    lookup: async (host) => {
      asked.push(host);
      if (self.answer instanceof Error) throw self.answer;
      return self.answer.map(addressOf);
    },
  });
  onTestFinished(() => names.close());
  const self: MadeUpNames = {
    names,
    answer,
    asked,
    async named(host) {
      const name = names.name(host)!;
      names.retain([name]);
      await turn();
      return name;
    },
    async again(next) {
      self.answer = next;
      clock.advance(30_000);
      await turn();
    },
  };
  return self;
}

export function addressOf(address: string): Address {
  return { address, family: net.isIP(address) };
}

/** Waits for the next turn of the event loop, when every settled promise has run its callbacks. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Clients that ask, wait for the whole answer, and ask again, on connections that they keep; every request is accounted for. */
import { onTestFinished } from "vitest";
import { connect, type RawConnection } from "../support/raw_client.ts";

export interface LoadOptions {
  /** Where to ask: the first of them that can be connected to. */
  readonly ports: readonly number[];
  /** How many clients, each with a connection of its own. */
  readonly clients: number;
  /** Milliseconds for which a client leaves its connection idle between two requests. Default 0. */
  readonly pauseMs?: (client: number) => number;
}

export interface Load {
  /** Requests that have been answered as they should be. */
  readonly answered: () => number;
  /** Why, for each request that was not. */
  readonly failures: string[];
  /** Answered requests by port. */
  readonly by: ReadonlyMap<number, number>;
  /** Resolves once so many more have been answered. */
  more(count: number): Promise<void>;
  /** Lets what is under way end, and asks no more. */
  stop(): Promise<void>;
}

/** Asks for `/a/<number>`, which a backend has to answer with the target it got (`/<number>`). */
export function load({ ports, clients, pauseMs = () => 0 }: LoadOptions): Load {
  const by = new Map<number, number>();
  const failures: string[] = [];
  const waiting = new Set<() => void>();
  let [stopped, sent, answered] = [false, 0, 0];

  async function client(pause: number): Promise<void> {
    let connection: { readonly port: number; readonly raw: RawConnection } | null = null;
    while (!stopped) {
      if (connection === null || connection.raw.socket.readyState !== "open") connection = await connected();
      const { port, raw } = connection;
      const target = `/${sent++}`;
      const before = raw.text().length;
      raw.send(`GET /a${target} HTTP/1.1\r\nHost: load\r\n\r\n`);
      const fault = await raw.until(endOf(target, before)).then(() => null, (error: Error) => error.message);
      const answer = raw.text().slice(before);
      if (fault !== null || !answer.startsWith("HTTP/1.1 200 ")) failures.push(`${target} on ${port}: ${fault ?? answer}`);
      else {
        answered++;
        by.set(port, (by.get(port) ?? 0) + 1);
      }
      for (const look of waiting) look();
      if (fault !== null || /\r\nConnection: close\r\n/i.test(answer)) {
        raw.socket.destroy();
        connection = null;
      }
      if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    }
    connection?.raw.socket.destroy();
  }

  async function connected(): Promise<{ readonly port: number; readonly raw: RawConnection }> {
    for (const port of ports) {
      const raw = await connect(port).catch(() => null);
      if (raw !== null) return { port, raw };
    }
    stopped = true;
    throw new Error("nobody takes connections");
  }

  const running = Promise.all(Array.from({ length: clients }, (_, i) => client(pauseMs(i)))).catch((error: Error) => void failures.push(error.message));
  const stop = async () => {
    stopped = true;
    await running;
  };
  onTestFinished(stop);
  return {
    answered: () => answered,
    failures,
    by,
    more(count) {
      const goal = answered + count;
      return new Promise((resolve) => {
        const look = () => {
          if (answered < goal && failures.length === 0) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
      });
    },
    stop,
  };
}

/** Matches where the answer behind the first `from` characters is whole, whatever its status. */
function endOf(target: string, from: number): RegExp {
  return new RegExp(`^[^]{${from}}HTTP/1\\.1 (?:200 [^]*\\r\\n\\r\\n${target}$|(?!200)[^]*\\r\\n\\r\\n)`);
}

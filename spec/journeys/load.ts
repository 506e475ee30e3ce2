/** Closed-loop load from clients that can move to another gateway; every request is accounted for. */
import { onTestFinished } from "vitest";
import { connect, type RawConnection } from "../support/raw_client.ts";

export interface LoadOptions {
  /** Ports to try; a client uses the first that accepts a connection. */
  readonly ports: readonly number[];
  /** The number of clients, each with its own connection. */
  readonly clients: number;
  /** Milliseconds for which a client leaves its connection idle between two requests. Default 0. */
  readonly pauseMs?: (client: number) => number;
}

export interface Load {
  /** The number of requests with the right response. */
  readonly answered: () => number;
  /** The reason for each request without it. */
  readonly failures: string[];
  /** Answered requests by port. */
  readonly by: ReadonlyMap<number, number>;
  /** Resolves when this many more requests have been answered. */
  more(count: number): Promise<void>;
  /** Finishes the requests under way, and sends no more. */
  stop(): Promise<void>;
}

/** Requests `/a/<number>`, which a backend has to answer with the target it received (`/<number>`). */
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
      raw.discard();
      raw.send(`GET /a${target} HTTP/1.1\r\nHost: load\r\n\r\n`);
      const fault = await raw.until(endOf(target)).then(
        () => null,
        (error: Error) => error.message,
      );
      const answer = raw.text();
      if (fault !== null || !answer.startsWith("HTTP/1.1 200 "))
        failures.push(`${target} on ${port}: ${fault ?? answer}`);
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
    throw new Error("no gateway accepts connections");
  }

  const running = Promise.all(Array.from({ length: clients }, (_, i) => client(pauseMs(i)))).catch(
    (error: Error) => void failures.push(error.message),
  );
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

/** Matches when the response is complete, whatever its status. */
function endOf(target: string): RegExp {
  return new RegExp(`^HTTP/1\\.1 (?:200 [^]*\\r\\n\\r\\n${target}$|(?!200)[^]*\\r\\n\\r\\n)`);
}

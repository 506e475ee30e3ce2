/** Sends requests at a steady rate and records their outcomes. */
import http from "node:http";

export interface Outcome {
  /** The time at which it was due, in milliseconds of `performance.now()`. */
  readonly due: number;
  /** From then to the end of its response. */
  readonly ms: number;
  /** Status, or how it failed. */
  readonly said: string;
}

export interface Load {
  readonly outcomes: readonly Outcome[];
  /** Starts no further request; resolves when all started ones have ended. */
  stop(): Promise<void>;
}

const MAX_REQUEST_MS = 15_000;

/** Starts each request when it is due, even while earlier ones wait: waiting counts as latency. */
export function openLoop(port: number, path: string, perSecond: number): Load {
  const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
  const outcomes: Outcome[] = [];
  const beganAt = performance.now();
  let begun = 0;
  let underWay = 0;
  let allEnded = () => {};
  const timer = setInterval(() => {
    const due = ((performance.now() - beganAt) / 1000) * perSecond;
    while (begun < due) {
      const dueAt = beganAt + (begun++ / perSecond) * 1000;
      underWay++;
      void request(port, path, agent).then((said) => {
        outcomes.push({ due: dueAt, ms: performance.now() - dueAt, said });
        if (--underWay === 0) allEnded();
      });
    }
  }, 1);
  return {
    outcomes,
    async stop() {
      clearInterval(timer);
      if (underWay > 0) await new Promise<void>((resolve) => (allEnded = resolve));
      agent.destroy();
    },
  };
}

/** One GET; resolves with its status when the response is complete, or with its error. Never rejects. */
export function request(port: number, path: string, agent: http.Agent | false = false): Promise<string> {
  return new Promise((resolve) => {
    const asked = http.get({ host: "127.0.0.1", port, path, agent }, (response) => {
      response.on("error", (error) => resolve(error.message));
      response.on("end", () => resolve(String(response.statusCode)));
      response.resume();
    });
    asked.setTimeout(MAX_REQUEST_MS, () => asked.destroy(new Error("no answer")));
    asked.on("error", (error) => resolve(error.message));
  });
}

/** "p50 / p99", in milliseconds. */
export function percentiles(outcomes: readonly Outcome[]): string {
  return `${percentile(outcomes, 0.5).toFixed(1)} / ${percentile(outcomes, 0.99).toFixed(1)}`;
}

export function percentile(outcomes: readonly Outcome[], share: number): number {
  const sorted = outcomes.map(({ ms }) => ms).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Resolves with whether the condition became true in time. */
export async function until(holds: () => boolean, ms: number): Promise<boolean> {
  const deadline = performance.now() + ms;
  while (!holds() && performance.now() < deadline) await pause(5);
  return holds();
}

/** The first argument in seconds. */
export function secondsOf([given]: readonly string[], otherwise: number): number {
  const seconds = Number(given ?? otherwise);
  if (!(seconds >= 2 && seconds <= 600)) throw new RangeError("the benchmark lasts 2 to 600 seconds");
  return seconds;
}

export function printTable(heads: readonly string[], rows: readonly (readonly (string | number)[])[]): void {
  for (const cells of [heads, heads.map(() => "---"), ...rows]) console.log(`| ${cells.join(" | ")} |`);
}

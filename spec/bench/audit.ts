/**
 * Measures what AUDIT_REFUSALS costs a refusal: processor time of the process, from the event to its line in the file,
 * hashing and writing included. The target is five microseconds.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { GatewayAudit } from "../../lib/gateway/gateway_audit.ts";
import { Call, type Exchange } from "../../lib/http/exchange.ts";
import { problem } from "../../lib/http/reply.ts";
import { AuditLog } from "../../lib/observe/audit_log.ts";
import { printTable } from "./load.ts";

const MAX_NS = 5_000;
const REFUSALS = 40_000;
/** The requests that end in a busy turn of the event loop. */
const PER_TURN = 20;
const ROUNDS = 8;

type Handler = (exchange: Exchange) => unknown;

/** Prints its figures; true when the promise holds. */
export async function audit(): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-bench-"));
  const path = join(folder, "audit.log");
  const log = new AuditLog({ path, fail: "open", clock: systemClock, log: createLog() });
  try {
    await log.start();
    const recording = new GatewayAudit({ fail: "open", refusals: true, failing: new Int32Array(1) }, log);
    const refuse: Handler = ({ call }) => problem(call, "key_missing");
    const watched = recording.watch(undefined)!(refuse as never, {} as never) as Handler;
    const [without, withLine] = await bestOf([refuse, watched]);
    await log.close();
    if (statSync(path).size < ROUNDS * REFUSALS * 200) throw new Error("lines are missing");
    const added = withLine! - without!;
    printTable(
      ["figure", "ns a refusal", ""],
      [
        ["without AUDIT_REFUSALS", Math.round(without!), ""],
        ["with AUDIT_REFUSALS", Math.round(withLine!), ""],
        ["what it adds", Math.round(added), added < MAX_NS ? "ok" : "FAILED"],
        ["ratio", Number((withLine! / without!).toFixed(2)), ""],
      ],
    );
    return added < MAX_NS;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Of each handler, in turns: nanoseconds of its best round; the others were disturbed or warming up. */
async function bestOf(handlers: readonly Handler[]): Promise<number[]> {
  const best = handlers.map(() => Infinity);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [which, handler] of handlers.entries()) {
      const before = process.cpuUsage();
      for (let i = 0; i < REFUSALS; i++) {
        handler(exchangeOf(i));
        if (i % PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      // What waits for others is written after 50 ms.
      await new Promise((resolve) => setTimeout(resolve, 200));
      const { user, system } = process.cpuUsage(before);
      best[which] = Math.min(best[which]!, ((user + system) / REFUSALS) * 1e3);
    }
  }
  return best;
}

function exchangeOf(i: number): Exchange {
  const call = new Call({
    id: `56f8d222-8133-46d6-b2ee-11f6d81d${1000 + (i % 8000)}`,
    remoteAddress: "192.0.2.1",
    trustedRemote: false,
    startedAt: 0,
    inform() {},
  });
  Object.assign(call.notes, { service: "orders", route: "GET /orders/{id}", status: 401, code: "key_missing" });
  return { call, clientAddress: `192.0.2.${i & 63}` } as Exchange;
}

/** The server of the management UI on a free port, before an admin interface, gone with the test. */
import { onTestFinished } from "vitest";
import type { LogFields } from "../../lib/base/log.ts";
import type { Admin } from "../../lib/admin/server.ts";
import { AdminProxy } from "../../lib/manager/proxy.ts";
import { createManager, ofThisProcess, type Manager } from "../../lib/manager/server.ts";
import type { Pair } from "../../lib/server/certificates.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { ask, type Answer, type Ask } from "../support/raw_client.ts";
import { features } from "../support/listener_features.ts";

export interface RunningManager {
  readonly manager: Manager;
  readonly port: number;
  readonly clock: ManualClock;
  /** What was logged: severity, message, fields. */
  readonly logged: readonly (readonly [string, string, LogFields?])[];
  ask(method: string, path: string, more?: Omit<Ask, "method" | "path">): Promise<Answer>;
}

/** `backend` is a port of 127.0.0.1, an address, or the admin interface of the same process. */
export async function startManager(
  backend: number | string | Admin,
  options: {
    tls?: Pair;
    ca?: Buffer;
    assets?: string;
    hosts?: readonly string[];
    basePath?: string;
    traceUrl?: string;
  } = {},
): Promise<RunningManager> {
  const { tls = null, hosts = [], ca = null, basePath = "/", traceUrl = null, ...more } = options;
  const clock = manualClock();
  const logged: [string, string, LogFields?][] = [];
  const note = (severity: string) => (message: string, fields?: LogFields) =>
    void logged.push(fields === undefined ? [severity, message] : [severity, message, fields]);
  const log = { debug: note("debug"), info: note("info"), warn: note("warn"), error: note("error") };
  const urlOf = (address: number | string) =>
    new URL(typeof address === "number" ? `http://127.0.0.1:${address}` : address);
  const manager = createManager({
    backend:
      typeof backend === "object"
        ? ofThisProcess(backend.answer)
        : new AdminProxy({ url: urlOf(backend), ca }, clock, log),
    tls: tls && { ...tls, features },
    hosts,
    basePath,
    traceUrl,
    clock,
    log,
    ...more,
  });
  onTestFinished(async () => {
    const closed = manager.close();
    clock.advance(10_000); // whatever a failed spec left open is cut
    await closed;
  });
  const { port } = await manager.listen({ host: "127.0.0.1", port: 0 });
  return { manager, port, clock, logged, ask: (method, path, rest) => ask(port, { method, path, ...rest }) };
}

export const json = (answer: Answer): any => JSON.parse(answer.body.toString());

/** Status, code and detail of a problem document. */
export function problemOf(answer: Answer): readonly [number, string, string] {
  const { status, code, detail } = json(answer) as { status: number; code: string; detail: string };
  if (status !== answer.status || answer.headers["content-type"] !== "application/problem+json")
    throw new Error("this is no problem document");
  return [status, code, detail];
}

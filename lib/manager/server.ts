/**
 * Opens the management UI: its pages, and the admin interface below /api on the same origin.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Reply } from "../http/reply.ts";
import { createOperatorServer, type OperatorServer, type OperatorTls } from "../operator/operator_server.ts";
import type { Inbound } from "../server/receive.ts";
import type { Backend } from "./backend.ts";
import { createEndpoints } from "./endpoints.ts";
import { AdminProxy, MAX_BODY_BYTES, scriptHeaders } from "./proxy.ts";
import { readStaticFiles } from "./static_files.ts";

export interface ManagerOptions {
  /** The admin interface: of another process, or of this one as a function that is called directly. */
  readonly backend: Backend | ((inbound: Inbound) => Promise<Reply>);
  /** PEM. Null: plain HTTP. */
  readonly tls: OperatorTls | null;
  /** Host names, besides localhost, that are accepted over plain HTTP. */
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Folder of the compiled pages; default: the output of the build. */
  readonly assets?: string;
}

export type Manager = OperatorServer;

/** Throws with a sentence for the operator if the pages are missing. */
export function createManager({ backend, tls, hosts, clock, log, assets }: ManagerOptions): Manager {
  const findFile = readStaticFiles(assets);
  const common = { clock, log, tls, maxBodyBytes: MAX_BODY_BYTES };
  if (typeof backend === "function") {
    const forward = (inbound: Inbound, path: string) => {
      return backend({ ...inbound, target: path, authority: "", headers: scriptHeaders(inbound.headers) });
    };
    // The admin interface of this process ends its event streams itself.
    return createOperatorServer({ ...common, serve: createEndpoints(findFile, forward, hosts), endStreams() {} });
  }
  const proxy = new AdminProxy(backend, clock, log);
  const serve = createEndpoints(findFile, (inbound, path) => proxy.forward(inbound, path), hosts);
  return createOperatorServer({ ...common, serve, endStreams: () => proxy.endStreams() });
}

/**
 * Opens the management UI: its pages, and the admin interface below /api on the same origin, so that the browser needs no other.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Reply } from "../http/reply.ts";
import type { Pair } from "../server/certificates.ts";
import { createOperatorServer, type OperatorServer } from "../server/operator_server.ts";
import type { Inbound } from "../server/receive.ts";
import type { Backend } from "./backend.ts";
import { createEndpoints } from "./endpoints.ts";
import { createProxy, forwardedHeaders, MAX_BODY_BYTES, type Proxy } from "./proxy.ts";
import { readStaticFiles } from "./static_files.ts";

export interface ManagerOptions {
  /** Where the admin interface is; a function answers for that of this process. */
  readonly backend: Backend | AnswerInbound;
  /** PEM. Null: plain HTTP. */
  readonly tls: Pair | null;
  /** Names other than localhost under which it may be asked over plain HTTP. */
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Where the compiled pages are; default: where the build puts them. */
  readonly assets?: string;
}

export type Manager = OperatorServer;

type AnswerInbound = (inbound: Inbound) => Promise<Reply>;

/** Throws with a sentence for the operator when the pages are not there. */
export function createManager({ backend, tls, hosts, clock, log, assets }: ManagerOptions): Manager {
  const proxy = typeof backend === "function" ? inProcess(backend) : createProxy(backend, clock, log);
  const serve = createEndpoints(readStaticFiles(assets), proxy.forward, hosts);
  return createOperatorServer({ clock, log, tls, serve, endStreams: proxy.endStreams, maxBodyBytes: MAX_BODY_BYTES });
}

/** The admin interface of this process is called without a connection, and ends its event streams itself. */
function inProcess(answer: AnswerInbound): Proxy {
  return {
    forward: (inbound, path) => answer({ ...inbound, target: path, authority: "", headers: forwardedHeaders(inbound.headers) }),
    endStreams() {},
  };
}

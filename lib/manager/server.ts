/**
 * Opens the management UI: its pages, and the admin interface below /api on the same origin.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { createOperatorServer, type OperatorServer, type OperatorTls } from "../operator/operator_server.ts";
import type { Inbound } from "../server/inbound.ts";
import { createEndpoints } from "./endpoints.ts";
import { readStaticFiles } from "./static_files.ts";

/** An admin interface: that of this process, or an `AdminProxy` for that of another one. */
export interface AdminBackend {
  /**
   * Answers what pages ask for. `path` is the path at the admin interface, query included: "/gateway/status". Never
   * rejects.
   */
  forward(inbound: Inbound, path: string): Promise<Reply>;
  /** Ends event streams, which do not end by themselves. */
  endStreams(): void;
}

export interface ManagerOptions {
  readonly backend: AdminBackend;
  /** PEM. Null: plain HTTP. */
  readonly tls: OperatorTls | null;
  /** Host names, besides localhost, that are accepted over plain HTTP. */
  readonly hosts: readonly string[];
  /** Path of the start page, below which all others are. Begins and ends with a slash. */
  readonly basePath: string;
  /** Where pages link trace ids to: a URL with "{trace_id}". Null: nowhere. */
  readonly traceUrl: string | null;
  readonly clock: Clock;
  readonly log: Log;
  /** Folder of the compiled pages; default: the output of the build. */
  readonly assets?: string;
}

export type Manager = OperatorServer;

/**
 * A whole configuration, which the admin interface accepts for dry runs. Its other endpoints have limits of their own.
 */
const MAX_BODY_BYTES = 16 * 1024 * 1024;

/** Throws with a sentence for the operator if the pages are missing. */
export function createManager({
  backend,
  tls,
  hosts,
  basePath,
  traceUrl,
  clock,
  log,
  assets,
}: ManagerOptions): Manager {
  const serve = createEndpoints(readStaticFiles(assets, traceUrl), (inbound, path) => backend.forward(inbound, path), {
    hosts,
    basePath,
  });
  return createOperatorServer({
    clock,
    log,
    tls,
    maxBodyBytes: MAX_BODY_BYTES,
    serve,
    endStreams: () => backend.endStreams(),
  });
}

/** `answer` of the admin interface of this process. */
export function ofThisProcess(answer: (inbound: Inbound) => Promise<Reply>): AdminBackend {
  return {
    forward: (inbound, path) =>
      answer({ ...inbound, target: path, authority: "", headers: scriptHeaders(inbound.headers) }),
    endStreams() {}, // it ends them itself
  };
}

/**
 * Removes Origin, since the admin interface refuses unknown origins. Sets Sec-Fetch-Dest, which browsers send on
 * trusted connections only:
 * for requests of scripts the admin interface omits the challenge for which browsers open a password dialog.
 */
export function scriptHeaders(headers: HeaderList): HeaderList {
  return withHeader(withoutHeader(headers, "origin"), "Sec-Fetch-Dest", "empty");
}

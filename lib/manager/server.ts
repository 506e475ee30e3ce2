/**
 * The server of the management UI: its pages, and the admin interface below /api on the same origin, so that the browser needs no other.
 * It keeps no session and no state of its own; who may see what is the admin interface's affair.
 */
import type { AddressInfo } from "node:net";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { OriginalClients } from "../http/original_clients.ts";
import type { Limits } from "../server/limits.ts";
import { createListener } from "../server/listener.ts";
import { createEndpoints } from "./endpoints.ts";
import type { Backend } from "./backend.ts";
import { createPass } from "./proxy.ts";
import { readStaticFiles } from "./static_files.ts";

export interface ManagerOptions {
  readonly backend: Backend;
  /** PEM. Null: plain HTTP. */
  readonly tls: ManagerTls | null;
  /** Names other than localhost under which it may be asked over plain HTTP. */
  readonly hosts: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Is told for whom each request to the admin interface is made; of use where that is in the same process. Default: nobody is told. */
  readonly clients?: OriginalClients;
  /** Where the compiled pages are; default: where the build puts them. */
  readonly assets?: string;
}

export interface ManagerTls {
  readonly cert: Buffer;
  readonly key: Buffer;
}

export interface Manager {
  /** Rejects with the error of `net.Server.listen`. Port 0 takes any free one. */
  listen(where: { readonly host: string; readonly port: number }): Promise<AddressInfo>;
  /** Shows another certificate to connections that begin from now on; does nothing on plain HTTP. Throws for one that cannot be used. */
  renewTls(files: ManagerTls): void;
  /** Takes no more connections, ends event streams, and gives requests two seconds to be answered. May be called twice. */
  close(): Promise<void>;
}

/** Throws with a sentence for the operator when the pages are not there. */
export function createManager({ backend, tls, hosts, clock, log, clients, assets }: ManagerOptions): Manager {
  const passing = createPass({ backend, clock, log, ...(clients && { clients }) });
  const answers = createEndpoints(readStaticFiles(assets), passing, hosts);
  const receiving = { clock, isTrusted: () => false, limits: LIMITS };
  const listener = createListener({
    clock,
    log,
    serve: answers,
    receiving: () => receiving,
    h2c: () => false,
    certificates: () => ({ find: () => undefined }),
    ended: () => {},
    join: (client) => void client.destroy(), // no answer here is a tunnel
  });
  let closing: Promise<void> | null = null;

  return {
    listen: ({ host, port }) => (tls === null ? listener.listenPlain(host, port) : listener.listenSecure(host, port, withoutCa(tls))),
    renewTls(files) {
      if (tls !== null) listener.renewTls(withoutCa(files));
    },
    close() {
      return (closing ??= close());
    },
  };

  async function close(): Promise<void> {
    const drained = listener.drain(0);
    passing.closeStreams();
    const grace = clock.after(CLOSE_GRACE_MS, () => listener.destroy());
    await drained;
    grace.cancel();
    listener.destroy();
    passing.close();
  }
}

const CLOSE_GRACE_MS = 2000;

/** Those of people at browsers, not of traffic: as the admin interface has them. */
const LIMITS: Limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  minBodyBytesPerS: 0,
  maxHeaderBytes: 16 * 1024,
  maxHeaders: 100,
  maxUriBytes: 8 * 1024,
  maxBodyBytes: 64 * 1024,
  maxConnections: 1024,
  maxConnectionsPerIp: 0,
  maxRequestsInFlight: 0,
};

/** People log in with a password: no certificate is asked of them. */
function withoutCa({ cert, key }: ManagerTls): Parameters<ReturnType<typeof createListener>["renewTls"]>[0] {
  return { cert, key, ca: null, requireClientCert: false };
}

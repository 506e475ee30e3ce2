/**
 * The gateway in a host's own server: serves the requests that a route takes, and passes all others on to the host.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ignore } from "../base/errors.ts";
import { readTarget } from "../route/path.ts";
import { connectionOf } from "../server/client_certificate.ts";
import { readFraming } from "../server/request_head.ts";
import type { Listener } from "../server/listener.ts";
import { nodeTargetOf } from "../server/node_request.ts";
import { receiveHead } from "../server/inbound.ts";
import type { Configuration } from "../gateway/configuration.ts";
import { findRoute } from "../gateway/serve.ts";

/** As Express' `next`: called without an argument for a request that no route takes. */
export type Next = (error?: unknown) => void;

export interface Mounted {
  handler(request: IncomingMessage, response: ServerResponse, next?: Next): void;
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, next?: Next): void;
  matches(request: IncomingMessage): boolean;
}

export function mounted(listener: Listener, configuration: Pick<Configuration, "snapshot">): Mounted {
  // A path that is refused for its spelling is not passed on: another reader may take it for that of a guarded route.
  const matches = (request: IncomingMessage) => {
    const { method = "", httpVersion, rawHeaders } = request;
    const { receiving, table } = configuration.snapshot;
    const framing = readFraming(method, rawHeaders, httpVersion, receiving.underscores);
    const head = { method, target: nodeTargetOf(request), httpVersion, headers: rawHeaders, framing };
    const inbound = receiveHead(head, connectionOf(request.socket), null, null, receiving, ignore);
    const target = readTarget(inbound.target);
    if ("code" in target) return true;
    const { kind } = findRoute(inbound, target.authority ?? inbound.authority, target, table);
    return kind !== "none" && kind !== "conditions";
  };
  return {
    matches,
    handler(request, response, next) {
      if (typeof next === "function" && !matches(request)) next();
      else listener.nodeHttp1.onRequest(request, response);
    },
    upgrade(request, socket, head, next) {
      const onUpgrade = () => listener.nodeHttp1.onUpgrade(request, socket, head);
      if (matches(request)) return onUpgrade();
      if (typeof next === "function") return next();
      // Other listeners of the host get every upgrade as well: one of them may answer it.
      const { server } = request.socket as Socket & { server?: NodeJS.EventEmitter };
      if (server === undefined || server.listenerCount("upgrade") < 2) return onUpgrade();
      const { bytesWritten } = request.socket;
      const isAnswered = () => socket.destroyed || request.socket.bytesWritten > bytesWritten;
      configuration.snapshot.receiving.clock.after(ANSWER_MS, () => void (isAnswered() || onUpgrade()));
    },
  };
}

/** How long other listeners have for the answer to an upgrade, in milliseconds. */
const ANSWER_MS = 10_000;

/**
 * The gateway for programs that embed it: in a host's own server, and with requests as values.
 */
import type { Threads } from "../base/threads.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { Following } from "../gateway/internals.ts";
import type { CompleteOptions } from "../gateway/options.ts";
import type { InjectRequest, InjectResponse } from "../proof/made_request.ts";
import { injectInto } from "./inject.ts";
import { mounted, type Mounted } from "./mounted.ts";
import { ReportedGateway } from "./reported_gateway.ts";

export class Gateway extends ReportedGateway {
  /**
   * For mounting in a host's own server: `http.createServer(gateway.handler)`, `app.use(gateway.handler)`. Given
   * `next`, it passes on each request that no route takes; without it, the client gets 404. The path that the client
   * sent counts, with a prefix under which it is mounted.
   */
  readonly handler: Mounted["handler"];
  /**
   * For the host's `upgrade` event, so that WebSockets pass: `server.on("upgrade", gateway.upgrade)`. An upgrade that
   * no route takes goes to `next`, or to the other listeners of the event: nothing is written to its socket. Without
   * either, and if no listener answers, it gets 404.
   */
  readonly upgrade: Mounted["upgrade"];
  /**
   * Whether a route takes the path, host and headers of the request; also one whose method is not allowed (405), or
   * whose path is refused.
   */
  readonly matches: Mounted["matches"];

  constructor(options: CompleteOptions, threads?: Threads, following?: Following | null) {
    super(options, threads, following);
    const { configuration, listener } = GatewayCore.internalsOf(this);
    ({ handler: this.handler, upgrade: this.upgrade, matches: this.matches } = mounted(listener, configuration));
  }

  /** Sends one request through the gateway without a socket. Rejects when the reply breaks off. */
  inject(request: InjectRequest): Promise<InjectResponse> {
    const { requests, configuration } = GatewayCore.internalsOf(this);
    return injectInto(requests, request, configuration.snapshot.receiving);
  }
}

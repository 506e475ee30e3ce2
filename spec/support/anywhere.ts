import type { Socket } from "node:net";
import { Egress, type Dial } from "../../lib/base/egress.ts";
import { WriteBatch } from "../../lib/base/event_loop.ts";

/** For specs of what is built upon an `Egress`: it permits every destination. */
export class Anywhere extends Egress {
  constructor() {
    super([]);
  }

  override permits(): boolean {
    return true;
  }
}

/** For connection pools, whose `host` and `port` may be added later, and for clients. */
export const ANYWHERE = {
  egress: new Anywhere(),
  why: "spec",
  writeBatch: new WriteBatch(),
  dial(this: { readonly host: string; readonly port: number }, ...[options, secure]: Parameters<Dial>): Socket {
    return new Anywhere().dialer({ host: this.host, port: this.port, why: "spec" })(options, secure);
  },
};

import { Egress } from "../../lib/base/egress.ts";

/** For specs of what is built upon an `Egress`: it permits every destination. */
export class Anywhere extends Egress {
  constructor() {
    super([]);
  }

  override permits(): boolean {
    return true;
  }
}

/** For connection pools and clients. */
export const ANYWHERE = { egress: new Anywhere(), why: "spec" };

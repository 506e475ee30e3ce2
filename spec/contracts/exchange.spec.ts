import { describe } from "vitest";
import { exchanges, type Downstream, type Upstream } from "./exchange.ts";

const downstreams: readonly Downstream[] = ["h1", "h1+tls", "h2"];
const upstreams: readonly Upstream[] = ["http", "https", "h2c", "h2"];

describe.each(downstreams)("an exchange from %s", (downstream) => {
  describe.each(upstreams)("to %s:", (upstream) => exchanges(downstream, upstream));
  describe.each(["http", "https"] as const)("to %s, by Node's client:", (upstream) =>
    exchanges(downstream, upstream, "node"),
  );
});

import { describe, expect, it, onTestFinished } from "vitest";
import type { Gateway } from "../../lib/embed/gateway.ts";
import { createGateway } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { startAdmin } from "./harness.ts";

describe("GET /gateway/callers", () => {
  it(
    "has the plugins that can identify a caller as data, with what they stand for, whatever the names are, " +
      "and not those that are switched off",
    async () => {
      const clock = manualClock();
      const keyAuth = (config: object, more: object = {}) => ({ name: "key_auth", config, ...more });
      const config = {
        global: { plugins: [keyAuth({ callers: true })] },
        callers: [{ id: "ada", keys: [{ key: "hush-ada" }] }, { id: "bob" }],
        services: [
          {
            name: "s.routes/<x>",
            base_path: "/",
            upstreams: [{ host: "127.0.0.1", port: 9 }],
            plugins: [
              keyAuth({ keys: [{ id: "bob", key: "hush-bob" }] }),
              keyAuth({ callers: true }, { id: "off", enabled: false }),
            ],
            routes: [
              {
                name: "r.plugins",
                path: "/",
                plugins: [{ name: "jwt", config: { alg: "HS256", secret: "hush-hush-hush-hush-hush-hush-hu" } }],
              },
            ],
          },
        ],
      };
      const gateway = createGateway({ config: config as never, clock }) as Gateway;
      onTestFinished(async () => void (await gateway.close(0)));
      const { ask, session } = await startAdmin({ clock, gateway });
      const reply = await ask("GET", "/gateway/callers", { headers: { cookie: await session() } });
      const everywhere = { kind: "key_auth", service: null, route: null, level: "global" };
      const onService = { kind: "key_auth", service: "s.routes/<x>", route: null, level: "service" };
      const onRoute = { kind: "jwt", service: "s.routes/<x>", route: "r.plugins", level: "route" };
      const { callers } = reply.json as { callers: { id: string; plugins: unknown }[] };
      expect(callers.map(({ id, plugins }) => ({ id, plugins }))).toEqual([
        { id: "ada", plugins: [everywhere, onRoute] },
        { id: "bob", plugins: [onService, onRoute] },
      ]);
      expect(JSON.stringify(reply.json)).not.toContain("hush");
    },
  );
});

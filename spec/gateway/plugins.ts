/** Plugin kinds for specs, as an embedder would write them. */
import { definePlugin, schema, type AnyPlugin } from "../../lib/index.ts";

/** Writes `>label` on the way in and `<label` on the way out, and adds the label to the reply's X-Trail. */
export function marking(trail: string[]): AnyPlugin {
  return definePlugin({
    name: "mark",
    schema: schema.object({ label: schema.string({ min: 1 }) }),
    create:
      ({ label }) =>
      (next) =>
      async (exchange) => {
        trail.push(`>${label}`);
        const reply = await next(exchange);
        trail.push(`<${label}`);
        return { ...reply, headers: [...reply.headers, "X-Trail", label] };
      },
  });
}

/** Runs `behave` for each request that meets it. */
export function behaving(behave: ReturnType<AnyPlugin["create"]>): AnyPlugin {
  return definePlugin({ name: "behave", schema: schema.object({}), create: () => behave });
}

export const mark = (label: string) => ({ name: "mark", config: { label } });

/** Refuses to be created while `config.broken` is true. */
export const fragile: AnyPlugin = definePlugin({
  name: "fragile",
  schema: schema.object({ broken: schema.withDefault(schema.boolean(), false) }),
  create({ broken }) {
    if (broken) throw new Error("the fragile thing broke");
    return (next) => next;
  },
});

export const HANDSHAKE =
  "GET /a/socket HTTP/1.1\r\nHost: gateway.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

// A plugin module: lets only requests pass whose sender has signed method, target and body with a shared secret:
// printf 'POST /orders?x=1\n{"lamps":2}' | openssl dgst -sha256 -hmac "$SECRET"
import { createHmac, timingSafeEqual } from "node:crypto";

export default ({ definePlugin, schema, headerValue, problemReply, readBody }) =>
  definePlugin({
    name: "signature",
    guards: true,
    schema: schema.object({
      secret: schema.string({ min: 16, secret: true, describe: "The secret that the senders share." }),
      max_bytes: schema.withDefault(schema.integer({ min: 0, describe: "Maximum length of the body, in bytes." }), 1_048_576),
    }),
    create({ secret, maxBytes }) {
      return (next) => async (exchange) => {
        const refuse = () => problemReply(exchange.call, { code: "signature_invalid", status: 401, title: "The signature is missing or wrong" });
        const given = Buffer.from(headerValue(exchange.headers, "x-signature") ?? "", "hex");
        if (given.length !== 32) return refuse();
        const signed = createHmac("sha256", secret).update(`${exchange.method} ${exchange.target}\n`).update(await readBody(exchange, maxBytes));
        return timingSafeEqual(given, signed.digest()) ? next(exchange) : refuse();
      };
    },
  });

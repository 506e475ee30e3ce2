/**
 * A plugin module: one file that a configuration names under `global.plugin_modules`, with its digest. It imports nothing of the package:
 * the function gets what it needs. The plugin answers requests that are older than a deadline that their client has set.
 */
export default ({ definePlugin, schema, headerValue, withoutHeader, problemReply }) =>
  definePlugin({
    name: "deadline",
    schema: schema.object({
      header: schema.withDefault(schema.string({ min: 1, describe: "The header with the deadline, in milliseconds since 1970." }), "X-Deadline"),
      required: schema.withDefault(schema.boolean({ describe: "Whether a request without one is refused." }), false),
    }),
    create(config, { clock, log }) {
      const lower = config.header.toLowerCase();
      const refuse = (exchange, code, title) => problemReply(exchange.call, { code, status: 400, title });
      return (next) => (exchange) => {
        const text = headerValue(exchange.headers, lower);
        if (text === undefined) return config.required ? refuse(exchange, "deadline_missing", "The request has no deadline") : next(exchange);
        if (!/^[0-9]{1,15}$/.test(text)) return refuse(exchange, "deadline_invalid", "The deadline is no number");
        if (clock.wall() > Number(text)) {
          log.debug("deadline passed", { request_id: exchange.requestId });
          return refuse(exchange, "deadline_passed", "The deadline has passed");
        }
        return next(exchange.with({ headers: withoutHeader(exchange.headers, lower) }));
      };
    },
  });

/** A service that answers in place of an upstream: what forwarding costs is no part of what is measured. */
import { definePlugin, schema } from "../../lib/index.ts";

export const answers = definePlugin({
  name: "answers",
  schema: schema.object({}),
  create: () => () => () => ({ status: 200, headers: ["Content-Length", "0"], body: null }),
});

export const answering = {
  name: "s",
  base_path: "/",
  upstreams: [{ host: "127.0.0.1", port: 9 }],
  routes: [{ path: "/{rest*}" }],
  plugins: [{ name: "answers" }],
};

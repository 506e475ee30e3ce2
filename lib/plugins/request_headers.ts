/**
 * The plugin kind `request_headers`: changes the headers of the request for later plugins and the upstream.
 *
 * Values may refer to parameters of the path, the request, the caller, and the claims of a token that an auth plugin
 * before it has verified.
 */
import { sentHeaderProblem } from "../config/sent_headers.ts";
import { changedNames, headerChanges, headerEditor } from "./header_edits.ts";
import type { Plugin } from "./plugin.ts";

const schema = headerChanges("Changes headers of the request.", "secret", sentHeaderProblem);

export const requestHeaders: Plugin<typeof schema> = {
  name: "request_headers",
  schema,
  ownHeaders: changedNames,
  create(config) {
    const edit = headerEditor(config);
    return (next) => (exchange) => next(exchange.with({ headers: edit(exchange.headers, exchange) }));
  },
};

/**
 * The functions for plugin authors as one value: a plugin module gets it as an argument, so that it need not import the
 * package.
 */
import * as schema from "../config/whole_schema.ts";
import { hasHeader, headerValue, headerValues, withHeader, withoutHeader, type HeaderList } from "../http/headers.ts";
import { discard, problem, problemReply } from "../http/reply.ts";
import { readBody, readReply } from "../http/whole_body.ts";
import type { AnyPlugin, Plugin } from "./plugin.ts";

/** The package exports all of them under the same names, too. */
export const kit = Object.freeze({
  definePlugin,
  schema,
  headerValue,
  headerValues,
  hasHeader,
  withHeader,
  withAddedHeader,
  withoutHeader,
  problem,
  problemReply,
  discard,
  readBody,
  readReply,
});

/** Types `create` by the schema; checks nothing at run time. */
export function definePlugin<S extends schema.Schema<unknown>>(plugin: Plugin<S>): Plugin<S> {
  return plugin;
}

/** A copy with one more header line at the end; earlier ones of the same name stay. */
export function withAddedHeader(list: HeaderList, name: string, value: string): HeaderList {
  return [...list, name, value];
}

export type PluginKit = typeof kit;

/** The default export of a plugin module. */
export type PluginModuleExport =
  | AnyPlugin
  | readonly AnyPlugin[]
  | ((kit: PluginKit) => AnyPlugin | readonly AnyPlugin[] | Promise<AnyPlugin | readonly AnyPlugin[]>);

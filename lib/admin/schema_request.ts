/**
 * Answers `GET /gateway/schema`: the JSON Schema of a configuration, with the plugin kinds and features that this
 * program has and the kinds of the modules in force. Reading it loads what a configuration could name.
 */
import { isInBuild } from "../base/version.ts";
import { sourceDigest } from "../config/load.ts";
import { schemaDocument } from "../config/json_schema_document.ts";
import { fieldsIn, loadCode } from "../gateway/loaded_features.ts";
import { acceptsGzip, compressed } from "../http/content_coding.ts";
import { headerValues } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { FEATURES, KINDS } from "../features/table.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Inbound } from "../server/inbound.ts";
import { jsonReply } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

/** The features that add to the schema. */
const WITH_FIELDS = [
  "balancing",
  "outbound",
  "serverTls",
  "routing",
  "callers",
  "sharedCounters",
  "logs",
  "proof",
  "sources",
];

/** By the kinds of the configuration in force. */
const documents = new WeakMap<readonly AnyPlugin[], SchemaDocument>();

interface SchemaDocument {
  readonly plain: Reply;
  /** Null until somebody has asked for it: it takes a while. */
  zipped: Promise<Reply> | null;
  readonly tag: string;
}

export async function schemaRequest(
  { headers }: Inbound,
  { gateway: { pluginKinds } }: Pick<InterfaceOptions, "gateway">,
): Promise<Reply> {
  const document = documents.get(pluginKinds) ?? (await documentOf(pluginKinds));
  documents.set(pluginKinds, document);
  const { plain, tag } = document;
  const known = headerValues(headers, "if-none-match").flatMap((value) => value.split(","));
  if (known.some((each) => ["*", tag].includes(each.trim())))
    return { status: 304, headers: ["ETag", tag], body: null };
  return acceptsGzip(headers) ? (document.zipped ??= compressed(plain, headers)) : plain;
}

/** As `edge-gateway schema` prints it. */
async function documentOf(inForce: readonly AnyPlugin[]): Promise<SchemaDocument> {
  const isHere = ([name]: readonly [string, unknown]) => isInBuild(name);
  const kinds = await Promise.all(
    Object.entries(KINDS)
      .filter(isHere)
      .map(([, load]) => loadCode<AnyPlugin>(load)),
  );
  const features = Object.entries(FEATURES).filter(([name]) => WITH_FIELDS.includes(name) && isInBuild(name));
  const fields = fieldsIn(await Promise.all(features.map(([, load]) => loadCode<object>(load))));
  const others = inForce.filter(({ name }) => !(name in KINDS));
  const body = Buffer.from(`${JSON.stringify(schemaDocument([...kinds, ...others], fields), null, 2)}\n`);
  const tag = `W/"${sourceDigest(body)}"`;
  return {
    plain: jsonReply(body, ["ETag", tag]),
    zipped: null,
    tag,
  };
}

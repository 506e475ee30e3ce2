/**
 * Serves the files of the management UI from memory: only exact file names are found, so no path leads outside its folder.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { headerValues, tokens, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

/** The reply for a normalised path ("/" is index.html), by If-None-Match and Accept-Encoding; null when there is no such file. */
export type FindFile = (path: string, headers: HeaderList) => Reply | null;

/** The reply with one content coding, created once. A strong validator belongs to one coding only (RFC 9110 §8.8.1). */
interface Representation {
  readonly tag: string;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

interface StaticFile {
  readonly plain: Representation;
  /** Null if compression saves nothing. */
  readonly gzip: Representation | null;
}

const TYPES: { readonly [extension: string]: string | undefined } = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** Throws with a sentence for the operator if the pages are missing. Default: the output of the build. */
export function readStaticFiles(folder: string = builtFolder()): FindFile {
  const files = new Map<string, StaticFile>();
  for (const name of namesIn(folder)) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (type !== undefined) files.set(`/${name}`, createFile(readFileSync(`${folder}/${name}`), type));
  }
  const index = files.get("/index.html");
  if (index === undefined) throw missing(folder);
  files.set("/", index);
  return (path, headers) => {
    const file = files.get(path);
    return file === undefined ? null : replyWith(file, headers);
  };
}

/** The compiled pages: beside this file once it is built, else at dist/lib/manager/assets. */
function builtFolder(): string {
  return fileURLToPath(new URL(import.meta.url.endsWith(".ts") ? "../../dist/lib/manager/assets" : "assets", import.meta.url));
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") throw missing(folder);
    throw new Error(`the pages of the management UI cannot be read: ${(error as Error).message}`);
  }
}

function missing(folder: string): Error {
  return new Error(`the pages of the management UI have not been built: ${folder} has no index.html; run npm run build`);
}

function createFile(content: Buffer, type: string): StaticFile {
  const zipped = gzipSync(content, { level: 9 });
  const digest = createHash("sha256").update(content).digest("base64url").slice(0, 22);
  return {
    plain: representation(content, type, `"${digest}"`, []),
    gzip: zipped.length < content.length ? representation(zipped, type, `"${digest}-gzip"`, ["Content-Encoding", "gzip"]) : null,
  };
}

function representation(body: Buffer, type: string, tag: string, coding: HeaderList): Representation {
  return { tag, body, headers: ["Content-Type", type, "Content-Length", String(body.length), ...coding, ...validators(tag)] };
}

/** Revalidated at every use, for the cost of a 304: an upgrade must not leave old scripts beside new ones. */
function validators(tag: string): HeaderList {
  return ["ETag", tag, "Cache-Control", "no-cache", "Vary", "Accept-Encoding"];
}

function replyWith({ plain, gzip }: StaticFile, headers: HeaderList): Reply {
  const { tag, headers: own, body } = gzip !== null && acceptsGzip(headers) ? gzip : plain;
  return hasTag(headers, tag) ? { status: 304, headers: validators(tag), body: null } : { status: 200, headers: own, body };
}

/** By name only (RFC 9110 §12.5.3): "*" also accepts the uncompressed file. */
function acceptsGzip(headers: HeaderList): boolean {
  const gzip = tokens(headers, "accept-encoding").find((token) => /^gzip\s*(;|$)/.test(token));
  return gzip !== undefined && !/;\s*q\s*=\s*0(\.0*)?\s*$/.test(gzip);
}

/** If-None-Match compares weakly (RFC 9110 §13.1.2). Our tags contain no comma, so lists may be split at commas. */
function hasTag(headers: HeaderList, tag: string): boolean {
  const given = headerValues(headers, "if-none-match").flatMap((value) => value.split(","));
  return given.some((part) => ["*", tag, `W/${tag}`].includes(part.trim()));
}

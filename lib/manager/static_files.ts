/**
 * The files of the management UI, all of them in memory: what is not in this folder by name cannot be asked for, whatever the path.
 * Headers that every answer has, and who passes requests on, are `endpoints.ts`.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { headerValues, tokens, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

export interface StaticFiles {
  /** The answer for a normalised path ("/" is index.html), by If-None-Match and Accept-Encoding; null when there is no such file. */
  find(path: string, headers: HeaderList): Reply | null;
}

/** Throws with a sentence for the operator when the pages are not there. Default: where the build puts them. */
export function readStaticFiles(folder: string = builtFolder()): StaticFiles {
  const files = new Map<string, StaticFile>();
  for (const name of namesIn(folder)) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (type !== undefined) files.set(`/${name}`, createFile(readFileSync(`${folder}/${name}`), type));
  }
  const index = files.get("/index.html");
  if (index === undefined) throw missing(folder);
  files.set("/", index);
  return {
    find(path, headers) {
      const file = files.get(path);
      return file === undefined ? null : answer(file, headers);
    },
  };
}

interface StaticFile {
  readonly plain: Representation;
  /** Null where compression saves nothing. */
  readonly gzip: Representation | null;
}

/** The answer for one content coding, made once. A strong validator belongs to one coding only (RFC 9110 §8.8.1). */
interface Representation {
  readonly tag: string;
  readonly headers: HeaderList;
  readonly body: Buffer;
}

const TYPES: { readonly [ending: string]: string | undefined } = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/** Run from its sources, this file stands at lib/manager/ and the compiled pages at dist/lib/manager/assets/; once built, beside it. */
function builtFolder(): string {
  const fromSources = import.meta.url.endsWith(".ts");
  return fileURLToPath(new URL(fromSources ? "../../dist/lib/manager/assets" : "assets", import.meta.url));
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
  return new Error(`the pages of the management UI have not been built: ${folder} has no index.html; npm run build makes them`);
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
  const length = ["Content-Type", type, "Content-Length", String(body.length), ...coding];
  // An upgrade must not leave old scripts beside new ones: every use is asked about, and costs a 304.
  return { tag, body, headers: [...length, "ETag", tag, "Cache-Control", "no-cache", "Vary", "Accept-Encoding"] };
}

function answer({ plain, gzip }: StaticFile, headers: HeaderList): Reply {
  const chosen = gzip !== null && acceptsGzip(headers) ? gzip : plain;
  if (!hasTag(headers, chosen.tag)) return { status: 200, headers: chosen.headers, body: chosen.body };
  return { status: 304, headers: ["ETag", chosen.tag, "Cache-Control", "no-cache", "Vary", "Accept-Encoding"], body: null };
}

/** By name only (RFC 9110 §12.5.3); who says "*" gets the file as it is, which is just as right. */
function acceptsGzip(headers: HeaderList): boolean {
  for (const token of tokens(headers, "accept-encoding")) {
    const [coding, weight = ""] = token.split(";", 2);
    if (coding!.trim() === "gzip") return !/^\s*q\s*=\s*0(\.0*)?\s*$/.test(weight);
  }
  return false;
}

/** If-None-Match compares weakly (RFC 9110 §13.1.2). Our tags hold no comma, so that lists may be cut at them. */
function hasTag(headers: HeaderList, tag: string): boolean {
  for (const value of headerValues(headers, "if-none-match")) {
    for (const part of value.split(",")) {
      const given = part.trim();
      if (given === "*" || given === tag || given === `W/${tag}`) return true;
    }
  }
  return false;
}

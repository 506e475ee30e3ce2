/**
 * Serves the files of the management UI from memory: only exact file names are found, so no path leads outside its
 * folder.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { acceptsGzip } from "../http/content_coding.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";

/**
 * The reply for a normalised path ("/" is index.html), by If-None-Match and Accept-Encoding; null when there is no such
 * file.
 */
export type FindFile = (path: string, headers: HeaderList) => Reply | null;

const TYPES: { readonly [extension: string]: string | undefined } = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

/**
 * Throws with a sentence for the operator if the pages are missing. Default: the output of the build. `traceUrl`: for
 * links, as in `ManagerOptions`.
 */
export function readStaticFiles(folder: string = builtFolder(), traceUrl: string | null = null): FindFile {
  const contents = new Map<string, Buffer>();
  for (const name of namesIn(folder))
    if (typeOf(name) !== undefined) contents.set(name, readFileSync(`${folder}/${name}`));
  const index = contents.get("index.html");
  if (index === undefined) throw missing(folder);
  const all = createHash("sha256");
  for (const [name, content] of contents) all.update(`${name} ${content.length} `).update(content);
  const release = all.digest("base64url").slice(0, 16);
  const files = new Map<string, ReturnType<typeof createFile>>();
  for (const [name, content] of contents) {
    files.set(`/${name}`, createFile(content, typeOf(name)!, REVALIDATED));
    // Modules import each other from beside them, so one release of them never meets another.
    files.set(`/${release}/${name}`, createFile(content, typeOf(name)!, IMMUTABLE));
  }
  const page = createFile(
    Buffer.from(indexOf(index.toString(), release, contents, traceUrl)),
    typeOf("index.html")!,
    REVALIDATED,
  );
  for (const path of ["/", "/index.html"]) files.set(path, page);
  return (path, headers) => {
    const file = files.get(path);
    return file === undefined ? null : replyWith(file, headers);
  };
}

/**
 * The page with its files below the release's own path. All modules that its scripts import are named, so that a
 * browser asks for them at once; those of `import("./x.js")` are for later. `traceUrl` is in the page, too: a UI by
 * itself has nothing else to say it with.
 */
function indexOf(
  html: string,
  release: string,
  contents: ReadonlyMap<string, Buffer>,
  traceUrl: string | null,
): string {
  const scripts = [...html.matchAll(/ src="([\w.]+)"/g)].map(([, name]) => name!);
  const needed = new Set(scripts);
  for (const name of needed)
    for (const [, from] of String(contents.get(name) ?? "").matchAll(IMPORT))
      if (contents.has(from!)) needed.add(from!);
  const preloads = [...needed]
    .filter((name) => !scripts.includes(name))
    .map((name) => `    <link rel="modulepreload" href="${release}/${name}">\n`);
  const versioned = html.replace(/(?<=(?:src|href)=")(?=[\w.]+")/g, `${release}/`);
  const trace =
    traceUrl === null
      ? ""
      : `    <meta name="trace-url" content="${traceUrl.replace(/[&"<]/g, (sign) => `&#${sign.charCodeAt(0)};`)}">\n`;
  return versioned.replace(/ *<\/head>/, (end) => preloads.join("") + trace + end);
}

const IMPORT = /^(?:import|export)\s(?:[^;"]*\sfrom\s)?"\.\/([\w.]+)"/gm;

function typeOf(name: string): string | undefined {
  return TYPES[name.slice(name.lastIndexOf(".") + 1)];
}

/** The compiled pages: beside this file once it is built, else at dist/lib/manager/assets. */
function builtFolder(): string {
  return fileURLToPath(
    new URL(import.meta.url.endsWith(".ts") ? "../../dist/lib/manager/assets" : "assets", import.meta.url),
  );
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).sort();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") throw missing(folder);
    throw new Error(`the pages of the management UI cannot be read: ${(error as Error).message}`);
  }
}

function missing(folder: string): Error {
  return new Error(
    `the pages of the management UI have not been built: ${folder} has no index.html; run npm run build`,
  );
}

/** `gzip`: null if compression saves nothing. */
function createFile(content: Buffer, type: string, caching: string) {
  const zipped = gzipSync(content, { level: 9 });
  const digest = createHash("sha256").update(content).digest("base64url").slice(0, 22);
  return {
    plain: representation(content, `"${digest}"`, caching, ["Content-Type", type]),
    gzip:
      zipped.length < content.length
        ? representation(zipped, `"${digest}-gzip"`, caching, ["Content-Type", type, "Content-Encoding", "gzip"])
        : null,
  };
}

/** The reply with one content coding. A strong validator belongs to one coding only (RFC 9110 §8.8.1). */
function representation(body: Buffer, tag: string, caching: string, type: HeaderList) {
  const validators = ["ETag", tag, "Cache-Control", caching, "Vary", "Accept-Encoding"];
  return { tag, body, validators, headers: [...type, "Content-Length", String(body.length), ...validators] };
}

/** At every use, for the cost of a 304. */
const REVALIDATED = "no-cache";
/** RFC 8246; for paths that name the content. */
const IMMUTABLE = "max-age=31536000, immutable";

function replyWith({ plain, gzip }: ReturnType<typeof createFile>, headers: HeaderList): Reply {
  const { tag, headers: own, validators, body } = gzip !== null && acceptsGzip(headers) ? gzip : plain;
  return hasTag(headers, tag) ? { status: 304, headers: validators, body: null } : { status: 200, headers: own, body };
}

/** If-None-Match compares weakly (RFC 9110 §13.1.2). Our tags contain no comma, so lists may be split at commas. */
function hasTag(headers: HeaderList, tag: string): boolean {
  const given = headerValues(headers, "if-none-match").flatMap((value) => value.split(","));
  return given.some((part) => ["*", tag, `W/${tag}`].includes(part.trim()));
}

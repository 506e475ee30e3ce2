import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { headerValue, type HeaderList } from "../../lib/http/headers.ts";
import { readStaticFiles } from "../../lib/manager/static_files.ts";
import { emptyFolder } from "../support/process.ts";

const LONG = "a { color: red }\n".repeat(100);

function folder(): string {
  const path = emptyFolder();
  writeFileSync(join(path, "index.html"), "<p>");
  writeFileSync(join(path, "style.css"), LONG);
  writeFileSync(join(path, "main.js"), LONG);
  writeFileSync(join(path, "icon.svg"), LONG);
  writeFileSync(join(path, "main.d.ts"), "secret");
  writeFileSync(join(path, ".env"), "secret");
  mkdirSync(join(path, "deep"));
  writeFileSync(join(path, "deep", "other.js"), "secret");
  return path;
}

const tagOf = (reply: { headers: HeaderList } | null) => headerValue(reply!.headers, "etag")!;

describe("the files of the management UI", () => {
  it.each([
    ["/", "text/html; charset=utf-8", "<p>"],
    ["/index.html", "text/html; charset=utf-8", "<p>"],
    ["/style.css", "text/css; charset=utf-8", LONG],
    ["/main.js", "text/javascript; charset=utf-8", LONG],
    ["/icon.svg", "image/svg+xml", LONG],
  ])("the files of the management UI include %s as %s, revalidated at each use", (path, type, content) => {
    const reply = readStaticFiles(folder())(path, [])!;
    expect(reply.status).toBe(200);
    expect(String(reply.body)).toBe(content);
    expect(headerValue(reply.headers, "content-type")).toBe(type);
    expect(headerValue(reply.headers, "content-length")).toBe(String(content.length));
    expect(headerValue(reply.headers, "cache-control")).toBe("no-cache");
    expect(headerValue(reply.headers, "vary")).toBe("Accept-Encoding");
    expect(headerValue(reply.headers, "content-encoding")).toBeUndefined();
  });

  it.each([
    "/main.d.ts",
    "/.env",
    "/deep/other.js",
    "/deep",
    "/style.css/",
    "/STYLE.css",
    "/../static_files.ts",
    "/style.css.gz",
    "",
    "/__proto__",
    "/constructor",
  ])("the files of the management UI do not include %j", (path) => {
    expect(readStaticFiles(folder())(path, [])).toBeNull();
  });

  it.each(["gzip", "br, GZIP;q=0.5", "deflate,gzip ; q=1.0"])(
    "the files of the management UI have a gzip coding for Accept-Encoding: %s",
    (accepted) => {
      const reply = readStaticFiles(folder())("/style.css", ["Accept-Encoding", accepted])!;
      expect(headerValue(reply.headers, "content-encoding")).toBe("gzip");
      expect(headerValue(reply.headers, "content-length")).toBe(String((reply.body as Buffer).length));
      expect(gunzipSync(reply.body as Buffer).toString()).toBe(LONG);
    },
  );

  it.each(["br", "gzip;q=0", "gzip; q=0.000", "identity, *", ""])(
    "the files of the management UI stay uncompressed for Accept-Encoding: %s",
    (accepted) => {
      expect(String(readStaticFiles(folder())("/style.css", ["Accept-Encoding", accepted])!.body)).toBe(LONG);
    },
  );

  it("the files of the management UI stay uncompressed when compression saves nothing", () => {
    expect(String(readStaticFiles(folder())("/", ["Accept-Encoding", "gzip"])!.body)).toBe("<p>");
  });

  it("the files of the management UI get 304 for the tag of the same coding, alone, weak, in a list, or *", () => {
    const files = readStaticFiles(folder());
    const tag = tagOf(files("/style.css", []));
    for (const given of [tag, `W/${tag}`, `"x", ${tag}`, "*"]) {
      const reply = files("/style.css", ["If-None-Match", given])!;
      expect([reply.status, reply.body, tagOf(reply)]).toEqual([304, null, tag]);
      expect(headerValue(reply.headers, "content-length")).toBeUndefined();
    }
    const zipped = tagOf(files("/style.css", ["Accept-Encoding", "gzip"]));
    expect(zipped).not.toBe(tag);
    expect(files("/style.css", ["If-None-Match", zipped])!.status).toBe(200);
    expect(files("/style.css", ["If-None-Match", zipped, "Accept-Encoding", "gzip"])!.status).toBe(304);
  });

  it("the files of the management UI have a tag of their content, which a restart keeps", () => {
    const path = folder();
    const before = tagOf(readStaticFiles(path)("/style.css", []));
    expect(tagOf(readStaticFiles(path)("/style.css", []))).toBe(before);
    writeFileSync(join(path, "style.css"), `${LONG} `);
    expect(tagOf(readStaticFiles(path)("/style.css", []))).not.toBe(before);
  });

  it(
    "the files of the management UI are named by the page below a path of their release, which browsers keep, " +
      "and which changes with any of them",
    () => {
      const path = folder();
      writeFileSync(
        join(path, "index.html"),
        '<head><link href="style.css"><script type="module" src="main.js"></script></head><a href="#/">',
      );
      writeFileSync(join(path, "main.js"), 'import { a } from "./a.js";');
      for (const name of ["a.js", "unused.js"]) writeFileSync(join(path, name), LONG);
      const pageOf = (files: ReturnType<typeof readStaticFiles>) => String(files("/", [])!.body);
      const files = readStaticFiles(path);
      const [, release] = /<link href="([\w-]{16})\/style\.css">/.exec(pageOf(files))!;
      expect(pageOf(files)).toBe(
        `<head><link href="${release}/style.css"><script type="module" src="${release}/main.js"></script>    ` +
          `<link rel="modulepreload" href="${release}/a.js">\n</head><a href="#/">`,
      );
      const script = files(`/${release}/a.js`, [])!;
      expect([String(script.body), headerValue(script.headers, "cache-control")]).toEqual([
        LONG,
        "max-age=31536000, immutable",
      ]);
      expect(headerValue(files("/", [])!.headers, "cache-control")).toBe("no-cache");
      writeFileSync(join(path, "style.css"), "other");
      const later = readStaticFiles(path);
      expect(pageOf(later)).not.toBe(pageOf(files));
      expect(later(`/${release}/a.js`, [])).toBeNull();
    },
  );

  it("the files of the management UI stay as they were at the start, whatever changes on disk", () => {
    const path = folder();
    const files = readStaticFiles(path);
    writeFileSync(join(path, "style.css"), "other");
    writeFileSync(join(path, "late.js"), "other");
    expect(String(files("/style.css", [])!.body)).toBe(LONG);
    expect(files("/late.js", [])).toBeNull();
  });

  it("the files of the management UI lead to an error that names the build command if they have not been built", () => {
    const empty = emptyFolder();
    expect(() => readStaticFiles(join(empty, "none"))).toThrow(
      /have not been built: .*none has no index\.html; run npm run build$/,
    );
    expect(() => readStaticFiles(empty)).toThrow(/npm run build/);
  });

  it(
    "the files of the management UI name all that the first page imports, and what its modules import, " +
      "but not what they load later",
    () => {
      const path = folder();
      writeFileSync(join(path, "index.html"), '<head><script type="module" src="main.js"></script></head>');
      writeFileSync(
        join(path, "main.js"),
        'import { a,\n  b } from "./a.js";\nimport "./c.js";\nconst later = () ' +
          '=> import("./later.js");\n// from "./comment.js"\n',
      );
      writeFileSync(
        join(path, "a.js"),
        'export { d } from "./d.js";\nimport { main } from "./main.js";\nimport "./missing.js";',
      );
      for (const name of ["c.js", "d.js", "later.js", "comment.js"]) writeFileSync(join(path, name), LONG);
      const named = [
        ...String(readStaticFiles(path)("/", [])!.body).matchAll(/modulepreload" href="[\w-]{16}\/([\w.]+)"/g),
      ].map(([, name]) => name);
      expect(named).toEqual(["a.js", "c.js", "d.js"]);
    },
  );

  it("the files of the management UI say in the page where traces are, and nothing about them without a URL", () => {
    const path = folder();
    writeFileSync(join(path, "index.html"), "<head></head>");
    const pageOf = (url?: string) => String(readStaticFiles(path, url)("/", [])!.body);
    expect(pageOf()).toBe("<head></head>");
    const escaped = "https://t.example/$1?q=&#34;>&#60;script>&#38;id={trace_id}";
    expect(pageOf('https://t.example/$1?q="><script>&id={trace_id}')).toBe(
      `<head>    <meta name="trace-url" content="${escaped}">\n</head>`,
    );
  });

  it(
    "the files of the management UI contain all files of the build, and less than 60 KiB in the first load: " +
      "pages come when they are opened",
    () => {
      const files = readStaticFiles();
      const html = String(files("/", [])!.body);
      const built = fileURLToPath(new URL("../../dist/lib/manager/assets/", import.meta.url));
      const asked = new Set(["/", ...[...html.matchAll(/(?:src|href)="([\w./-]+)"/g)].map(([, name]) => `/${name}`)]);
      const importedBy = (name: string) =>
        [...readFileSync(join(built, name), "utf8").matchAll(/(?:from |import\()"\.\/([\w.]+)"/g)].map(
          ([, from]) => from!,
        );
      const reachable = new Set(["main.js"]);
      for (const name of reachable) for (const from of importedBy(name)) reachable.add(from);
      const scripts = readdirSync(built).filter((name) => name.endsWith(".js"));
      // Modules of types alone are empty.
      expect(
        scripts.filter(
          (name) => !reachable.has(name) && !/^(?:export \{\};?)?\s*$/.test(readFileSync(join(built, name), "utf8")),
        ),
      ).toEqual([]);
      expect([...reachable].filter((name) => files(`/${name}`, []) === null)).toEqual([]);
      let bytes = 0;
      for (const path of asked) {
        const reply = files(path, ["Accept-Encoding", "gzip"]);
        expect(reply, path).not.toBeNull();
        bytes += (reply!.body as Buffer).length;
      }
      expect(asked.size).toBeGreaterThan(4);
      expect([...asked].some((path) => path.endsWith("/tests_page.js"))).toBe(false);
      expect(bytes).toBeLessThan(60 * 1024);
    },
  );
});

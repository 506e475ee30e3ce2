/**
 * The schema of files whose content decides, with their SHA-256, and what of them can be read in a configuration with
 * errors.
 */
import { hash } from "node:crypto";
import { itemsOf, listedIssues, nodeAt, type JsonNode, type Path } from "./json.ts";
import * as s from "./whole_schema.ts";
import { parsedFrom, sourcesFor, type ConfigSource, type ReadOptions } from "./source.ts";

const FILE = s.file();

const SHA256 = s.string({
  pattern: /^[0-9a-fA-F]{64}$/,
  hint: "64 hex digits",
  references: "none",
  lowerCase: true,
  describe: "SHA-256 of the file, in hexadecimal.",
});

const REPIN = "once you trust the file, run edge-gateway pin FILE";

/** `path` with `sha256`. A file with another digest is reported. */
export function pinnedFile(describe: string) {
  return s.object(
    { path: s.file({ describe }), sha256: SHA256 },
    {
      refine({ path: file, sha256 }, report) {
        const found = hash("sha256", file.content);
        if (found !== sha256) report(`is not the digest of ${file.path}: its SHA-256 is ${found}; ${REPIN}`, "sha256");
      },
    },
  );
}

/** A path, or `path` with `sha256`. */
export function listedFile(describe: string) {
  return s.anyOf([s.file({ describe }), pinnedFile(describe)], { describe });
}

export type ListedFile = s.Infer<ReturnType<typeof listedFile>>;

export function contentOf(file: ListedFile): s.NamedFile {
  return "sha256" in file ? file.path : file;
}

/**
 * Reports a file that has no digest in a configuration that must be signed: who can write files could otherwise bring
 * back an older one. Returns whether it did.
 */
export function reportUnpinned(file: ListedFile, at: Path, node: JsonNode | undefined, context: s.CheckContext) {
  if ("sha256" in file) return false;
  const message = `has no SHA-256, which a signed configuration needs: ${PIN_REMEDY}`;
  const position = context.positionOf?.(node?.offset ?? -1) ?? null;
  context.issues.push({ at, message, position, isSignature: true });
  return true;
}

/** FILE is at the beginning of the line of an error. */
const PIN_REMEDY = "run edge-gateway pin FILE, then edge-gateway sign FILE --key private.pem";

/** The path of an item of a list of files as it is written; undefined: it has none. */
export function writtenPath(item: JsonNode): string | undefined {
  const path = item.kind === "object" ? item.members.get("path") : item;
  return path?.kind === "string" ? path.value : undefined;
}

const LISTS = [["global", "plugin_modules"], ["caller_files"], ["test_files"]] as const;

/**
 * The plugin modules and the files of callers and tests of a configuration, whatever their digests; "missing": those
 * without one. Other errors are ignored.
 */
export function pinnedFilesOf(source: ConfigSource, options: ReadOptions, which: "all" | "missing") {
  const { node: root, positionOf } = parsedFrom(source);
  const context: s.CheckContext = { issues: [], positionOf, sources: sourcesFor(source, options) };
  const files = LISTS.flatMap((list) =>
    itemsOf(root === null ? undefined : nodeAt(root, list)).flatMap((node, i) => {
      const at = [...list, i];
      if (node.kind !== "object" && (node.kind !== "string" || list[0] === "global"))
        return (s.report(context, at, node, "expected an object with path and sha256"), []);
      const members = node.kind === "object" ? node.members : null;
      const sha256 = members?.get("sha256");
      if (sha256 !== undefined && sha256.kind !== "string")
        s.report(context, [...at, "sha256"], sha256, "expected a string");
      if (which === "missing" && sha256 !== undefined) return [];
      const path = members === null ? node : members.get("path");
      const file =
        path === undefined
          ? s.report(context, [...at, "path"], node, "is required")
          : FILE.check(path, members === null ? at : [...at, "path"], context);
      return file === s.INVALID ? [] : [{ at, node, file }];
    }),
  );
  return { files, issues: listedIssues(context.issues) };
}

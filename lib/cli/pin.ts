/**
 * `edge-gateway pin`: writes the digests of plugin modules, callers and tests into the configuration that names their
 * files. It runs no module.
 */
import { hash } from "node:crypto";
import { existsSync, realpathSync, statSync } from "node:fs";
import { atOnce } from "../base/time_slices.ts";
import { formatPath, listedIssues, type JsonNode } from "../config/json.ts";
import { parseJson } from "../config/json_parser.ts";
import { FileTextSource } from "../config/file_source.ts";
import { parsed, textSteps } from "../config/source.ts";
import { pinnedFilesOf } from "../config/pinned_file.ts";
import * as references from "../config/references.ts";
import { hasScheme } from "../config/start_settings.ts";
import { ConfigError } from "../gateway/config_error.ts";
import type { RunCommand } from "./arguments.ts";
import { namedFile } from "./config_file.ts";
import { Failure } from "./failure.ts";
import { writeWhole } from "./named_files.ts";
import { printable } from "./terminal.ts";

interface Edit {
  readonly at: number;
  readonly end: number;
  readonly text: string;
}

export const pin: RunCommand = async (given) => {
  const file = namedFile(given);
  refuseUrl("pin", file, "edge-gateway pin gw.json");
  if (/\.[cm]?js$/.test(file))
    throw new Failure(`${file} is a module: name the configuration that names it, edge-gateway pin gw.json`, 2);
  const { lines, isChanged } = pinFiles(file, "all");
  if (lines.length === 0)
    throw new Failure(
      `${file} names no plugin modules (global.plugin_modules) and no files of callers and tests ` +
        `(caller_files, test_files): there is nothing to pin`,
      2,
    );
  const signature = existsSync(`${file}.sig`) ? `; sign it again, ${file}.sig is of the text before` : "";
  lines.push(
    isChanged ? `${file} is written: it trusts these files now${signature}` : `${file} has these digests already`,
  );
  process.stdout.write(printable(lines));
  return 0;
};

/** For a command that writes files. `instead`: what to do. The URL is not repeated: it may have a password. */
export function refuseUrl(command: "pin" | "sign", file: string, instead: string): void {
  if (!hasScheme(file)) return;
  throw new Failure(
    `${command} writes a file, and what is named is a URL: ${command} the file before it is put there (${instead})`,
    2,
  );
}

/**
 * Writes the digests of the files that a configuration names into it; "missing": of those alone that have none. Returns
 * a line for each.
 */
export function pinFiles(
  file: string,
  which: "all" | "missing",
): { readonly lines: string[]; readonly isChanged: boolean } {
  const read = atOnce(textSteps(new FileTextSource(file, null)));
  if (!read.ok) throw new ConfigError(read.issues, file);
  // As a whole: edits are made at the offsets of its values.
  const document = parseJson(read.text);
  parsed.set(read, document);
  const { issues: inText } = document;
  const { files, issues } = pinnedFilesOf(read, { references, environment: process.env }, which);
  if (inText.length + issues.length > 0) throw new ConfigError(inText.length > 0 ? listedIssues(inText) : issues, file);
  const [, mark, text] = /^(\uFEFF?)([^]*)$/.exec(read.text.toString()) as unknown as [string, string, string];
  const lines: string[] = [];
  const edits: Edit[] = [];
  for (const { at, node, file: named } of files) {
    const found = hash("sha256", named.content);
    const written = node.kind === "object" ? node.members.get("sha256") : undefined;
    const before = written?.kind === "string" ? written.value : undefined;
    const isSame = before?.toLowerCase() === found;
    lines.push(
      `${formatPath([...at, "sha256"])} of ${named.path}: ${found}, ` +
        `${isSame ? "as before" : `was ${before ?? "missing"}`}`,
    );
    if (!isSame) edits.push(editOf(text, node, found));
  }
  if (edits.length > 0) {
    edits.sort((a, b) => a.at - b.at);
    write(
      file,
      mark + edits.reduceRight((edited, edit) => edited.slice(0, edit.at) + edit.text + edited.slice(edit.end), text),
    );
  }
  return { lines, isChanged: edits.length > 0 };
}

/** Replaces the digest, or adds it behind the path, on a line of its own if the path has one. */
function editOf(text: string, node: JsonNode, digest: string): Edit {
  if (node.kind !== "object") {
    const { at, end } = stringAt(text, node.offset);
    return { at, end, text: `{ "path": ${text.slice(at, end)}, "sha256": "${digest}" }` };
  }
  const there = node.members.get("sha256");
  if (there !== undefined) return { ...stringAt(text, there.offset), text: `"${digest}"` };
  const path = node.members.get("path")!;
  const { end } = stringAt(text, path.offset);
  const space = /\s*$/.exec(text.slice(0, path.keyOffset))![0];
  return { at: end, end, text: `,${space.includes("\n") ? space : " "}"sha256": "${digest}"` };
}

function stringAt(text: string, at: number): { readonly at: number; readonly end: number } {
  const string = /"(?:[^"\\]|\\.)*"/y;
  string.lastIndex = at;
  return { at, end: at + string.exec(text)![0].length };
}

/** In place of the file itself, where `file` is a link. */
function write(file: string, text: string): void {
  const real = realpathSync(file);
  const { mode } = statSync(real);
  writeWhole(real, text, mode);
}

/**
 * `edge-gateway verify`: checks that a folder is a release, or a build, as it was signed: the signature of its
 * SHA256SUMS, and every file.
 */
import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open, readdir, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { verifySignature } from "../base/signature.ts";
import { whyUnreadable } from "../base/regular_file.ts";
import type { RunCommand } from "./arguments.ts";
import { counted } from "./counted.ts";
import { Failure } from "./failure.ts";
import { readNamedFile } from "./named_files.ts";
import { printable, withoutControls } from "./terminal.ts";

export const SUMS = "SHA256SUMS";
/** What a build says of itself. */
export const AUDIT = "AUDIT.md";
const SIGNATURE = `${SUMS}.sig`;
/** A list of checksums, or a signature. */
const MAX_BYTES = 1024 * 1024;

/** Reports every file that is wrong. With a key, nothing in SHA256SUMS is used before its signature is verified. */
export const verify: RunCommand = async (given) => {
  const [folder] = given.operands;
  const { key } = given.flags;
  if (
    folder !== undefined &&
    (await stat(folder).then(
      (found) => !found.isDirectory(),
      () => false,
    ))
  )
    throw new Failure(
      `${folder} (DIR) is a file, and verify checks the folder of a release: ` +
        `for a signed configuration use edge-gateway validate FILE --config-key public.pem`,
      2,
    );
  if (folder === undefined) throw new Failure(USAGE, 2);
  const keys = key === undefined ? null : readNamedFile(String(key), "--key", "public key").toString("latin1");
  const names = await readdir(folder).catch((error: unknown) => {
    if (keys === null) throw new Failure(USAGE, 2);
    throw new Failure(`cannot read the folder ${folder} (DIR): ${whyUnreadable(error)}`, 2);
  });
  // Only a build need not be signed: it was made where it is used.
  if (keys === null && (!names.includes(AUDIT) || names.includes(SIGNATURE))) throw new Failure(USAGE, 2);
  const text = await readSmall(folder, SUMS);
  const signer = keys === null ? null : await signerOf(folder, text, keys, String(key));
  const sums = readSums(text, join(folder, SUMS));
  const { files, others } = await listed(folder, sums);
  const problems: string[] = [];
  for (const name of files) {
    const problem = await fileProblem(join(folder, name), sums.get(name)!);
    if (problem !== undefined) problems.push(`${join(folder, name)} ${problem}`);
  }
  problems.push(
    ...others.map((name) => `${join(folder, name)} is not listed in ${SUMS}: it is no part of the release; remove it`),
  );
  if (problems.length > 0) throw failure(problems, 1);
  const as =
    signer === null
      ? `as ${SUMS} lists them; it is not signed: whoever can change a file here can change the list, too`
      : `as signed with the key whose SHA-256 is ${signer}`;
  process.stdout.write(
    printable([...[...sums.keys()].map((name) => `${name}: OK`), `${counted(sums.size, "file")} ${as}`]),
  );
  return 0;
};

const USAGE = "verify needs a folder and a public key: edge-gateway verify DIR --key public.pem";

/** The fingerprint of the key that has signed. Throws a `Failure`. */
async function signerOf(folder: string, text: Buffer, keys: string, keyFile: string): Promise<string> {
  const verified = verifySignature(text, String(await readSmall(folder, SIGNATURE)), keys);
  if (verified.problem === undefined) return verified.signer.fingerprint;
  const file = { content: join(folder, SUMS), signature: join(folder, SIGNATURE), keys: `${keyFile} (--key)` }[
    verified.file
  ];
  throw failure([`${file} ${verified.problem}`], verified.file === "keys" ? 2 : 1);
}

/**
 * The files of the list, and what else is in the folder, and in those that the list names. A link to a folder is no
 * folder.
 */
async function listed(
  folder: string,
  sums: ReadonlyMap<string, string>,
): Promise<{ readonly files: readonly string[]; readonly others: readonly string[] }> {
  const folders = new Set(
    [...sums.keys()].flatMap((name) => [...name.matchAll(/\//g)].map(({ index }) => name.slice(0, index))),
  );
  const others: string[] = [];
  const links: string[] = [];
  const visit = async (above: string) => {
    for (const entry of (await readdir(join(folder, above), { withFileTypes: true })).sort((a, b) =>
      a.name < b.name ? -1 : 1,
    )) {
      const name = above + entry.name;
      if (folders.has(name) && entry.isDirectory()) await visit(`${name}/`);
      else if (name !== SUMS && name !== SIGNATURE && !sums.has(name)) others.push(name);
      if (folders.has(name) && !entry.isDirectory()) links.push(`${name}/`);
    }
  };
  await visit("");
  return { files: [...sums.keys()].filter((name) => !links.some((link) => name.startsWith(link))), others };
}

function failure(problems: readonly string[], exitCode: 1 | 2): Failure {
  return new Failure(problems.map(withoutControls).join("\nedge-gateway: "), exitCode);
}

/** The checksums by file name, as `sha256sum` writes them. Throws a `Failure` with every wrong line. */
export function readSums(bytes: Buffer, path: string): ReadonlyMap<string, string> {
  const sums = new Map<string, string>();
  const problems: string[] = [];
  bytes
    .toString("utf8")
    .replace(/\n$/, "")
    .split("\n")
    .forEach((line, i) => {
      const [, sum, name = ""] = LINE.exec(line) ?? [];
      let problem: string | undefined;
      if (line.endsWith("\r")) problem = "the line ends as on Windows (CR LF); sha256sum ends it with LF";
      else if (sum === undefined)
        problem = "not 64 hexadecimal digits, two spaces and a file name, as sha256sum writes them";
      else if (/[\\\u0000]/.test(name) || name.split("/").some((step) => step === "" || step === "." || step === ".."))
        problem = "the name leads to another folder; a release lists only files of its own folder";
      else if (sums.has(name)) problem = `${name} is listed twice`;
      if (problem === undefined) sums.set(name, sum!);
      else problems.push(`${path}:${i + 1}: ${problem}`);
    });
  if (problems.length > 0) throw failure(problems, 1);
  return sums;
}

/** With " *" in place of two spaces sha256sum marks a file as binary, which changes nothing. */
const LINE = /^([0-9a-f]{64}) [ *]([^\r\n]+)$/;

/** Completes "the file …". Reads piece by piece: a file may be of any size. */
function fileProblem(path: string, sum: string): Promise<string | undefined> {
  return withFile(path, async (file) => {
    const hash = createHash("sha256");
    for await (const piece of file.createReadStream({ autoClose: false })) hash.update(piece as Buffer);
    return hash.digest("hex") === sum
      ? undefined
      : `has another SHA-256 than in ${SUMS}: it has changed since it was released`;
  });
}

/** Throws a `Failure` if the file is missing or large. */
async function readSmall(folder: string, name: string): Promise<Buffer> {
  const path = join(folder, name);
  const read = await withFile(path, async (file) =>
    (await file.stat()).size > MAX_BYTES ? `has more than ${MAX_BYTES} bytes` : file.readFile(),
  );
  if (typeof read === "string") throw failure([`${path} ${read}`], 1);
  return read;
}

/** A text completes "the file …". Never follows a link out of the folder, and never waits for a pipe. */
async function withFile<T>(path: string, use: (file: FileHandle) => Promise<T>): Promise<T | string> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    return (await file.stat()).isFile() ? await use(file) : "is not a file";
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ELOOP") return "is a symbolic link; a release has only files";
    return code === "ENOENT" ? "is missing" : `cannot be read: ${whyUnreadable(error)}`;
  } finally {
    await file?.close();
  }
}

/**
 * `edge-gateway sign`: writes the Ed25519 signature of a file beside it, as `FILE.sig`. A configuration first gets the
 * digests of the files that it names, as far as it has none.
 */
import { statSync } from "node:fs";
import { signatureOf } from "../base/signature.ts";
import type { RunCommand } from "./arguments.ts";
import { Failure } from "./failure.ts";
import { readNamedFile, writeWhole } from "./named_files.ts";
import { pinFiles, refuseUrl } from "./pin.ts";
import { printable } from "./terminal.ts";

/** Ed25519 needs the whole file in memory (RFC 8032 §5.1.6: it is hashed twice). */
const MAX_SIGNED_BYTES = 64 * 1024 * 1024;

export const sign: RunCommand = async (given) => {
  const [file] = given.operands;
  const { key } = given.flags;
  if (file === undefined || typeof key !== "string")
    throw new Failure("sign needs a file and a private key: edge-gateway sign FILE --key private.pem", 2);
  refuseUrl("sign", file, "edge-gateway sign gw.json --key private.pem; of etcd: publish --sign");
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size > MAX_SIGNED_BYTES)
    throw new Failure(
      `${file} has more than ${MAX_SIGNED_BYTES} bytes: sign its checksum instead (sha256sum FILE > SHA256SUMS)`,
      2,
    );
  const isConfig = isConfiguration(readNamedFile(file, "FILE", "file").toString());
  const pinned = isConfig ? pinFiles(file, "missing").lines : [];
  const signed = signatureOf(readNamedFile(file, "FILE", "file"), readNamedFile(key, "--key", "private key"));
  if (signed.problem !== undefined) throw new Failure(`${key} (--key) ${signed.problem}`, 2);
  writeWhole(`${file}.sig`, signed.signature);
  process.stdout.write(printable([...pinned, `${file}.sig is written; ${file} must not change any more`]));
  return 0;
};

/** Other files are signed as they are, such as SHA256SUMS. */
function isConfiguration(text: string): boolean {
  try {
    return "services" in Object(JSON.parse(text.replace(/^\uFEFF/, "")));
  } catch {
    return false;
  }
}

/**
 * Checks a file that must be signed: `gw.json` by `gw.json.sig` beside it, and by the public keys of a PEM file.
 */
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { resolve } from "node:path";
import { verifySignature } from "../base/signature.ts";
import { signatureFile, type CheckSignature, type SignatureCheck } from "./source.ts";

/** Accepts what one of the keys of this file has signed. Signature and keys are read anew at each call. */
export function signedBy(keyFile: string): CheckSignature {
  return (path, content) => checkSignature(path, content, keyFile);
}

function checkSignature(path: string, content: Uint8Array, keyFile: string): SignatureCheck {
  const [file, keys] = [resolve(path), resolve(keyFile)];
  const remedy = `sign it: edge-gateway sign ${file} --key private.pem`;
  const pem = readText(keys);
  if ("why" in pem)
    return {
      problem:
        `cannot read the public keys ${keys}: ${pem.why}; ` +
        `name their file with --config-key PATH or CONFIG_PUBLIC_KEY`,
    };
  const signature = readText(signatureFile(file));
  if ("why" in signature)
    return { problem: `${file} is not signed: cannot read ${signatureFile(file)}: ${signature.why}; ${remedy}` };
  const verified = verifySignature(content, signature.text, pem.text);
  if (verified.problem === undefined) return { signer: verified.signer.fingerprint };
  const { problem } = verified;
  const of = {
    content: `${file} ${problem}; ${remedy}`,
    signature: `${signatureFile(file)} ${problem}; ${remedy}`,
    keys: `${keys} (CONFIG_PUBLIC_KEY) ${problem}`,
  };
  return { problem: of[verified.file] };
}

function readText(path: string): { readonly text: string } | { readonly why: string } {
  try {
    return { text: readRegularFile(path).toString("latin1") };
  } catch (error) {
    return { why: whyUnreadable(error) };
  }
}

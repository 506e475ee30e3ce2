/**
 * Checks a file that must be signed: `gw.json` by `gw.json.sig` beside it, and by the public keys of a PEM file.
 */
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { resolve } from "node:path";
import { verifySignature } from "../base/signature.ts";
import { hasScheme } from "./start_settings.ts";
import { signatureFile, type CheckSignature, type SignatureCheck } from "./source.ts";

/** Accepts what one of the keys of this file has signed. Signature and keys are read anew at each call. */
export function signedBy(keyFile: string): CheckSignature {
  return (path, content, received) =>
    received === undefined
      ? checkSignature(resolve(path), content, readText(signatureFile(resolve(path))), keyFile)
      : checkSignature(path, content, received === null ? { why: "there is none" } : { text: received }, keyFile);
}

type Read = { readonly text: string } | { readonly why: string };

function checkSignature(file: string, content: Uint8Array, signature: Read, keyFile: string): SignatureCheck {
  const keys = resolve(keyFile);
  const remedy = `sign it: edge-gateway sign ${hasScheme(file) ? "FILE" : file} --key private.pem`;
  const pem = readText(keys);
  if ("why" in pem)
    return {
      problem:
        `cannot read the public keys ${keys}: ${pem.why}; ` +
        `name their file with --config-key PATH or CONFIG_PUBLIC_KEY`,
    };
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

function readText(path: string): Read {
  try {
    return { text: readRegularFile(path).toString("latin1") };
  } catch (error) {
    return { why: whyUnreadable(error) };
  }
}

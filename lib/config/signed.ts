/**
 * Checks a text that must be signed: `gw.json` by `gw.json.sig` beside it, and by the public keys of a PEM file.
 */
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { resolve } from "node:path";
import { verifySignature } from "../base/signature.ts";
import { hasScheme } from "./start_settings.ts";
import type { CheckSignature, SignatureCheck } from "./source.ts";
import type { SourceText } from "./text_source.ts";

/** Accepts what one of the keys of this file has signed. The keys are read anew at each call. */
export function signedBy(keyFile: string): CheckSignature {
  return (name, read) => checkSignature(hasScheme(name) ? name : resolve(name), read, resolve(keyFile));
}

function checkSignature(file: string, read: SourceText, keys: string): SignatureCheck {
  const { text, signature, whyUnsigned = "there is none" } = read;
  const signatureFile = `${file}.sig`;
  const remedy = `sign it: edge-gateway sign ${hasScheme(file) ? "FILE" : file} --key private.pem`;
  const pem = readText(keys);
  if ("why" in pem)
    return {
      problem:
        `cannot read the public keys ${keys}: ${pem.why}; ` +
        `name their file with --config-key PATH or CONFIG_PUBLIC_KEY`,
    };
  if (signature === null)
    return { problem: `${file} is not signed: cannot read ${signatureFile}: ${whyUnsigned}; ${remedy}` };
  const verified = verifySignature(text, signature, pem.text);
  if (verified.problem === undefined) return { signer: verified.signer.fingerprint };
  const { problem } = verified;
  const of = {
    content: `${file} ${problem}; ${remedy}`,
    signature: `${signatureFile} ${problem}; ${remedy}`,
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

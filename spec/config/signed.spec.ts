import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { atOnce } from "../../lib/base/time_slices.ts";
import { FileTextSource } from "../../lib/config/file_source.ts";
import { signedBy } from "../../lib/config/signed.ts";
import { fileWith } from "../support/process.ts";
import { ELLIPTIC, fingerprintOf, signed, signingKeys } from "../support/signing_keys.ts";

const [keys, old, foreign] = [signingKeys(), signingKeys(), signingKeys()];

/** A signed file and a file with the public keys. */
function signedFile(publicKeys = keys.publicKey) {
  const [file, keyFile] = [signed(fileWith('{"services":[]}\n'), keys), fileWith(publicKeys, "public.pem")];
  return {
    file,
    keyFile,
    sig: `${file}.sig`,
    check: () => signedBy(keyFile)(file, atOnce(new FileTextSource(file, keyFile).current())),
  };
}

describe("the signature of a configuration", () => {
  it("is accepted from any of the public keys, and says which key it was", () => {
    expect(signedFile().check()).toEqual({ signer: fingerprintOf(keys) });
    expect(signedFile(old.publicKey + keys.publicKey).check()).toEqual({ signer: fingerprintOf(keys) });
  });

  it.each([
    [
      "a file without a signature",
      ({ sig }) => rmSync(sig),
      /^FILE is not signed: cannot read FILE\.sig: no such file; sign it: edge-gateway sign FILE --key private\.pem$/,
    ],
    [
      "a signature that is a folder",
      ({ sig }) => (rmSync(sig), mkdirSync(sig)),
      /^FILE is not signed: cannot read FILE\.sig: it is a folder; sign it/,
    ],
    [
      "a file that was changed after signing",
      ({ file }) => writeFileSync(file, '{"services":[] }\n'),
      new RegExp(
        String.raw`^FILE is not signed by the public key: it was changed after signing, .*; sign ` +
          String.raw`it: edge-gateway sign FILE --key private\.pem$`,
      ),
    ],
    [
      "a file whose line ends were changed to CRLF",
      ({ file }) => writeFileSync(file, '{"services":[]}\r\n'),
      /^FILE is not signed by the public key: it was changed after signing/,
    ],
    [
      "the signature of another file",
      ({ sig }) => writeFileSync(sig, readFileSync(`${signed(fileWith("other"), keys)}.sig`)),
      /^FILE is not signed by .* or the signature belongs to another file; sign it/,
    ],
    [
      "the signature of a foreign key",
      ({ file }) => signed(file, foreign),
      /^FILE is not signed by the public key: .* another key signed it/,
    ],
    [
      "the signature of a key that was removed",
      ({ keyFile }) => writeFileSync(keyFile, old.publicKey + foreign.publicKey),
      /^FILE is not signed by any of the 2 public keys: /,
    ],
    [
      "an empty signature",
      ({ sig }) => writeFileSync(sig, ""),
      /^FILE\.sig is not an Ed25519 signature: it must be the base64 of 64 bytes in one line \(base64 -w0\); sign it/,
    ],
    [
      "a space after the signature",
      ({ sig }) => writeFileSync(sig, `${readFileSync(sig, "utf8")} `),
      /^FILE\.sig is not an Ed25519 signature/,
    ],
    [
      "a signature in two lines, as base64 writes it without -w0",
      ({ sig }) => writeFileSync(sig, readFileSync(sig, "utf8").replace(/^.{76}/, "$&\n")),
      /^FILE\.sig is not an Ed25519 signature/,
    ],
    [
      "a signature in bytes, without base64",
      ({ sig }) => writeFileSync(sig, Buffer.from(readFileSync(sig, "utf8"), "base64")),
      /^FILE\.sig is not an Ed25519 signature/,
    ],
    [
      "a missing key file",
      ({ keyFile }) => rmSync(keyFile),
      /^cannot read the public keys KEYS: no such file; name their file with --config-key PATH or CONFIG_PUBLIC_KEY$/,
    ],
    [
      "an empty key file",
      ({ keyFile }) => writeFileSync(keyFile, ""),
      /^KEYS \(CONFIG_PUBLIC_KEY\) is not a public key in PEM form/,
    ],
    [
      "a private key in place of the public key",
      ({ keyFile }) => writeFileSync(keyFile, keys.privateKey),
      new RegExp(
        String.raw`^KEYS \(CONFIG_PUBLIC_KEY\) has a private key where public keys belong: make ` +
          String.raw`one with openssl pkey -in PRIVATE -pubout$`,
      ),
    ],
    [
      "a key of another kind",
      ({ keyFile }) => writeFileSync(keyFile, ELLIPTIC.publicKey),
      /^KEYS \(CONFIG_PUBLIC_KEY\) has a key of kind ec, not ed25519/,
    ],
    [
      "a key of another kind beside the right one",
      ({ keyFile }) => writeFileSync(keyFile, keys.publicKey + ELLIPTIC.publicKey),
      /^KEYS \(CONFIG_PUBLIC_KEY\) has a key of kind ec, not ed25519.*\(number 2 of 2 in it\)$/,
    ],
  ] satisfies [string, (files: ReturnType<typeof signedFile>) => unknown, RegExp][])(
    "is refused for %s, and the message says which file is wrong and what to do",
    (_what, change, message) => {
      const files = signedFile();
      change(files);
      const { problem } = files.check();
      expect(problem?.replaceAll(files.file, "FILE").replaceAll(files.keyFile, "KEYS")).toMatch(message);
      expect(problem).not.toContain(keys.privateKey.split("\n")[1]);
    },
  );

  it("may end with one line break, LF or CRLF", () => {
    for (const end of ["\n", "\r\n"]) {
      const { sig, check } = signedFile();
      writeFileSync(sig, readFileSync(sig, "utf8") + end);
      expect(check()).toEqual({ signer: fingerprintOf(keys) });
    }
  });

  it.runIf(spawnSync("openssl", ["version"]).status === 0)(
    "is what openssl pkeyutl and base64 -w0 write, with keys that openssl has made",
    () => {
      const { file, keyFile, sig, check } = signedFile();
      const privateKey = `${keyFile}.private`;
      execFileSync("openssl", ["genpkey", "-algorithm", "ed25519", "-out", privateKey]);
      execFileSync("openssl", ["pkey", "-in", privateKey, "-pubout", "-out", keyFile]);
      expect(check().problem).toMatch(/another key signed it/);
      execFileSync("sh", [
        "-c",
        'openssl pkeyutl -sign -rawin -inkey "$1" -in "$2" | base64 -w0 > "$2.sig"',
        "sh",
        privateKey,
        file,
      ]);
      expect(check().problem).toBeUndefined();
      expect(readFileSync(sig, "utf8")).toMatch(/^[A-Za-z0-9+/]{86}==$/);
    },
  );
});

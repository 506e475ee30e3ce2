import { chmodSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { verifySignature } from "../../lib/base/signature.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";
import { ELLIPTIC, ENCRYPTED_KEY, signingKeys } from "../support/signing_keys.ts";

const keys = signingKeys();
const pem = (text: string) => fileWith(text, "key.pem");

describe("edge-gateway sign", () => {
  it("writes FILE.sig, one line of base64 that the public key verifies, and leaves nothing else", async () => {
    const file = fileWith({ services: [] });
    expect(await program(["sign", file, "--key", pem(keys.privateKey)]).ended).toEqual({
      code: 0,
      signal: null,
      stderr: "",
      stdout: `${file}.sig is written; ${file} must not change any more\n`,
    });
    const signature = readFileSync(`${file}.sig`, "utf8");
    expect(signature).toMatch(/^[A-Za-z0-9+/]{86}==$/);
    expect(verifySignature(readFileSync(file), signature, keys.publicKey).problem).toBeUndefined();
    expect(readdirSync(dirname(file))).toEqual(["gw.json", "gw.json.sig"]);
  });

  it("replaces an earlier signature", async () => {
    const file = fileWith("new text");
    writeFileSync(`${file}.sig`, "old signature");
    expect((await program(["sign", file, "--key", pem(keys.privateKey)]).ended).code).toBe(0);
    expect(
      verifySignature(readFileSync(file), readFileSync(`${file}.sig`, "utf8"), keys.publicKey).problem,
    ).toBeUndefined();
  });

  it.each([
    ["without a file", ["sign"], "sign needs a file and a private key: edge-gateway sign FILE --key private.pem\n"],
    [
      "without a key",
      ["sign", "gw.json"],
      "sign needs a file and a private key: edge-gateway sign FILE --key private.pem\n",
    ],
    ["with --key and no value", ["sign", "gw.json", "--key"], "--key needs a value: PEM\n"],
    ["with two keys", ["sign", "gw.json", "--key", "a", "--key", "b"], "--key is given twice\n"],
    [
      "with two files",
      ["sign", "a", "b", "--key", "c"],
      'too many arguments for "sign": edge-gateway sign --help shows its usage\n',
    ],
    ["with a flag of another command", ["sign", "a", "--key", "c", "--strict"], "--strict is not a known flag\n"],
    [
      "with a file that is missing",
      ["sign", "/nowhere/gw.json", "--key", "c"],
      "cannot read the file /nowhere/gw.json (FILE): no such file\n",
    ],
    ["with a folder", ["sign", "/tmp", "--key", "c"], "cannot read the file /tmp (FILE): it is a folder\n"],
    [
      "with a key that is missing",
      ["sign", "package.json", "--key", "/nowhere/key.pem"],
      "cannot read the private key /nowhere/key.pem (--key): no such file\n",
    ],
  ])("exits 2 %s, and says so", async (_what, words, message) => {
    expect(await program(words).ended).toMatchObject({ code: 2, stdout: "", stderr: `edge-gateway: ${message}` });
  });

  it.each([
    ["a public key", keys.publicKey, "has a public key; signing needs the private key"],
    ["an encrypted key", ENCRYPTED_KEY, "is encrypted: store it without a passphrase"],
    ["a key of another kind", ELLIPTIC.privateKey, "has a key of kind ec, not ed25519"],
    ["a file that is no key", "none", "is not a private key in PEM form"],
  ])("exits 2 for %s, names its file, and writes nothing", async (_what, text, message) => {
    const [file, key] = [fileWith("text"), pem(text)];
    const { code, stderr } = await program(["sign", file, "--key", key]).ended;
    expect(code).toBe(2);
    expect(stderr).toContain(`edge-gateway: ${key} (--key) ${message}`);
    expect(readdirSync(dirname(file))).toEqual(["gw.json"]);
  });

  it(
    "exits 2 for a file of more than 64 MiB, which has to be in memory whole, " + "and says to sign its checksum",
    async () => {
      const file = fileWith("");
      truncateSync(file, 64 * 1024 * 1024 + 1); // no block of it is on the disk
      const { code, stderr } = await program(["sign", file, "--key", pem(keys.privateKey)]).ended;
      expect([code, stderr]).toEqual([
        2,
        `edge-gateway: ${file} has more than 67108864 bytes: sign its checksum instead (sha256sum FILE > SHA256SUMS)\n`,
      ]);
    },
  );

  it("exits 1 if FILE.sig cannot be written, and leaves no other file", async () => {
    const file = join(emptyFolder(), "gw.json");
    writeFileSync(file, "text");
    mkdirSync(`${file}.sig`);
    chmodSync(`${file}.sig`, 0o700);
    const { code, stderr } = await program(["sign", file, "--key", pem(keys.privateKey)]).ended;
    expect([code, stderr]).toEqual([1, `edge-gateway: cannot write ${file}.sig: it is a folder\n`]);
    expect(readdirSync(dirname(file))).toEqual(["gw.json", "gw.json.sig"]);
  });
});

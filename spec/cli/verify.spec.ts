import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { signatureOf } from "../../lib/base/signature.ts";
import { Failure } from "../../lib/cli/failure.ts";
import { readSums } from "../../lib/cli/verify.ts";
import { emptyFolder, fileWith, program, type Ended } from "../support/process.ts";
import { ELLIPTIC, signingKeys } from "../support/signing_keys.ts";

const keys = signingKeys();
const stranger = signingKeys();
const sha256 = (content: string) => createHash("sha256").update(content).digest("hex");
const FILES = { "edge.tgz": "the tarball", "edge.json": "{}" };
const SUMS = Object.entries(FILES)
  .map(([name, content]) => `${sha256(content)}  ${name}\n`)
  .join("");

/** A signed release; `sums` replaces its list of checksums before it is signed. */
function release(sums = SUMS): string {
  const folder = emptyFolder();
  for (const [name, content] of Object.entries({ ...FILES, SHA256SUMS: sums }))
    writeFileSync(join(folder, name), content);
  writeFileSync(
    join(folder, "SHA256SUMS.sig"),
    (signatureOf(Buffer.from(sums), Buffer.from(keys.privateKey)) as { readonly signature: string }).signature,
  );
  return folder;
}

const verify = (folder: string, publicKey = keys.publicKey): Promise<Ended> =>
  program(["verify", folder, "--key", fileWith(publicKey, "public.pem")]).ended;

/** The messages with the folder left out. */
async function refused(folder: string, publicKey?: string): Promise<readonly string[]> {
  const { code, stdout, stderr } = await verify(folder, publicKey);
  expect([code, stdout]).toEqual([1, ""]);
  return stderr
    .trimEnd()
    .split("\n")
    .map((line) => line.replace("edge-gateway: ", "").replaceAll(`${folder}/`, ""));
}

describe("edge-gateway verify", () => {
  it(
    "lists the files of a release that is whole and signed, and the SHA-256 of the key, " +
      "as openssl and sha256sum would show it",
    async () => {
      const { code, stdout, stderr } = await verify(release(), stranger.publicKey + keys.publicKey);
      const fingerprint = createHash("sha256")
        .update(Buffer.from(keys.publicKey.replace(/-----.*-----/g, ""), "base64"))
        .digest("hex");
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toBe(
        `edge.tgz: OK\nedge.json: OK\n2 files as signed with the key whose SHA-256 is ${fingerprint}\n`,
      );
    },
  );

  it("accepts the mark of sha256sum --binary, and a last line without a line break", async () => {
    expect((await verify(release(SUMS.replace("  ", " *").trimEnd()))).code).toBe(0);
  });

  it("refuses a file with one byte changed, and names it", async () => {
    const folder = release();
    writeFileSync(join(folder, "edge.tgz"), "the tarbalL");
    expect(await refused(folder)).toEqual([
      "edge.tgz has another SHA-256 than in SHA256SUMS: it has changed since it was released",
    ]);
  });

  it("reports every file that is wrong at once: changed, missing, a link, a folder, a pipe, not listed", async () => {
    const names = ["changed", "missing", "link", "folder", "pipe"];
    const folder = release(SUMS + names.map((name) => `${sha256("")}  ${name}\n`).join(""));
    writeFileSync(join(folder, "changed"), "x");
    symlinkSync("edge.tgz", join(folder, "link"));
    mkdirSync(join(folder, "folder"));
    expect(spawnSync("mkfifo", [join(folder, "pipe")]).status).toBe(0);
    writeFileSync(join(folder, "other"), "");
    mkdirSync(join(folder, "another"));
    const notListed = "is not listed in SHA256SUMS: it is no part of the release; remove it";
    expect(await refused(folder)).toEqual([
      "changed has another SHA-256 than in SHA256SUMS: it has changed since it was released",
      "missing is missing",
      "link is a symbolic link; a release has only files",
      "folder is not a file",
      "pipe is not a file",
      `another ${notListed}`,
      `other ${notListed}`,
    ]);
  });

  it("checks the files of folders that the list names, and finds others beside them; a link is no folder", async () => {
    const folder = release(`${SUMS}${sha256("x")}  lib/a/x\n${sha256("x")}  away/x\n`);
    mkdirSync(join(folder, "lib/a/empty"), { recursive: true });
    for (const name of ["lib/a/x", "lib/y"]) writeFileSync(join(folder, name), "x");
    symlinkSync("lib/a", join(folder, "away"));
    const notListed = "is not listed in SHA256SUMS: it is no part of the release; remove it";
    expect(await refused(folder)).toEqual([`away ${notListed}`, `lib/a/empty ${notListed}`, `lib/y ${notListed}`]);
    rmSync(join(folder, "lib/a/x"));
    expect((await refused(folder))[0]).toBe("lib/a/x is missing");
  });

  it("refuses a list of checksums that was changed, before it reads a file", async () => {
    const folder = release();
    writeFileSync(join(folder, "edge.tgz"), "another");
    writeFileSync(join(folder, "SHA256SUMS"), SUMS.replace(sha256(FILES["edge.tgz"]), sha256("another")));
    expect(await refused(folder)).toEqual([
      expect.stringMatching(/^SHA256SUMS is not signed by the public key: it was changed after signing/),
    ]);
  });

  it("refuses a release that another key has signed", async () => {
    expect(await refused(release(), stranger.publicKey)).toEqual([
      expect.stringMatching(/^SHA256SUMS is not signed by the public key: .*another key signed it/),
    ]);
  });

  it.each([
    ["SHA256SUMS", "SHA256SUMS is missing"],
    ["SHA256SUMS.sig", "SHA256SUMS.sig is missing"],
    ["edge.tgz", "edge.tgz is missing"],
  ])("refuses a release without %s", async (name, message) => {
    const folder = release();
    rmSync(join(folder, name));
    expect(await refused(folder)).toEqual([message]);
  });

  it("refuses a signature that is no base64, and names its file", async () => {
    const folder = release();
    writeFileSync(join(folder, "SHA256SUMS.sig"), "none");
    expect(await refused(folder)).toEqual([expect.stringMatching(/^SHA256SUMS\.sig is not an Ed25519 signature: /)]);
  });

  it.each(["SHA256SUMS", "SHA256SUMS.sig"])("refuses %s of more than a mebibyte without reading it", async (name) => {
    const folder = release();
    truncateSync(join(folder, name), 8 * 1024 ** 4); // eight tebibytes of nothing
    expect(await refused(folder)).toEqual([`${name} has more than 1048576 bytes`]);
  });

  it("does not follow a symbolic link in place of SHA256SUMS", async () => {
    const folder = release();
    rmSync(join(folder, "SHA256SUMS"));
    symlinkSync("/dev/zero", join(folder, "SHA256SUMS"));
    expect(await refused(folder)).toEqual(["SHA256SUMS is a symbolic link; a release has only files"]);
  });

  const sum = sha256("");
  const elsewhere = "the name leads to another folder; a release lists only files of its own folder";
  const format = "not 64 hexadecimal digits, two spaces and a file name, as sha256sum writes them";
  it.each([
    ["an absolute path", `${sum}  /etc/passwd`, elsewhere],
    ["a path out of the folder", `${sum}  ../edge.tgz`, elsewhere],
    ["a path through the folder above", `${sum}  a/../../edge.tgz`, elsewhere],
    ["a path with an empty step", `${sum}  a//edge.tgz`, elsewhere],
    ["the folder itself", `${sum}  .`, elsewhere],
    ["the folder above", `${sum}  ..`, elsewhere],
    ["a name that sha256sum has escaped", `\\${sum}  a\\nb`, format],
    ["a backslash", `${sum}  a\\b`, elsewhere],
    ["a file twice", `${sha256("other")}  edge.tgz`, "edge.tgz is listed twice"],
    [
      "a line that ends as on Windows",
      `${sum}  other\r`,
      "the line ends as on Windows (CR LF); sha256sum ends it with LF",
    ],
    ["an empty line", "", format],
    ["a digest that is too short", `${sum.slice(1)}  other`, format],
    ["one space", `${sum} other`, format],
    ["no name", `${sum}  `, format],
    ["the form of BSD", `SHA256 (other) = ${sum}`, format],
  ])("refuses a list of checksums with %s, with the line", (_what, line, message) => {
    expect(() => readSums(Buffer.from(`${SUMS}${line}\n`), "SHA256SUMS")).toThrow(
      new Failure(`SHA256SUMS:3: ${message}`, 1),
    );
  });

  it("reports every wrong line of a signed list of checksums, and reads no file of it", async () => {
    expect(await refused(release(`${sum}  ../x\n\n`))).toEqual([
      `SHA256SUMS:1: ${elsewhere}`,
      `SHA256SUMS:2: ${format}`,
    ]);
    expect(await refused(release(""))).toEqual([`SHA256SUMS:1: ${format}`]);
  });

  it("reads a large file in pieces: one of 400 MiB takes less than 250 MiB of memory", async () => {
    const bytes = 400 * 1024 * 1024;
    const hash = createHash("sha256");
    for (let left = bytes, piece = Buffer.alloc(1024 * 1024); left > 0; left -= piece.length) hash.update(piece);
    const folder = release(`${SUMS}${hash.digest("hex")}  large\n`);
    writeFileSync(join(folder, "large"), "");
    truncateSync(join(folder, "large"), bytes);
    const report = encodeURIComponent('process.once("exit", () => console.error(process.resourceUsage().maxRSS))');
    const words = ["verify", folder, "--key", fileWith(keys.publicKey, "public.pem")];
    const { code, stderr } = await program(words, {
      environment: { NODE_OPTIONS: `--import=data:text/javascript,${report}` },
    }).ended;
    expect(code).toBe(0);
    expect(Number(stderr)).toBeGreaterThan(0);
    expect(Number(stderr)).toBeLessThan(250 * 1024); // KiB
  });

  it.each([
    [
      "without a folder",
      ["verify"],
      "verify needs a folder and a public key: edge-gateway verify DIR --key public.pem",
    ],
    [
      "without a key",
      ["verify", "/tmp"],
      "verify needs a folder and a public key: edge-gateway verify DIR --key public.pem",
    ],
    [
      "for a key that is missing",
      ["verify", "/tmp", "--key", "/nowhere/public.pem"],
      "cannot read the public key /nowhere/public.pem (--key): no such file",
    ],
    [
      "for a folder that is missing",
      ["verify", "/nowhere", "--key", "package.json"],
      "cannot read the folder /nowhere (DIR): no such file",
    ],
    [
      "for a file in place of the folder",
      ["verify", "/dev/null", "--key", "/dev/null"],
      "/dev/null (DIR) is a file, and verify checks the folder of a release: " +
        "for a signed configuration use edge-gateway validate FILE --config-key public.pem",
    ],
    [
      "for a configuration without a key",
      ["verify", "examples/quickstart.json"],
      "examples/quickstart.json (DIR) is a file, and verify checks the folder of a release: " +
        "for a signed configuration use edge-gateway validate FILE --config-key public.pem",
    ],
  ])("exits 2 %s, and says so", async (_what, words, message) => {
    expect(await program(words).ended).toMatchObject({ code: 2, stdout: "", stderr: `edge-gateway: ${message}\n` });
  });

  it.each([
    ["a private key", keys.privateKey, "has a private key where public keys belong"],
    ["a key of another kind", ELLIPTIC.publicKey, "has a key of kind ec, not ed25519"],
    ["a file that is no key", "none", "is not a public key in PEM form"],
  ])("exits 2 for %s in place of the public key, and names its file", async (_what, text, message) => {
    const { code, stderr } = await verify(release(), text);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^edge-gateway: \S+public\.pem \(--key\) /);
    expect(stderr).toContain(message);
  });
});

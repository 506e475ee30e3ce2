import { describe, expect, it } from "vitest";
import { hasReference, resolveReferences } from "../../lib/config/references.ts";

const files: Record<string, string | Buffer> = {
  "/run/secrets/key": "s3cret\n",
  "/etc/gw/near": "near\r\n",
  "/etc/gw/two": "two\n\n",
  "/etc/gw/nested": "${env:KEY}",
  "/etc/gw/binary": Buffer.from([0xff, 0xfe, 0x00]),
};
const sources = {
  environment: { KEY: "k$&1", EMPTY: "" },
  folder: "/etc/gw",
  readFile(path: string) {
    const content = files[path];
    if (content === undefined) throw Object.assign(new Error(`ENOENT: ${path}`), { code: "ENOENT" });
    return content;
  },
};
const resolve = (text: string) => resolveReferences(text, sources);

describe("resolveReferences", () => {
  it.each([
    ["plain", "plain"],
    ["${env:KEY}", "k$&1"],
    ["a-${env:KEY}-b-${env:EMPTY}c", "a-k$&1-b-c"],
    ["${file:/run/secrets/key}", "s3cret"],
    ["${file:near}", "near"],
    ["${file:./two}", "two\n"],
    ["${file:nested}", "${env:KEY}"],
    ["$KEY {env:KEY} $ {x}", "$KEY {env:KEY} $ {x}"],
    ["$${env:KEY} $${x} a$${", "${env:KEY} ${x} a${"],
    ["$$${env:KEY} $$$${x}", "$${env:KEY} $$${x}"],
  ])("resolves %j to %j", (text, result) => {
    expect(resolve(text)).toEqual({ text: result, problems: [] });
  });

  it.each([
    ["${env:NOPE}", "${env:NOPE} cannot be resolved: the environment variable NOPE is not set"],
    ["${env:toString}", "${env:toString} cannot be resolved: the environment variable toString is not set"],
    ["${env:}", "${env:} names no environment variable"],
    ["${file:}", "${file:} names no file"],
    ["${env:KEY", "${env:… lacks its closing brace"],
    [
      "${KEY}",
      "has ${KEY}, which is no reference: write ${env:KEY} for an environment variable, " +
        "${file:/path} for the content of a file, or $${KEY} for the text itself",
    ],
    [
      "${ENV:KEY} s3cret",
      "has ${…}, which is no reference: write ${env:NAME} for an environment variable, " +
        "${file:/path} for the content of a file, or $${…} for the text itself",
    ],
    [
      "a${s3cret-",
      "has ${…}, which is no reference: write ${env:NAME} for an environment variable, " +
        "${file:/path} for the content of a file, or $${…} for the text itself",
    ],
    ["${file:gone}", "${file:gone} cannot be resolved: cannot read /etc/gw/gone: no such file"],
    ["${file:binary}", "${file:binary} cannot be resolved: cannot read /etc/gw/binary: it is not UTF-8 text"],
  ])("refuses %j with the reason", (text, problem) => {
    expect(resolve(text).problems).toEqual([problem]);
  });
});

describe("hasReference", () => {
  it.each([
    ["${env:A}", true],
    ["x${file:a", true],
    ["$${env:A}", false],
    ["$$${env:A}", false],
    ["${ENV:A}", false],
    ["$$${{env:A}", false],
  ])("%j: %s", (text, expected) => {
    expect(hasReference(text)).toBe(expected);
  });
});

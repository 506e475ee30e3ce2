/**
 * The software bill of materials of a release, as CycloneDX 1.6: the one component that runs, and under "formulation"
 * the tools that built it.
 */
import { createHash } from "node:crypto";
import { billOfMaterials } from "../lib/cli/bill_of_materials.ts";
import { hexOf, type Facts, type Lock } from "./facts.ts";

export function sbom({ epoch, node, npm, lock, tarball, ...described }: Facts): unknown {
  const digest = (algorithm: string) => createHash(algorithm).update(tarball.content).digest("hex");
  const hashes = [
    { alg: "SHA-256", content: digest("sha256") },
    { alg: "SHA-512", content: digest("sha512") },
  ];
  return {
    ...billOfMaterials(described, digest("sha256"), { hashes }, { timestamp: new Date(epoch * 1000).toISOString() }),
    formulation: [
      {
        "bom-ref": "build",
        components: [
          { type: "platform", "bom-ref": "node", name: "node", version: node, purl: `pkg:generic/node@${node}` },
          { type: "application", "bom-ref": "npm", name: "npm", version: npm, purl: `pkg:npm/npm@${npm}` },
          ...tools(lock),
        ],
      },
    ],
  };
}

/**
 * Every package that `npm ci` may install, with the SHA-512 by which npm checks it. Only those for this machine are
 * installed.
 */
function tools({ packages }: Lock): unknown[] {
  return Object.entries(packages)
    .filter(([path]) => path !== "")
    .map(([path, { version, integrity, license, resolved }]) => {
      const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
      return {
        type: "library",
        "bom-ref": path,
        name,
        version,
        scope: "excluded",
        hashes: [{ alg: "SHA-512", content: hexOf(integrity, path) }],
        ...(license === undefined
          ? {}
          : { licenses: [/ (?:OR|AND) /.test(license) ? { expression: license } : { license: { id: license } }] }),
        purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
        ...(resolved === undefined ? {} : { externalReferences: [{ type: "distribution", url: resolved }] }),
      };
    });
}

/**
 * The software bill of materials of a release, as CycloneDX 1.6: the one component that runs, and under "formulation" the tools that built it.
 */
import { createHash } from "node:crypto";
import { hexOf, type Facts, type Lock } from "./facts.ts";

export function sbom({ name, version, description, epoch, node, npm, lock, tarball }: Facts): unknown {
  const self = `pkg:npm/${name}@${version}`;
  const digest = (algorithm: string) => createHash(algorithm).update(tarball.content).digest("hex");
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${uuidOf(digest("sha256"))}`,
    version: 1,
    metadata: {
      timestamp: new Date(epoch * 1000).toISOString(),
      lifecycles: [{ phase: "build" }],
      component: {
        type: "application", "bom-ref": self, name, version, description, scope: "required",
        hashes: [{ alg: "SHA-256", content: digest("sha256") }, { alg: "SHA-512", content: digest("sha512") }],
        licenses: [{ license: { id: "Apache-2.0" } }],
        purl: self,
      },
    },
    components: [],
    dependencies: [{ ref: self, dependsOn: [] }],
    formulation: [{
      "bom-ref": "build",
      components: [
        { type: "platform", "bom-ref": "node", name: "node", version: node, purl: `pkg:generic/node@${node}` },
        { type: "application", "bom-ref": "npm", name: "npm", version: npm, purl: `pkg:npm/npm@${npm}` },
        ...tools(lock),
      ],
    }],
  };
}

/** Every package that `npm ci` may install, with the SHA-512 by which npm checks it. Only those for this machine are installed. */
function tools({ packages }: Lock): unknown[] {
  return Object.entries(packages).filter(([path]) => path !== "").map(([path, { version, integrity, license, resolved }]) => {
    const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
    return {
      type: "library", "bom-ref": path, name, version, scope: "excluded",
      hashes: [{ alg: "SHA-512", content: hexOf(integrity, path) }],
      ...(license === undefined ? {} : { licenses: [/ (?:OR|AND) /.test(license) ? { expression: license } : { license: { id: license } }] }),
      purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
      ...(resolved === undefined ? {} : { externalReferences: [{ type: "distribution", url: resolved }] }),
    };
  });
}

/** A UUID of version 8 (RFC 9562 §5.8) that stands for the tarball, so that the same release has the same serial number. */
function uuidOf(digest: string): string {
  const [, a, b, c, d, e] = /^(.{8})(.{4}).(.{3}).(.{3})(.{12})/.exec(digest)!;
  return `${a}-${b}-8${c}-8${d}-${e}`;
}

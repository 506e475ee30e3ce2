/**
 * The provenance of a release: an in-toto statement with SLSA's predicate (https://slsa.dev/spec/v1.0/provenance). It
 * says from which commit and with which tools the files were made, so that anybody can make them again and compare.
 */
import { hexOf, sha256, type Artefact, type Facts } from "./facts.ts";

export function provenance(
  { name, version, commit, tree, epoch, node, npm, lock, lockSum, tarball, tarSum }: Facts,
  subjects: readonly Artefact[],
): unknown {
  const tool = (path: string) => {
    const { version: installed, integrity } = lock.packages[`node_modules/${path}`]!;
    return { uri: `pkg:npm/${path}@${installed}`, digest: { sha512: hexOf(integrity, path) } };
  };
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: subjects.map(({ name: file, content }) => ({ name: file, digest: { sha256: sha256(content) } })),
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: `urn:${name}:npm-run-release:1`,
        externalParameters: { version, commit, source_date_epoch: epoch },
        internalParameters: { command: "npm ci && npm run release" },
        resolvedDependencies: [
          { name: "source", digest: { gitCommit: commit, gitTree: tree } },
          { name: "package-lock.json", digest: { sha256: lockSum } },
          { uri: `pkg:generic/node@${node}` },
          { uri: `pkg:npm/npm@${npm}` },
          tool("typescript"),
          tool("tsx"),
        ],
      },
      runDetails: {
        builder: { id: `urn:${name}:npm-run-release:1` },
        byproducts: [{ name: `${tarball.name} without its compression`, digest: { sha256: tarSum } }],
      },
    },
  };
}

/** Manifests of Kubernetes among the examples, and whether the API accepts them. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { read, root } from "../support/documents.ts";
import { emptyFolder } from "./built.ts";
import { readYaml } from "./yaml.ts";

/** Where kubernetes-types has the types of an API version. */
const MODULES: Readonly<Record<string, string>> = {
  v1: "core/v1",
  "apps/v1": "apps/v1",
  "policy/v1": "policy/v1",
  "networking.k8s.io/v1": "networking/v1",
};

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Of a file of the repository. */
export function manifestsOf(file: string): readonly Manifest[] {
  return readYaml(read(file)) as Manifest[];
}

/**
 * What the compiler says about the manifests as values of the API's types: a field that the API does not have, a
 * missing one, a wrong type.
 */
export function typeErrors(values: readonly Manifest[]): string[] {
  const lines = values.flatMap((value, i) => [
    `import type { ${value.kind} as T${i} } from ` +
      `${JSON.stringify(`${root}/spec/peers/node_modules/kubernetes-types/${MODULES[value.apiVersion]}`)};`,
    `export const value${i}: T${i} = ${JSON.stringify(value)};`,
  ]);
  const file = join(emptyFolder(), "manifests.ts");
  writeFileSync(file, lines.join("\n"));
  const flags = [
    "--ignoreConfig",
    "--noEmit",
    "--strict",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--types",
    "",
  ];
  const { stdout } = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), ...flags, file], {
    encoding: "utf8",
  });
  return stdout.split("\n").filter((line) => line.includes("error"));
}

/**
 * The software bill of materials of a package, as CycloneDX 1.6: one component, which depends on nothing.
 */

export interface BillSubject {
  readonly name: string;
  readonly version: string;
  readonly description: string;
}

/**
 * `digest`: the SHA-256, in hexadecimal, of what the bill is about. `component` and `metadata` are added to these
 * objects.
 */
export function billOfMaterials(
  { name, version, description }: BillSubject,
  digest: string,
  component: object,
  metadata: object = {},
): object {
  const self = `pkg:npm/${name}@${version}`;
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${uuidOf(digest)}`,
    version: 1,
    metadata: {
      ...metadata,
      lifecycles: [{ phase: "build" }],
      component: {
        type: "application",
        "bom-ref": self,
        name,
        version,
        description,
        scope: "required",
        ...component,
        licenses: [{ license: { id: "Apache-2.0" } }],
        purl: self,
      },
    },
    components: [],
    dependencies: [{ ref: self, dependsOn: [] }],
  };
}

/**
 * A UUID of version 8 (RFC 9562 §5.8) that stands for the digest, so that the same package has the same serial number.
 */
function uuidOf(digest: string): string {
  const [, a, b, c, d, e] = /^(.{8})(.{4}).(.{3}).(.{3})(.{12})/.exec(digest)!;
  return `${a}-${b}-8${c}-8${d}-${e}`;
}

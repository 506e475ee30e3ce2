/** The VEX document of a release: its form, and that what it says about the sources is so. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { STATEMENTS, vex } from "../../build/vex.ts";
import { root } from "../support/documents.ts";

interface Statement {
  readonly vulnerability: { readonly name: string };
  readonly products: readonly {
    readonly "@id": string;
    readonly subcomponents: readonly { readonly "@id": string }[];
  }[];
  readonly status: string;
  readonly justification?: string;
  readonly impact_statement?: string;
  readonly action_statement?: string;
}

const made = vex({ name: "edge-gateway", version: "1.2.3", epoch: 1_700_000_000 }) as Record<string, unknown> & {
  readonly statements: readonly Statement[];
};

describe("the VEX document", () => {
  it("has the fields that OpenVEX 0.2.0 requires", () => {
    expect(made).toMatchObject({
      "@context": "https://openvex.dev/ns/v0.2.0",
      "@id": "urn:edge-gateway:vex:1.2.3",
      author: "edge-gateway maintainers",
      timestamp: "2023-11-14T22:13:20.000Z",
      version: 1,
    });
    expect(made.statements.length).toBeGreaterThan(25);
  });

  it.each(made.statements.map((statement) => [statement.vulnerability.name, statement] as const))(
    "says of %s the product, the part, a status and what that status needs",
    (name, statement) => {
      expect(name).toMatch(/^CVE-20\d\d-\d{4,}$/);
      expect(statement.products).toEqual([
        {
          "@id": "pkg:npm/edge-gateway@1.2.3",
          identifiers: { purl: "pkg:npm/edge-gateway@1.2.3" },
          subcomponents: [{ "@id": expect.stringMatching(/^pkg:generic\/(node|openssl|nghttp2)$/) }],
        },
      ]);
      const { justification, impact_statement: impact = "", action_statement: action = "" } = statement;
      if (statement.status === "affected") expect([justification, action.length > 20]).toEqual([undefined, true]);
      else {
        expect([statement.status, action, impact.length > 10]).toEqual(["not_affected", "", true]);
        expect(["vulnerable_code_not_in_execute_path", "inline_mitigations_already_exist"]).toContain(justification);
      }
    },
  );

  it("names each vulnerability once, and a part of each kind", () => {
    const names = STATEMENTS.flatMap((each) => each.names);
    expect(new Set(names).size).toBe(names.length);
    expect(new Set(STATEMENTS.map(({ part }) => part))).toEqual(new Set(["node", "openssl", "nghttp2"]));
  });

  it("says only of what no source names that it is not used", () => {
    const files = ["lib", "bin"]
      .flatMap((folder) => readdirSync(join(root, folder), { recursive: true, withFileTypes: true }))
      .filter((each) => each.isFile() && each.name.endsWith(".ts") && !each.parentPath.includes("assets"));
    const text = files.map((each) => readFileSync(join(each.parentPath, each.name), "utf8")).join("\n");
    expect(files.length).toBeGreaterThan(200);
    const words = STATEMENTS.flatMap(({ unused = [] }) => unused);
    expect(words.filter((word) => text.includes(word))).toEqual([]);
  });

  it("has a spec for each vulnerability that the gateway itself stops", () => {
    const spec = readFileSync(join(root, "spec/journeys/h2.spec.ts"), "utf8");
    const names = STATEMENTS.filter(
      ({ justification }) => justification === "inline_mitigations_already_exist",
    ).flatMap((each) => each.names);
    expect(names.filter((name) => !spec.includes(name))).toEqual([]);
  });
});

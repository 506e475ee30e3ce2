/** Reads YAML with the package `yaml`, which is installed for these specs only. */
import { createRequire } from "node:module";

const { parseAllDocuments } = createRequire(import.meta.url)("yaml") as {
  parseAllDocuments(text: string): { readonly errors: readonly Error[]; toJS(): unknown }[];
};

/** The documents of a text. Throws for a text that is not YAML, or repeats a key. */
export function readYaml(text: string): unknown[] {
  return parseAllDocuments(text).map((document) => {
    for (const error of document.errors) throw error;
    return document.toJS();
  });
}

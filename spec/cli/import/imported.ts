/** Runs an importer on a document, and checks that the gateway accepts the result. */
import { expect } from "vitest";
import { Draft, readDraftTarget, type Imported, type DraftTarget } from "../../../lib/cli/import/draft.ts";
import { importKong } from "../../../lib/cli/import/kong.ts";
import { importKubernetes, type KubernetesOptions } from "../../../lib/cli/import/kube.ts";
import { importOpenApi } from "../../../lib/cli/import/openapi.ts";
import { SourceValue } from "../../../lib/cli/import/source_value.ts";
import { createGateway } from "../../../lib/index.ts";

export interface Result extends Imported {
  readonly notes: readonly string[];
}

async function result(
  document: unknown,
  run: (root: SourceValue, draft: Draft) => void,
  environment: Record<string, string> = {},
): Promise<Result> {
  const draft = new Draft();
  run(new SourceValue(document, [], draft.notes), draft);
  const config = await draft.finished();
  const gateway = createGateway({ config: config as never, environment });
  await gateway.close(0);
  expect(gateway.counts.services).toBe(config.services.length);
  return { ...config, notes: draft.notes.lines(3) };
}

export const fromOpenApi = (document: object, upstream = "http://127.0.0.1:3000") =>
  result({ openapi: "3.0.3", info: { title: "t" }, ...document }, (root, draft) =>
    importOpenApi(root, draft, readDraftTarget(upstream) as DraftTarget),
  );

/** Without the note on headers of consumers, which each plugin that knows them has. */
export const fromKong = async (document: object, environment?: Record<string, string>) => {
  const made = await result({ _format_version: "3.0", ...document }, importKong, environment);
  return { ...made, notes: made.notes.filter((note) => !note.includes("X-Consumer-")), allNotes: made.notes };
};

/** `objects`: items of one List. */
export const fromKubernetes = (objects: readonly unknown[], options: KubernetesOptions = {}) =>
  result({ kind: "List", apiVersion: "v1", items: objects }, (root, draft) =>
    importKubernetes([root.value], draft, options),
  );

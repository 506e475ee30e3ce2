/**
 * `edge-gateway import`: makes a configuration from an OpenAPI document, the configuration of Kong, or routes of
 * Kubernetes.
 */
import { statSync } from "node:fs";
import { formatPath } from "../config/json.ts";
import { parseJson } from "../config/json_parser.ts";
import { readRegularFile, whyUnreadable, writeRegularFile } from "../base/regular_file.ts";
import { isObject } from "../json_schema/values.ts";
import type { Arguments, RunCommand } from "./arguments.ts";
import { Failure } from "./failure.ts";
import { Draft, readDraftTarget, type DraftTarget } from "./import/draft.ts";
import { importKong } from "./import/kong.ts";
import { importKubernetes, KUBECTL, type KubernetesOptions } from "./import/kube.ts";
import { checkOpenApi, importOpenApi } from "./import/openapi.ts";
import { SourceValue } from "./import/source_value.ts";
import { printable } from "./terminal.ts";

const SOURCES = ["openapi", "kong", "kubernetes"] as const;
type Source = (typeof SOURCES)[number];

const MAX_BYTES = 134_217_728;
/** How a source itself writes JSON. */
const OWN_JSON = {
  openapi: "",
  kong: ", or let decK write JSON: deck gateway dump --format json -o kong.json",
  kubernetes: `, or let kubectl write JSON: ${KUBECTL}`,
};

/** A list of what could not be carried over goes to standard error; with it, too, the exit code is 0. */
export const importCommand: RunCommand = async (given) => {
  const [source, file, ...further] = given.operands as [Source?, string?, ...string[]];
  if (source === undefined || !SOURCES.includes(source) || file === undefined) {
    throw new Failure(`name what is imported, and its file: edge-gateway import ${SOURCES.join("|")} FILE.json`, 2);
  }
  const upstream = upstreamOf(given, source);
  if (further.length > 0 && source !== "kubernetes") throw new Failure(`import ${source} reads one file`, 2);
  for (const flag of ["gateway", "cluster-domain"])
    if (given.flags[flag] !== undefined && source !== "kubernetes")
      throw new Failure(`--${flag} is for kubernetes: other sources have none`, 2);
  if (given.flags["check-formats"] !== undefined && source !== "openapi")
    throw new Failure("--check-formats is for openapi: other sources have no schemas", 2);
  if (given.flags.force !== undefined && given.flags.output === undefined)
    throw new Failure("--force is for --output FILE", 2);
  const options = kubernetesOptions(given);
  const draft = new Draft();
  const roots = [file, ...further].map((name) => {
    const root = new SourceValue(readDocument(name, source), [], draft.notes);
    checkKind(root, source, name);
    return root;
  });
  const root = roots[0]!;
  if (source === "kong") importKong(root, draft);
  else if (source === "kubernetes")
    importKubernetes(
      roots.map(({ value }) => value),
      draft,
      options,
    );
  else importOpenApi(root, draft, upstream!, given.flags["check-formats"] !== undefined);
  const config = await draft.finished();
  // The rest of the control characters, which JSON allows in texts, would act on the terminal.
  const escaped = (control: string) => `\\u00${control.charCodeAt(0).toString(16)}`;
  const text = JSON.stringify(config, null, 2).replace(/[\u007f-\u009f]/g, escaped);
  write(`${text}\n`, given);
  if (draft.notes.size > 0) {
    const lines = draft.notes.lines(given.flags.all === undefined ? 3 : Infinity).map((line) => `  ${line}`);
    process.stderr.write(printable([`Not carried over as it was, in ${[file, ...further].join(", ")}:`, ...lines]));
  }
  return 0;
};

function upstreamOf({ flags: { upstream } }: Arguments, source: Source): DraftTarget | null {
  if (upstream !== undefined && source !== "openapi")
    throw new Failure(`--upstream is for openapi: a ${source} file names its servers itself`, 2);
  if (source !== "openapi") return null;
  if (upstream === undefined)
    throw new Failure("--upstream URL is required: the document does not say where the gateway reaches the API", 2);
  const target = readDraftTarget(String(upstream));
  if (typeof target === "string") throw new Failure(`--upstream: ${target}`, 2);
  return target;
}

/** A domain goes into host names. */
function kubernetesOptions({ flags }: Arguments): KubernetesOptions {
  const [gateway, domain] = [flags.gateway, flags["cluster-domain"]];
  if (domain !== undefined && !/^[a-z0-9-]+(\.[a-z0-9-]+)*$/i.test(String(domain)))
    throw new Failure(`--cluster-domain: expected a domain such as "cluster.local", found "${domain}"`, 2);
  return {
    ...(gateway === undefined ? {} : { gateway: String(gateway) }),
    ...(domain === undefined ? {} : { domain: String(domain) }),
  };
}

function readDocument(file: string, source: Source): unknown {
  let text: Buffer;
  try {
    const { size } = statSync(file);
    if (size > MAX_BYTES) throw new Failure(`${file} has ${size} bytes: at most ${MAX_BYTES} are read`, 2);
    text = readRegularFile(file);
  } catch (error) {
    throw error instanceof Failure ? error : new Failure(`cannot read ${file}: ${whyUnreadable(error)}`, 2);
  }
  try {
    return JSON.parse(String(text).replace(/^\uFEFF/, ""));
  } catch {
    const first = /^(?:\s|#[^\n]*\n)*(.?)/.exec(text.subarray(0, 10_000).toString())![1]!;
    if (/\.ya?ml$/i.test(file) || /[\w%-]/.test(first)) {
      const own = OWN_JSON[source];
      throw new Failure(
        `${file} is YAML, or no JSON: convert it first, as with: ` +
          `npx js-yaml ${file} > ${source}.json (without a network: docs/migrating.md#yaml)${own}`,
        2,
      );
    }
    // Slower, but knows where the error is.
    const [issue] = parseJson(text).issues;
    const where = issue?.position == null ? "" : `:${issue.position.line}:${issue.position.column}`;
    throw new Failure(`${file}${where}  ${formatPath(issue?.at ?? [])} ${issue?.message ?? "is no JSON"}`, 2);
  }
}

/** Throws a `Failure` that names the right source for a document of another kind. */
function checkKind(root: SourceValue, source: Source, file: string): void {
  const is = {
    openapi: root.has("openapi") || root.has("swagger"),
    kong:
      ["_format_version", "consumers", "upstreams"].some((name) => root.has(name)) ||
      Array.isArray(root.get("services").value),
    kubernetes: typeof root.get("apiVersion").value === "string" && typeof root.get("kind").value === "string",
  };
  if (!isObject(root.value)) throw new Failure(`${file}: expected an object`, 2);
  const services = root.get("services").value;
  if (Array.isArray(services) && services.some((service) => isObject(service) && "base_path" in service)) {
    throw new Failure(`${file} is a configuration of this gateway already: edge-gateway validate ${file}`, 2);
  }
  const other = SOURCES.find((name) => name !== source && is[name]);
  if (!is[source] && other !== undefined)
    throw new Failure(`${file} is a file for: edge-gateway import ${other} ${file}`, 2);
  if (source === "kubernetes" && !is.kubernetes)
    throw new Failure(`${file} is no List of objects: make it with ${KUBECTL}`, 2);
  if (source === "openapi") checkOpenApi(root);
}

function write(text: string, { flags: { output, force } }: Arguments): void {
  if (output === undefined) return void process.stdout.write(text);
  try {
    // It may hold credentials.
    writeRegularFile(String(output), text, { mode: 0o600, isNew: force === undefined });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Failure(
      code === "EEXIST"
        ? `${output} is there already: --force replaces it`
        : `cannot write ${output}: ${whyUnreadable(error)}`,
      2,
    );
  }
}

/**
 * Finds what the last run of tests was about in the text of the configuration: the place of each test, and its request
 * as written.
 */
import { atOnce } from "../base/time_slices.ts";
import { formatPath, nodeAt, type Path } from "../config/json.ts";
import { parseJson } from "../config/json_parser.ts";
import { sourceDigest } from "../config/load.ts";
import type { ReadableSource } from "../config/text_source.ts";
import type { Configuration } from "../gateway/configuration.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { maskedText } from "./masked_text.ts";
import type { Secrets, ShownGateway, WrittenTest } from "./views.ts";

type Test = Pick<WrittenTest, "name" | "request">;

type Found = WeakMap<object, { readonly digest: string; readonly tests: readonly WrittenTest[] }>;

/**
 * What was found last, by the configuration in force: to read a large text takes 17 ms a megabyte, and everybody who
 * may log in can ask.
 */
const known: Readonly<Record<Secrets, Found>> = { shown: new WeakMap(), masked: new WeakMap() };

/** Those of a refused configuration are found while its file still has what was refused. */
export function writtenTests(gateway: Pick<ShownGateway, "lastTests">, secrets: Secrets): readonly WrittenTest[] {
  if (gateway.lastTests === null || !(gateway instanceof GatewayCore)) return [];
  const { configuration } = GatewayCore.internalsOf(gateway);
  const {
    snapshot,
    reader: { textSource },
  } = configuration;
  const { digest } = gateway.lastTests;
  const isInForce = digest === snapshot.digest;
  const text = isInForce || textSource === null ? null : textWith(digest, textSource);
  if (!isInForce && text === null) return [];
  const before = known[secrets].get(snapshot);
  if (before?.digest === digest) return before.tests;
  const tests =
    text === null
      ? testsInForce(configuration, secrets)
      : placed(ownTests(text), text, ["tests"]).map((test) => ({ ...test, request: null }));
  known[secrets].set(snapshot, { digest, tests });
  return tests;
}

function testsInForce(
  { snapshot, inForce: { source } }: Pick<Configuration, "snapshot" | "inForce">,
  secrets: Secrets,
): readonly WrittenTest[] {
  const shown = (tests: readonly Test[]): readonly Test[] => {
    if (secrets === "shown") return tests;
    const masked = ownTests(maskedText(Buffer.from(JSON.stringify({ tests })), snapshot).text);
    // A name may look like a secret.
    return tests.map(({ name }, i) => ({ name, request: masked[i]!.request }));
  };
  const own =
    "text" in source
      ? placed(shown(ownTests(source.text)), source.text, ["tests"])
      : placed(shown((source.value as { readonly tests?: Test[] }).tests ?? []), null, ["tests"]);
  const inFiles = snapshot.files.filter(({ path }) => snapshot.testFiles.includes(path));
  return [
    ...own,
    ...inFiles.flatMap(({ path, content }) =>
      placed(shown(parsed(content) as Test[]), content, []).map((test) => ({ ...test, file: path })),
    ),
  ];
}

function parsed(text: Buffer | string): unknown {
  return JSON.parse(String(text).replace(/^\uFEFF/, ""));
}

/** Of the text of a configuration. */
function ownTests(text: Buffer | string): readonly Test[] {
  return (parsed(text) as { readonly tests?: readonly Test[] }).tests ?? [];
}

/** Null: the source has another text by now. */
function textWith(digest: string, source: ReadableSource): Buffer | null {
  try {
    const { text } = atOnce(source.current());
    return sourceDigest(text) === digest ? text : null;
  } catch {
    return null;
  }
}

/** `at`: of the list. `text`: null: there is none. */
function placed(tests: readonly Test[], text: Buffer | string | null, at: Path): WrittenTest[] {
  const { node, positionOf } = parseJson(text ?? "null");
  return tests.map(({ name, request }, i) => {
    const path = [...at, i];
    const found = node === null ? undefined : nodeAt(node, path);
    const { line, column } = positionOf(found?.offset ?? -1) ?? { line: null, column: null };
    return { name, path: formatPath(path), line, column, request };
  });
}

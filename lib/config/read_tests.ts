/**
 * Reads the tests of a configuration from its field `tests` and from the files of `test_files`, and reports all their errors.
 */
import { suggest } from "../base/suggest.ts";
import { byPosition, describeNode, formatPath, nodeAt, parseJson, type Issue, type JsonNode, type Path } from "./json.ts";
import { resolveReferences } from "./references.ts";
import { INVALID, report, type CheckContext } from "./schema.ts";
import { MAX_TESTS, TEST_FILE, TEST_FILES, TESTS, type ConfigTest } from "./tests.ts";

/** The names of the routes by the names of their services, as far as they can be read. */
export interface RouteNames {
  readonly byService: ReadonlyMap<string, ReadonlySet<string>>;
  /** False if some name cannot be read: an unknown name may then be right. */
  readonly isComplete: boolean;
  /** A text for messages: references in place of their values. */
  readonly written: (text: string) => string;
}

interface TestList {
  readonly node: JsonNode;
  readonly at: Path;
  readonly file: string | undefined;
  readonly issues: Issue[];
}

/**
 * The tests of `tests`, then of each file of `test_files`. `context` gets the files and the issues of the configuration's own text;
 * `issues` are those of the files.
 */
export function readTests(root: JsonNode, names: RouteNames, context: CheckContext): { readonly tests: readonly ConfigTest[]; readonly issues: readonly Issue[] } {
  const own = nodeAt(root, ["tests"]);
  const lists: TestList[] = own === undefined ? [] : [{ node: own, at: ["tests"], file: undefined, issues: context.issues }];
  lists.push(...testFiles(root, context));
  const checkNames = nameCheck(names, context);
  let count = 0;
  const tests = lists.flatMap((list) => {
    const { node, at, file, issues } = list;
    if (node.kind === "array") count += node.items.length;
    if (node.kind === "array" && count > MAX_TESTS) {
      report({ ...context, issues }, at, node, `expected at most ${MAX_TESTS} tests in all, found ${count}`);
      return [];
    }
    const found = TESTS.check(node, at, { issues, sources: context.sources });
    checkNames(list);
    return found === INVALID ? [] : file === undefined ? found : found.map((test) => ({ ...test, file }));
  });
  const inFiles = lists.filter(({ file }) => file !== undefined);
  return { tests, issues: inFiles.flatMap(({ file, issues }) => issues.sort(byPosition).map((issue) => ({ ...issue, file: file! }))) };
}

/** A file that cannot be read or parsed is reported, and does not hide the errors of the others. */
function testFiles(root: JsonNode, context: CheckContext): TestList[] {
  const listed = nodeAt(root, ["test_files"]);
  if (listed === undefined) return [];
  TEST_FILES.check(listed, ["test_files"], context);
  const seen = new Map<string, number>();
  return (listed.kind === "array" ? listed.items : []).flatMap((item, i) => {
    const at = ["test_files", i];
    const file = TEST_FILE.check(item, at, { ...context, issues: [] });
    if (file === INVALID) return [];
    const first = seen.get(file.path);
    if (first !== undefined) return report(context, at, item, `is the same file as test_files[${first}]`), [];
    seen.set(file.path, i);
    const { node, issues } = parseJson(file.content);
    return { node: node ?? NO_TESTS, at: [], file: file.path, issues: [...issues] };
  });
}

const NO_TESTS: JsonNode = { kind: "array", items: [], position: null };

/** Returns a function that reports names of tests that are used twice, and names of services and routes that do not exist. */
function nameCheck({ byService, isComplete, written }: RouteNames, { sources }: CheckContext): (list: TestList) => void {
  const places = new Map<string, string>();
  let all: ReadonlySet<string> | undefined;
  const routes = () => (all ??= new Set([...byService.values()].flatMap((names) => [...names])));
  let suggestions = MAX_SUGGESTIONS;
  const text = (node: JsonNode | undefined) => {
    if (node?.kind !== "string") return undefined;
    const found = resolveReferences(node.value, sources);
    return found.problems.length > 0 ? undefined : { node, value: found.text };
  };
  const unknown = (found: { readonly node: JsonNode; readonly value: string }, expected: string, known: Iterable<string>) => {
    const nearest = suggestions-- > 0 ? suggest(found.value, known) : undefined;
    return `expected ${expected}, found ${describeNode(found.node)}${nearest === undefined ? "" : `: did you mean ${JSON.stringify(written(nearest))}?`}`;
  };
  return ({ node, at, file, issues }) => {
    const report = (place: Path, found: JsonNode, message: string) => issues.push({ at: place, message, position: found.position });
    (node.kind === "array" ? node.items : []).forEach((item, i) => {
      const place = [...at, i];
      const name = text(nodeAt(item, ["name"]));
      if (name !== undefined) {
        const first = places.get(name.value);
        if (first === undefined) places.set(name.value, file === undefined ? formatPath(place) : `${formatPath(place)} of ${file}`);
        else report([...place, "name"], name.node, `${describeNode(name.node)} is already used by ${first}`);
      }
      if (!isComplete) return;
      const service = text(nodeAt(item, ["expect", "service"]));
      const route = text(nodeAt(item, ["expect", "route"]));
      const its = service && byService.get(service.value);
      if (service !== undefined && its === undefined) {
        report([...place, "expect", "service"], service.node, unknown(service, "the name of a service", byService.keys()));
      } else if (route !== undefined && !(its ?? routes()).has(route.value)) {
        const expected = service === undefined ? "the name of a route" : `the name of a route of the service ${describeNode(service.node)}`;
        report([...place, "expect", "route"], route.node, unknown(route, expected, its ?? routes()));
      }
    });
  };
}

/** Each suggestion compares all names. */
const MAX_SUGGESTIONS = 20;

/**
 * Reads the tests of a configuration from its field `tests` and from the files of `test_files`, and reports all their errors.
 */
import { suggest } from "../base/suggest.ts";
import { byPosition, describeNode, formatPath, itemsOf, nodeAt, parseJson, type Issue, type JsonNode, type Path } from "./json.ts";
import type { PartFields } from "./part_fields.ts";
import { nameIn } from "./references.ts";
import { INVALID, report, type CheckContext } from "./schema.ts";
import type { CheckSignature } from "./source.ts";
import { MAX_TESTS, TEST_FILE, TEST_FILES, TESTS, type ConfigTest } from "./tests.ts";

/** The names of the routes by the names of their services, as far as they can be read. */
export interface RouteNames {
  readonly byService: ReadonlyMap<string, ReadonlySet<string>>;
  /** False if some name cannot be read: an unknown name may then be right. */
  readonly isComplete: boolean;
}

interface TestList {
  readonly node: JsonNode;
  readonly at: Path;
  readonly file: string | undefined;
  readonly issues: Issue[];
}

/**
 * The tests of `tests`, then of each file of `test_files`. `context` gets the files and the issues of the configuration's own text;
 * `issues` are those of the files. With `checkSignature` each file must be signed.
 */
export function readTests(
  root: JsonNode,
  names: RouteNames,
  context: CheckContext,
  checkSignature?: CheckSignature,
): { readonly tests: readonly ConfigTest[]; readonly testFiles: readonly string[]; readonly issues: readonly Issue[] } {
  const own = nodeAt(root, ["tests"]);
  const inFiles = filesWithTests(root, context, checkSignature);
  const lists: readonly TestList[] = [...(own === undefined ? [] : [{ node: own, at: ["tests"], file: undefined, issues: context.issues }]), ...inFiles];
  const nameCheck = new NameCheck(names, context);
  let count = 0;
  const tests = lists.flatMap((list) => {
    const { node, at, file, issues } = list;
    count += itemsOf(node).length;
    if (count > MAX_TESTS) {
      report({ ...context, issues }, at, node, `expected at most ${MAX_TESTS} tests in all, found ${count}`);
      return [];
    }
    const found = TESTS.check(node, at, { issues, sources: context.sources, root: file === undefined ? root : node });
    itemsOf(node).forEach((test, i) => nameCheck.test(test, [...at, i], list));
    return found === INVALID ? [] : file === undefined ? found : found.map((test) => ({ ...test, file }));
  });
  const testFiles = inFiles.map(({ file }) => file);
  return { tests, testFiles, issues: inFiles.flatMap(({ file, issues }) => issues.sort(byPosition).map((issue) => ({ ...issue, file }))) };
}

/** A file that cannot be read or parsed is reported, and does not hide the errors of the others. */
function filesWithTests(root: JsonNode, context: CheckContext, checkSignature?: CheckSignature): (TestList & { readonly file: string })[] {
  const listed = nodeAt(root, ["test_files"]);
  if (listed === undefined) return [];
  TEST_FILES.check(listed, ["test_files"], context);
  const seen = new Map<string, number>();
  return itemsOf(listed).flatMap((item, i) => {
    const at = ["test_files", i];
    const file = TEST_FILE.check(item, at, { ...context, issues: [] }); // its errors are those of the whole list
    if (file === INVALID) return [];
    const first = seen.get(file.path);
    if (first !== undefined) {
      report(context, at, item, `is the same file as test_files[${first}]`);
      return [];
    }
    seen.set(file.path, i);
    const unsigned = checkSignature?.(file.path, file.content).problem;
    if (unsigned !== undefined) {
      report(context, at, item, unsigned);
      return [];
    }
    const { node, issues } = parseJson(file.content);
    return { node: node ?? NO_TESTS, at: [], file: file.path, issues: [...issues] };
  });
}

const NO_TESTS: JsonNode = { kind: "array", items: [], position: null };

/** A text of the configuration, and its value. */
interface Text {
  readonly node: JsonNode;
  readonly value: string;
}

/** Reports names of tests that are used twice, and names of services and routes that do not exist. */
class NameCheck {
  readonly #names: RouteNames;
  readonly #context: CheckContext;
  /** Where each name of a test was first used. */
  readonly #places = new Map<string, string>();
  #allRoutes: ReadonlySet<string> | undefined;
  #suggestions = MAX_SUGGESTIONS;

  constructor(names: RouteNames, context: CheckContext) {
    this.#names = names;
    this.#context = context;
  }

  test(node: JsonNode, at: Path, { file, issues }: TestList): void {
    const context = { ...this.#context, issues };
    const name = this.#text(nodeAt(node, ["name"]));
    if (name !== undefined) {
      const first = this.#places.get(name.value);
      if (first !== undefined) report(context, [...at, "name"], name.node, `${describeNode(name.node)} is already used by ${first}`);
      else this.#places.set(name.value, file === undefined ? formatPath(at) : `${formatPath(at)} of ${file}`);
    }
    if (this.#names.isComplete) this.#target(node, at, context);
  }

  #target(node: JsonNode, at: Path, context: CheckContext): void {
    const { byService } = this.#names;
    const service = this.#text(nodeAt(node, ["expect", "service"]));
    if (service !== undefined && !byService.has(service.value)) {
      report(context, [...at, "expect", "service"], service.node, this.#unknown(service, "the name of a service", byService.keys()));
      return;
    }
    const routes = service === undefined ? this.#routes() : byService.get(service.value)!;
    const route = this.#text(nodeAt(node, ["expect", "route"]));
    if (route === undefined || routes.has(route.value)) return;
    const expected = `the name of a route${service === undefined ? "" : ` of the service ${describeNode(service.node)}`}`;
    report(context, [...at, "expect", "route"], route.node, this.#unknown(route, expected, routes));
  }

  /** Of all services. */
  #routes(): ReadonlySet<string> {
    return (this.#allRoutes ??= new Set([...this.#names.byService.values()].flatMap((names) => [...names])));
  }

  #text(node: JsonNode | undefined): Text | undefined {
    const value = nameIn(node);
    return value === undefined ? undefined : { node: node!, value };
  }

  #unknown({ node, value }: Text, expected: string, known: Iterable<string>): string {
    const nearest = this.#suggestions-- > 0 ? suggest(value, known) : undefined;
    const remedy = nearest === undefined ? "" : `: did you mean ${JSON.stringify(nearest)}?`;
    return `expected ${expected}, found ${describeNode(node)}${remedy}`;
  }
}

/** A suggestion compares all names, so that thousands of them would take minutes. */
const MAX_SUGGESTIONS = 20;

export const fields: PartFields = { schemas: { tests: TESTS, test_files: TEST_FILES } };

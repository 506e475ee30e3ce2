/**
 * Reads the tests of a configuration from its field `tests` and from the files of `test_files`, and reports all their
 * errors.
 */
import { suggest } from "../base/suggest.ts";
import { describeNode, formatPath, itemsOf, listedIssues, nodeAt, nodeFrom, NOWHERE } from "./json.ts";
import { parseJson } from "./json_parser.ts";
import type { Issue, JsonNode, Path, PositionOf } from "./json.ts";
import type { RouteDeclaration } from "./declarations.ts";
import type { CheckedConfig } from "./model.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { contentOf, reportUnpinned } from "./pinned_file.ts";
import * as references from "./references.ts";
import { INVALID, report, type CheckContext } from "./schema.ts";
import { MAX_TESTS, TEST_FILE, TEST_FILES, TESTS, type ConfigTest } from "./tests.ts";

/** The names of the routes by the names of their services. */
type RouteNames = ReadonlyMap<string, ReadonlySet<string>>;

interface TestList {
  readonly node: JsonNode;
  readonly at: Path;
  readonly file: string | undefined;
  readonly issues: Issue[];
  readonly positionOf: PositionOf;
}

/**
 * The tests of `tests`, then of each file of `test_files`. `context` gets the files and the issues of the
 * configuration's own text; `issues` are those of the files. With `mustPin` each file needs its digest.
 */
export function readTests(
  root: JsonNode,
  routes: CheckedConfig | readonly RouteDeclaration[],
  context: CheckContext,
  mustPin = false,
): { readonly tests: readonly ConfigTest[]; readonly testFiles: readonly string[]; readonly issues: readonly Issue[] } {
  const own = nodeAt(root, ["tests"]);
  const inFiles = filesWithTests(root, context, mustPin);
  const lists: readonly TestList[] = [
    ...(own === undefined
      ? []
      : [
          {
            node: own,
            at: ["tests"],
            file: undefined,
            issues: context.issues,
            positionOf: context.positionOf ?? NOWHERE,
          },
        ]),
    ...inFiles,
  ];
  if (own === undefined && inFiles.length === 0) return { tests: [], testFiles: [], issues: [] };
  const names = "services" in routes ? namesOf(routes) : namesIn(root, routes);
  const nameCheck = new NameCheck(names, context);
  let count = 0;
  const tests = lists.flatMap((list) => {
    const { node, at, file, issues, positionOf } = list;
    count += itemsOf(node).length;
    if (count > MAX_TESTS) {
      report(
        { ...context, issues, positionOf },
        at,
        node,
        `expected at most ${MAX_TESTS} tests in all, found ${count}`,
      );
      return [];
    }
    const found = TESTS.check(node, at, {
      issues,
      positionOf,
      sources: { ...context.sources, references },
      root: file === undefined ? root : node,
    });
    itemsOf(node).forEach((test, i) => nameCheck.test(test, [...at, i], list));
    return found === INVALID ? [] : file === undefined ? found : found.map((test) => ({ ...test, file }));
  });
  const testFiles = inFiles.map(({ file }) => file);
  return {
    tests,
    testFiles,
    issues: inFiles.flatMap(({ file, issues }) => listedIssues(issues).map((issue) => ({ ...issue, file }))),
  };
}

/** What the gateway does, without what is expected of it. */
export function withoutTests(root: JsonNode): JsonNode {
  if (root.kind !== "object") return root;
  return { ...root, members: new Map([...root.members].filter(([key]) => key !== "tests" && key !== "test_files")) };
}

/** A file that cannot be read or parsed is reported, and does not hide the errors of the others. */
function filesWithTests(
  root: JsonNode,
  context: CheckContext,
  mustPin: boolean,
): (TestList & { readonly file: string })[] {
  const listed = nodeAt(root, ["test_files"]);
  if (listed === undefined) return [];
  TEST_FILES.check(listed, ["test_files"], context);
  const seen = new Map<string, number>();
  return itemsOf(listed).flatMap((item, i) => {
    const at = ["test_files", i];
    const listed = TEST_FILE.check(item, at, { ...context, issues: [] }); // its errors are those of the whole list
    if (listed === INVALID) return [];
    const file = contentOf(listed);
    const first = seen.get(file.path);
    if (first !== undefined) {
      report(context, at, item, `is the same file as test_files[${first}]`);
      return [];
    }
    seen.set(file.path, i);
    if (mustPin && reportUnpinned(listed, at, item, context)) return [];
    const { node, issues, positionOf } = parseJson(file.content);
    return { node: node ?? NO_TESTS, at: [], file: file.path, issues: [...issues], positionOf };
  });
}

const NO_TESTS = nodeFrom([]);

function namesOf({ services }: CheckedConfig): RouteNames {
  return new Map(services.map(({ name, routes }) => [name, new Set(routes.map((route) => route.name))]));
}

/**
 * Null if some name cannot be read: an unknown name may then be right. `declared`: the routes that can be read, for
 * those without a written name.
 */
function namesIn(root: JsonNode, declared: readonly RouteDeclaration[]): RouteNames | null {
  const names = new Map(declared.map(({ route }) => [formatPath(route.at), route.name]));
  const found = new Map<string, Set<string>>();
  const services = nodeAt(root, ["services"]);
  const isComplete = itemsOf(services).every((service, i) => {
    const [name, routes] = [references.nameIn(nodeAt(service, ["name"])), nodeAt(service, ["routes"])];
    if (name === undefined || routes?.kind !== "array") return false;
    const ofService = found.get(name) ?? new Set<string>();
    found.set(name, ofService);
    return routes.items.every((route, j) => {
      const written = nodeAt(route, ["name"]);
      const routeName =
        written === undefined ? names.get(formatPath(["services", i, "routes", j])) : references.nameIn(written);
      if (routeName !== undefined) ofService.add(routeName);
      return routeName !== undefined;
    });
  });
  return isComplete && services?.kind === "array" ? found : null;
}

/** Reports names of tests that are used twice, and names of services and routes that do not exist. */
class NameCheck {
  readonly #names: RouteNames | null;
  readonly #context: CheckContext;
  /** Where each name of a test was first used. */
  readonly #places = new Map<string, string>();
  #allRoutes: ReadonlySet<string> | undefined;
  #suggestions = MAX_SUGGESTIONS;

  constructor(names: RouteNames | null, context: CheckContext) {
    this.#names = names;
    this.#context = context;
  }

  test(node: JsonNode, at: Path, { file, issues, positionOf }: TestList): void {
    const context = { ...this.#context, issues, positionOf };
    const named = nodeAt(node, ["name"]);
    const name = references.nameIn(named);
    if (name !== undefined) {
      const first = this.#places.get(name);
      if (first !== undefined)
        report(context, [...at, "name"], named!, `${describeNode(named!)} is already used by ${first}`);
      else this.#places.set(name, file === undefined ? formatPath(at) : `${formatPath(at)} of ${file}`);
    }
    if (this.#names !== null) this.#target(this.#names, node, at, context);
  }

  #target(byService: RouteNames, node: JsonNode, at: Path, context: CheckContext): void {
    const [service, route] = [nodeAt(node, ["expect", "service"]), nodeAt(node, ["expect", "route"])];
    const name = references.nameIn(service);
    if (name !== undefined && !byService.has(name))
      return this.#unknown(service!, [...at, "expect", "service"], "the name of a service", byService.keys(), context);
    const routes = name === undefined ? this.#routes(byService) : byService.get(name)!;
    const routeName = references.nameIn(route);
    if (routeName === undefined || routes.has(routeName)) return;
    const expected = `the name of a route${name === undefined ? "" : ` of the service ${describeNode(service!)}`}`;
    this.#unknown(route!, [...at, "expect", "route"], expected, routes, context);
  }

  /** Of all services. */
  #routes(byService: RouteNames): ReadonlySet<string> {
    return (this.#allRoutes ??= new Set([...byService.values()].flatMap((names) => [...names])));
  }

  #unknown(node: JsonNode, at: Path, expected: string, known: Iterable<string>, context: CheckContext): void {
    const nearest = this.#suggestions-- > 0 ? suggest(references.nameIn(node)!, known) : undefined;
    const remedy = nearest === undefined ? "" : `: did you mean ${JSON.stringify(nearest)}?`;
    report(context, at, node, `expected ${expected}, found ${describeNode(node)}${remedy}`);
  }
}

/** A suggestion compares all names, so that thousands of them would take minutes. */
const MAX_SUGGESTIONS = 20;

export const fields: FeatureFields = { schemas: { tests: TESTS, test_files: TEST_FILES } };

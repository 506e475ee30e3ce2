/**
 * The tests page: the last run of the configuration's tests, failed ones first, with what was expected beside what was
 * found.
 */
import { ageOf } from "./ages.ts";
import {
  ask,
  isSessionEnd,
  messageOf,
  type Status,
  type TestResult,
  type TestRun,
  type Validation,
  type WrittenTest,
} from "./api.ts";
import { askingFor } from "./asking.ts";
import { breakable, field, fixedBadge, link, loading, notice, searchInput } from "./components.ts";
import { button, el, replace, setText, whenChanged } from "./dom.ts";
import { counted, number } from "./format.ts";
import { NEW_TEST } from "./new_test.ts";
import type { Frame, Known, OpenPage, Page } from "./page.ts";
import { countText, matches, viewIn } from "./table_rows.ts";
import { keepInAddress } from "./tables.ts";
import { comparisonsOf, differenceOf, failedFirst, otherDifferences, searchTextOf } from "./test_results.ts";
import { editorHash } from "./url_hash.ts";

/** More tests get a search field. */
const MAX_WITHOUT_SEARCH = 10;
/** Tests that are drawn at first. */
const FIRST_TESTS = 100;
/** Failed tests that are open at first. */
const FIRST_OPEN = 10;

export const page: OpenPage = (frame) => new TestsPage(frame);

class TestsPage implements Page {
  readonly title = "Tests";
  readonly node = el("div", { class: "stack" });
  readonly #frame: Frame;
  readonly #summary = el("div", { role: "status" });
  readonly #result = el("div", { role: "status" });
  readonly #add = el("p", { hidden: true }, el("a", { class: "button", href: NEW_TEST }, "Add a test"));
  readonly #ask;
  /** Another run follows a reload. */
  readonly #onRun = whenChanged(
    (_status: Status) => void this.#ask(),
    ({ digest, tests, last_reload: last }) => [digest, tests, last?.at],
  );
  readonly #list = el("div");
  /** What is open stays so after a run with the same results, and so does the result of a test that was run again. */
  readonly #drawList = whenChanged(
    ({ tests, digest }: TestRun) =>
      replace(
        this.#list,
        testList(tests, (test) => this.#actionsOf(test, digest)),
      ),
    ({ tests, digest }) => [tests, digest, this.#frame.session?.role, this.#frame.session?.write],
  );
  #status: Status | null = null;
  #isRunning = false;

  constructor(frame: Frame) {
    this.#frame = frame;
    this.#ask = askingFor({
      frame,
      what: "The tests",
      node: this.node,
      ask: () => ask<TestRun>("GET", "/gateway/tests?secrets=masked"),
      show: (run) => this.#show(run),
    });
    replace(this.node, loading("the tests"));
  }

  update({ status }: Known): void {
    this.#add.hidden = this.#frame.session?.write !== true;
    if (status === null) return;
    this.#status = status;
    this.#onRun(status);
  }

  #show(run: TestRun): void {
    if (run.tests.length === 0) return replace(this.node, noTests(this.#add));
    replace(this.#summary, this.#summaryOf(run));
    // A viewer only reads.
    const again =
      this.#frame.session?.role !== "viewer" &&
      el(
        "div",
        { class: "toolbar" },
        button("Run again", () => void this.#run(this.#result, verdictOnAll)),
        el("span", { class: "muted" }, "with the file as it is now; nothing is reloaded."),
      );
    this.#drawList(run);
    replace(this.node, this.#summary, again, this.#result, this.#list, this.#add);
  }

  /** Where the test is, and what can be done with it. */
  #actionsOf({ name, request, line, column, file }: WrittenTest, digest: string | null): readonly HTMLElement[] {
    const { session } = this.#frame;
    const result = el("div", { role: "status" });
    const place = line !== null && `${file ?? "Line"}${file === undefined ? " " : ", line "}${line}`;
    const isLinked = place && file === undefined && digest !== null && session?.write === true;
    const toolbar = el(
      "div",
      { class: "toolbar" },
      request !== null && el("a", { class: "button", href: `#/try?${new URLSearchParams({ test: name })}` }, "Try it"),
      session?.role !== "viewer" &&
        button("Run again", () => void this.#run(result, (validation) => verdictOn(name, validation)), "quiet"),
      isLinked
        ? el("a", { href: editorHash({ line: line!, column, path: name }, digest) }, place)
        : place && el("span", { class: "muted" }, place),
    );
    return [toolbar, result];
  }

  /** A dry run runs them all. */
  async #run(result: HTMLElement, shown: (validation: Validation) => HTMLElement): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    replace(result, loading("the tests of the file"));
    try {
      replace(result, shown(await ask<Validation>("POST", "/gateway/reload?dry_run=true")));
    } catch (error) {
      if (isSessionEnd(error)) return this.#frame.showError(error);
      replace(result, el("div", { class: "notice notice--bad" }, `The tests were not run. ${messageOf(error)}`));
    } finally {
      this.#isRunning = false;
    }
  }

  #summaryOf({ at, digest, passed, failed }: TestRun): HTMLElement {
    const all = passed + failed;
    const when =
      at === null
        ? null
        : el(
            "p",
            {},
            "Last run ",
            ageOf(at),
            digest === null ? "." : ", configuration ",
            digest !== null && el("span", { class: "mono" }, digest.slice(0, 16)),
          );
    if (failed === 0) return notice("good", `${counted(all, "test")} passed.`, "", when);
    const refused = this.#status?.last_reload?.outcome === "refused";
    return notice(
      "bad",
      `${number(failed)} of ${number(all)} tests failed.`,
      "",
      refused &&
        el(
          "p",
          {},
          "The reload was refused, and the gateway keeps its current configuration. " +
            "Correct the configuration or the test, then reload: ",
          el("a", { href: "#/config" }, "Configuration"),
        ),
      when,
    );
  }
}

function verdictOnAll({ tests, issues, untested }: Validation): HTMLElement {
  if (tests === null)
    return el(
      "div",
      { class: `notice notice--${issues.length > 0 ? "bad" : "good"}` },
      el("p", {}, whyNotRun({ issues, untested })),
    );
  const { passed, failed, not_run: notRun, failures } = tests;
  const text =
    `The file as it is now: ${number(passed)} passed, ` +
    `${number(failed)} failed${notRun === 0 ? "" : `, ${number(notRun)} not run`}.`;
  const list = el(
    "ol",
    { class: "tests" },
    ...failures.map((failure) => testItem({ ...failure, passed: false }, failures.length === 1)),
  );
  return el(
    "div",
    { class: `notice notice--${failed > 0 || issues.length > 0 ? "bad" : "good"}` },
    el("p", {}, text),
    failures.length > 0 && list,
  );
}

function verdictOn(name: string, { tests, issues, untested }: Validation): HTMLElement {
  if (tests === null) return notice("bad", whyNotRun({ issues, untested }), "");
  const { failures, failed, passes = [] } = tests;
  const failure = failures.find((each) => each.name === name);
  if (failure !== undefined)
    return notice("bad", "It fails with the file as it is now.", "", ...comparison({ ...failure, passed: false }));
  if (passes.includes(name)) return notice("good", "It passes with the file as it is now.", "");
  return notice(
    "bad",
    "It is not known how it ends.",
    failed > failures.length
      ? `It is not among the first ${number(failures.length)} failures.`
      : "The file as it is now has no test of this name.",
  );
}

function whyNotRun({ issues, untested }: Pick<Validation, "issues" | "untested">): string {
  return untested ?? (issues.length > 0 ? "The file has errors: its tests cannot be run." : "The file has no tests.");
}

function testList(
  tests: readonly WrittenTest[],
  actionsOf: (test: WrittenTest) => readonly HTMLElement[],
): HTMLElement {
  const items = failedFirst(tests).map((test, i) => ({
    text: searchTextOf(test),
    node: null as HTMLElement | null,
    test,
    open: i < FIRST_OPEN && !test.passed,
  }));
  const list = el("ol", { class: "tests" });
  const count = el("p", { class: "muted", role: "status" });
  const onchange = () => keepInAddress("tests", { query: input.value });
  const input = searchInput({
    id: "search-tests",
    value: viewIn(location.hash, "tests").query,
    oninput: draw,
    onchange,
  });
  const more = button("", showAll, "quiet");
  const search = el("div", { class: "toolbar toolbar--apart" }, field("Search tests", input), count);
  let all = false;
  draw();
  return el("div", { class: "card stack" }, tests.length > MAX_WITHOUT_SEARCH && search, list, more);

  function draw(): void {
    const found = items.filter(({ text }) => matches(text, input.value));
    const shown = all ? found : found.slice(0, FIRST_TESTS);
    replace(list, ...shown.map((item) => (item.node ??= testItem(item.test, item.open, actionsOf))));
    setText(count, countText(found.length, items.length, ["test", "tests"]));
    more.hidden = shown.length === found.length;
    setText(more, `Show all ${number(found.length)} tests (the first ${number(shown.length)} are here)`);
  }

  function showAll(): void {
    const next = list.children.length;
    all = true;
    draw();
    // The button is gone, so the focus moves to the first new test.
    list.children[next]?.querySelector("summary")?.focus();
  }
}

/** The comparison is created when it is opened: there may be thousands of tests. */
function testItem<Test extends TestResult>(
  test: Test,
  open: boolean,
  actionsOf: (test: Test) => readonly HTMLElement[] = () => [],
): HTMLElement {
  const { name, passed } = test;
  const badge = fixedBadge(passed ? "good" : "bad", passed ? "Passed" : "Failed");
  const summary = el(
    "summary",
    {},
    badge,
    " ",
    el("strong", {}, name),
    !passed && el("span", { class: "muted test__why" }, ` ${differenceOf(test)}`),
  );
  const details = el("details", { class: "test", open, ontoggle: fill }, summary);
  fill();
  return el("li", {}, details);

  function fill(): void {
    if (details.open && details.children.length === 1) details.append(...comparison(test), ...actionsOf(test));
  }
}

function comparison(test: TestResult): readonly HTMLElement[] {
  const others = otherDifferences(test);
  const rows = comparisonsOf(test).map(({ name, expected, found, differs }) => {
    const difference = differs && fixedBadge("bad", "differs");
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, el("code", {}, ...breakable(name)), " ", difference),
      cell(expected),
      cell(found),
    );
  });
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, "Field"),
    el("th", { scope: "col" }, "Expected"),
    el("th", { scope: "col" }, "Found"),
  );
  const table = el(
    "table",
    { class: "table table--fixed", "aria-label": `Expected and found: ${test.name}` },
    el("thead", {}, head),
    el("tbody", {}, ...rows),
  );
  return [...others.map((each) => el("p", { class: "figure--bad" }, each)), ...(rows.length > 0 ? [table] : [])];
}

function cell(text: string): HTMLElement {
  return el("td", {}, el("code", { class: "test__value" }, text));
}

function noTests(add: Node): HTMLElement {
  const what =
    "A test names a request and what has to become of it. All tests run at the start and before each reload, " +
    "without any upstream: if one fails, the current configuration stays in force.";
  return el(
    "div",
    { class: "card stack" },
    el("p", {}, el("strong", {}, "The configuration has no tests.")),
    el("p", {}, what),
    el("p", {}, link("#/try", "Try it"), " writes a test from a request."),
    add,
  );
}

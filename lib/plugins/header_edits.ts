/**
 * Changes of header lists as a configuration asks for them: remove, rename, set, add, in this order. What `request_headers` and
 * `response_headers` have in common; which headers are out of bounds is theirs to say.
 */
import { anyOf, array, object, optional, record, string, type ObjectOut, type Path } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { isHopByHop, type HeaderList } from "../http/headers.ts";
import { headerTemplate, type Template } from "./template.ts";

/** What is wrong with changing the header of this name (lower case) in this way, or undefined. */
export type Refuse = (lower: string, change: "away" | "here") => string | undefined;

const fieldsWith = (secret: boolean) => ({
  remove: optional(array(string({ min: 1 }), { describe: "Names of headers that go." })),
  rename: optional(record(string({ min: 1 }), { describe: "New names by old ones; a header that has the new name already gives way." })),
  set: optional(record(headerTemplate("The value.", secret), { describe: "Values by name; what stands there already goes." })),
  add: optional(
    record(anyOf([headerTemplate("The value.", secret), array(headerTemplate("A value.", secret), { min: 1 })]), {
      describe: "Values by name, or lists of them; what stands there already stays.",
    }),
  ),
});

export type HeaderChanges = ObjectOut<ReturnType<typeof fieldsWith>>;

/** "secret": the values are for upstreams, which may want credentials in them; clients see "open" ones anyway. */
export function headerChanges(describe: string, values: "secret" | "open", refuse: Refuse) {
  return object(fieldsWith(values === "secret"), {
    describe,
    refine(value, report) {
      const { remove = [], rename = {}, set = {}, add = {} } = value;
      if (remove.length + [rename, set, add].flatMap(Object.keys).length === 0) report('needs at least one of "remove", "rename", "set" and "add"');
      const check = (name: string, change: "away" | "here", ...under: Path) => {
        const wrong = whyUntouchable(name) ?? refuse(name.toLowerCase(), change);
        if (wrong !== undefined) report(wrong, ...under);
        return wrong === undefined;
      };
      remove.forEach((name, i) => check(name, "away", "remove", i));
      unique(Object.keys(rename), "rename", report);
      unique(Object.keys(set), "set", report);
      unique(Object.keys(add), "add", report);
      const targets = new Map<string, string>();
      for (const [from, to] of Object.entries(rename)) {
        if (!check(from, "away", "rename", from) || !check(to, "here", "rename", from)) continue;
        const first = targets.get(to.toLowerCase());
        if (first !== undefined) report(`gets the same name as ${first}`, "rename", from);
        else targets.set(to.toLowerCase(), from);
      }
      for (const name of Object.keys(set)) check(name, "here", "set", name);
      for (const name of Object.keys(add)) check(name, "here", "add", name);
    },
  });
}

function whyUntouchable(name: string): string | undefined {
  if (!NAME.test(name)) return "is no name of a header";
  if (isHopByHop(name)) return "concerns a single connection: the gateway sees to it";
  const lower = name.toLowerCase();
  return lower === "content-length" || lower === "trailer" ? "says how the message is framed: the gateway sees to it" : undefined;
}

/** RFC 9110 §5.6.2. */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

function unique(names: readonly string[], field: string, report: (message: string, ...under: Path) => void): void {
  const seen = new Set<string>();
  for (const name of names) {
    if (seen.has(name.toLowerCase())) report("stands there twice, in another case", field, name);
    seen.add(name.toLowerCase());
  }
}

interface Value {
  readonly name: string;
  readonly template: Template;
}

/** Gives the changed copy of a list. A value that comes out empty makes no header. */
export function headerEditor(changes: HeaderChanges): (list: HeaderList, exchange: Exchange) => HeaderList {
  const set = Object.entries(changes.set ?? {}).map(([name, template]): Value => ({ name, template }));
  const add = Object.entries(changes.add ?? {}).flatMap(([name, given]) => [given].flat().map((template): Value => ({ name, template: template as Template })));
  const overwritten = new Set(set.map(({ name }) => name.toLowerCase()));
  const removed = new Set((changes.remove ?? []).map((name) => name.toLowerCase()));
  const renamed = new Map(Object.entries(changes.rename ?? {}).map(([from, to]) => [from.toLowerCase(), to]));
  // What is named by nobody is told by its length alone, most of the time.
  const lengths = new Set([...removed, ...overwritten, ...renamed.keys(), ...renamed.values()].map((name) => name.length));
  const touches = lengths.size > 0;
  const values = [...set, ...add];

  return (list, exchange) => {
    const replaced = renamed.size === 0 ? NONE : replacedBy(renamed, removed, list);
    const result: string[] = [];
    for (let i = 0; i < list.length; i += 2) {
      let name = list[i]!;
      if (touches && lengths.has(name.length)) {
        const lower = name.toLowerCase();
        if (removed.has(lower)) continue;
        const to = renamed.get(lower);
        if (to !== undefined) name = to;
        else if (replaced.has(lower)) continue;
        if (overwritten.has(to?.toLowerCase() ?? lower)) continue;
      }
      result.push(name, list[i + 1]!);
    }
    for (const { name, template } of values) {
      const value = template(exchange);
      if (value !== "") result.push(name, value);
    }
    return result;
  };
}

const NONE: ReadonlySet<string> = new Set();

/** New names that a header of this list will have, in lower case: who has them now gives way. */
function replacedBy(renamed: ReadonlyMap<string, string>, removed: ReadonlySet<string>, list: HeaderList): ReadonlySet<string> {
  let found: Set<string> | null = null;
  for (let i = 0; i < list.length; i += 2) {
    const lower = list[i]!.toLowerCase();
    const to = renamed.get(lower);
    if (to !== undefined && !removed.has(lower)) (found ??= new Set()).add(to.toLowerCase());
  }
  return found ?? NONE;
}

/**
 * Collects what differs between the answers of two versions, equal differences together, the most severe first.
 */
import { isDeepStrictEqual } from "node:util";
import type { VersionAnswer, VersionReport } from "./child.ts";
import type { Sample } from "./samples.ts";

/** By severity. */
export const HEADINGS = {
  guards_lost: "guards lost",
  route: "other routes",
  verdict: "other verdicts",
  forwarded_path: "other paths for the upstream",
  upstream_headers: "other headers for the upstream",
  acceptance: "one version refuses the configuration",
  tests: "other results of tests",
  warnings: "other warnings",
  defaults: "other values in the configuration, with its defaults",
};

type Kind = keyof typeof HEADINGS;

export interface Difference {
  readonly kind: Kind;
  readonly what: string;
  /** Of the first request that shows it. */
  readonly old: string | null;
  readonly new: string | null;
  /** "shop / items"; the first five. */
  readonly routes: string[];
  /** How many show it. */
  requests: number;
  /** "GET shop.example.com/items/7"; null: no request shows it. */
  readonly example: string | null;
}

/** Further ones are only counted. */
const MAX_KEPT = 1_000;
const MAX_ROUTES = 5;
const MAX_TEXT = 4_000;

type Values = readonly [old: unknown, now: unknown];

export class Differences {
  readonly #found = new Map<string, Difference>();
  /** Requests that show differences which are not kept. */
  more = 0;

  get list(): readonly Difference[] {
    const kinds = Object.keys(HEADINGS);
    return [...this.#found.values()].sort((a, b) => kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || b.requests - a.requests);
  }

  /** `key`: what makes it another difference. */
  add(kind: Kind, what: string, values: Values, shownBy: { readonly sample: Sample; readonly route: string } | null = null, key = what): void {
    const known = this.#found.get(`${kind} ${key}`);
    if (known === undefined && this.#found.size === MAX_KEPT) this.more++;
    else if (known !== undefined) {
      known.requests++;
      if (shownBy !== null && known.routes.length < MAX_ROUTES && !known.routes.includes(shownBy.route)) known.routes.push(shownBy.route);
    } else {
      const [old, now] = values.map((value) => textOf(value, shownBy?.sample.secret)) as [string, string];
      const [routes, requests, example] = shownBy === null ? [[], 0, null] : [[shownBy.route], 1, textOf(shownBy.sample.shown)];
      this.#found.set(`${kind} ${key}`, { kind, what, old, new: now, routes, requests, example });
    }
  }

  /** Of two versions that accept the configuration. */
  ofReports(old: VersionReport, now: VersionReport): void {
    const countOf = (list: readonly string[], wanted: string) => list.filter((each) => each === wanted).length;
    for (const each of new Set([...old.warnings, ...now.warnings])) {
      const values = [countOf(old.warnings, each), countOf(now.warnings, each)] as const;
      if (values[0] !== values[1]) this.add("warnings", each, values);
    }
    for (const name of Object.keys(old.tests)) if (name in now.tests && old.tests[name] !== now.tests[name]) this.add("tests", name, [old.tests[name], now.tests[name]]);
    this.#ofDefaults(old.config, now.config, "");
  }

  /** A field that only one of the versions has is no difference in what requests meet. */
  #ofDefaults(old: any, now: any, at: string): void {
    if (typeof old !== "object" || typeof now !== "object" || old === null || now === null) {
      if (old !== undefined && now !== undefined && old !== now) this.add("defaults", at.slice(1), [old, now], null, `${at} ${JSON.stringify([old, now])}`);
    } else for (const name of Object.keys(old)) this.#ofDefaults(old[name], now[name], Array.isArray(old) ? `${at}[]` : `${at}.${name}`);
  }

  ofAnswers(sample: Sample, old: VersionAnswer, now: VersionAnswer): void {
    const route = now.route ?? old.route ?? "no route";
    const add = (kind: Kind, what: string, values: Values, key = what) => this.add(kind, what, values, { sample, route }, key);
    if (old.refused !== now.refused || old.route !== now.route) {
      const values = [old, now].map((each) => each.refused ?? each.route) as [string, string];
      const key = `${sample.form} ${old.refused} ${now.refused}`;
      if (isGuarded(old) && now.refused === null) add("guards_lost", `no longer refused (${sample.form})`, values, key);
      else if (isGuarded(old) || isGuarded(now)) add("verdict", `refused in another way (${sample.form})`, values, key);
      else add("route", `another route (${sample.form})`, values, key);
    }
    if (old.route !== null && now.route !== null) {
      this.#ofPlugins(old, now, add);
      if (old.forwarded !== now.forwarded) add("forwarded_path", `another path (${sample.form})`, [old.forwarded, now.forwarded]);
    }
    if (old.headers === null || now.headers === null) return;
    const [before, after] = [valuesByName(old.headers), valuesByName(now.headers)];
    for (const name of new Set([...before.keys(), ...after.keys()])) {
      const values = [before.get(name), after.get(name)] as const;
      const what = `${name} ${values[0] === undefined ? "is added" : values[1] === undefined ? "is gone" : "has another value"}`;
      if (!isDeepStrictEqual(...values)) add("upstream_headers", what, values);
    }
  }

  #ofPlugins(old: VersionAnswer, now: VersionAnswer, add: (kind: Kind, what: string, values: Values, key?: string) => void): void {
    const namesOf = ({ plugins }: VersionAnswer) => plugins.map(([name]) => (old.route === now.route ? name : name.replace(/ .*/, "")));
    const [before, after] = [namesOf(old), namesOf(now)];
    const values = [before.join(", "), after.join(", ")] as const;
    for (const name of before) if (!after.includes(name)) add("guards_lost", `without ${name}`, values);
    for (const name of after) if (!before.includes(name)) add("verdict", `with ${name}`, values);
    const shared = [before.filter((name) => after.includes(name)), after.filter((name) => before.includes(name))];
    if (!isDeepStrictEqual(...(shared as [unknown, unknown]))) add("verdict", "its plugins run in another order", values, `order ${values.join(" ")}`);
    if ([old, now].some(({ plugins }) => plugins.some(([, verdict]) => verdict === null))) return;
    const [refusal, other] = [refusalOf(old), refusalOf(now)];
    if (refusal !== null && other === null) return add("guards_lost", `no longer refused: ${refusal}`, [refusal, "passed on"]);
    const verdicts = [old, now].map(({ plugins }) => plugins.map((each) => each.join(" ")).join(", ")) as [string, string];
    if (isDeepStrictEqual(before, after) && verdicts[0] !== verdicts[1]) add("verdict", "another verdict of its plugins", verdicts, verdicts.join(" "));
  }
}

/** Refused, and not because no route takes it. */
function isGuarded({ refused }: VersionAnswer): boolean {
  return refused !== null && !/^40[45]\b/.test(refused);
}

/** "key_auth of the route answers 401 key_missing"; null: the plugins pass it on. */
function refusalOf({ plugins }: VersionAnswer): string | null {
  return plugins.find(([, verdict]) => /^(?:answers [45]|hangs)/.test(verdict ?? ""))?.join(" ") ?? null;
}

/** By the lower case of their names. A token that is signed anew each time is equal to any other. */
function valuesByName(list: readonly string[]): Map<string, string[]> {
  const values = new Map<string, string[]>();
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i]!.toLowerCase();
    values.set(name, [...(values.get(name) ?? []), list[i + 1]!.replace(/eyJ[\w-]+\.[\w-]+\.[\w-]+/, "(token)")]);
  }
  return values;
}

function textOf(value: unknown, secret?: string): string {
  const text = value === undefined ? "nothing" : typeof value === "string" ? value : JSON.stringify(value);
  return (secret === undefined ? text : text.replaceAll(secret, "********").replaceAll(encodeURIComponent(secret), "********")).slice(0, MAX_TEXT);
}

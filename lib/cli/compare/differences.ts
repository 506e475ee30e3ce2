/**
 * Collects what differs between the answers of two versions, equal differences together, the most severe first.
 */
import { isDeepStrictEqual } from "node:util";
import type { VersionAnswer, VersionReport } from "./child.ts";
import { shownOf, type Sample } from "./samples.ts";

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
    return [...this.#found.values()].sort(
      (a, b) => kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || b.requests - a.requests,
    );
  }

  /** `key`: what makes it another difference. */
  add(
    kind: Kind,
    what: string,
    values: Values,
    shownBy: { readonly sample: Sample; readonly route: string } | null = null,
    key = what,
  ): void {
    const known = this.#found.get(`${kind} ${key}`);
    if (known === undefined && this.#found.size === MAX_KEPT) this.more++;
    else if (known !== undefined) {
      known.requests++;
      if (shownBy !== null && known.routes.length < MAX_ROUTES && !known.routes.includes(shownBy.route))
        known.routes.push(shownBy.route);
    } else {
      const [old, now, example] = [...values, shownBy && shownOf(shownBy.sample)].map((value) =>
        textOf(value, shownBy?.sample.secrets),
      ) as [string, string, string];
      const by =
        shownBy === null
          ? { routes: [], requests: 0, example: null }
          : { routes: [shownBy.route], requests: 1, example };
      this.#found.set(`${kind} ${key}`, { kind, what, old, new: now, ...by });
    }
  }

  /**
   * Of two versions that accept the configuration. A test, or a field, that only one of them has is no difference in
   * what requests meet.
   */
  ofReports(old: VersionReport, now: VersionReport): void {
    for (const kind of ["warnings", "tests", "defaults"] as const) {
      for (const [place, values] of differing(old[kind], now[kind])) {
        if (kind === "warnings" || !values.includes(undefined))
          this.add(kind, place, values, null, `${place} ${JSON.stringify(values)}`);
      }
    }
  }

  ofAnswers(sample: Sample, old: VersionAnswer, now: VersionAnswer): void {
    const route = now.route ?? old.route ?? "no route";
    const add = (kind: Kind, what: string, values: Values, key = what) =>
      this.add(kind, what, values, { sample, route }, key);
    if (old.refused !== now.refused || old.route !== now.route) {
      const kind =
        isGuarded(old) && now.refused === null ? "guards_lost" : isGuarded(old) || isGuarded(now) ? "verdict" : "route";
      add(
        kind,
        `${REFUSED_OTHERWISE[kind]} (${sample.form})`,
        [old.refused ?? old.route, now.refused ?? now.route],
        `${sample.form} ${old.refused} ${now.refused}`,
      );
    }
    if (old.route !== null && now.route !== null) {
      this.#ofPlugins(old, now, add);
      if (old.forwarded !== now.forwarded)
        add("forwarded_path", `another path (${sample.form})`, [old.forwarded, now.forwarded]);
    }
    if (old.headers === null || now.headers === null) return;
    for (const [name, values] of differing(old.headers, now.headers)) {
      add(
        "upstream_headers",
        `${name} ${values[0] === undefined ? "is added" : values[1] === undefined ? "is gone" : "has another value"}`,
        values,
      );
    }
  }

  #ofPlugins(
    old: VersionAnswer,
    now: VersionAnswer,
    add: (kind: Kind, what: string, values: Values, key?: string) => void,
  ): void {
    const namesOf = ({ plugins }: VersionAnswer) =>
      plugins.map(([name]) => (old.route === now.route ? name : name.replace(/ .*/, "")));
    const before = namesOf(old);
    const after = namesOf(now);
    const values = [before.join(", "), after.join(", ")] as const;
    for (const name of before) if (!after.includes(name)) add("guards_lost", `without ${name}`, values);
    for (const name of after) if (!before.includes(name)) add("verdict", `with ${name}`, values);
    const shared = [
      before.filter((name) => after.includes(name)),
      after.filter((name) => before.includes(name)),
    ] as const;
    if (!isDeepStrictEqual(...shared))
      add("verdict", "its plugins run in another order", values, `order ${values.join(" ")}`);
    if ([old, now].some(({ plugins }) => plugins.some(([, verdict]) => verdict === null))) return;
    const refusal = refusalOf(old);
    const other = refusalOf(now);
    if (refusal !== null && other === null)
      return add("guards_lost", `no longer refused: ${refusal}`, [refusal, "passed on"]);
    const verdicts = [old, now].map(({ plugins }) => plugins.map((each) => each.join(" ")).join(", ")) as [
      string,
      string,
    ];
    if (isDeepStrictEqual(before, after) && verdicts[0] !== verdicts[1])
      add("verdict", "another verdict of its plugins", verdicts, verdicts.join(" "));
  }
}

const REFUSED_OTHERWISE = {
  guards_lost: "no longer refused",
  verdict: "refused in another way",
  route: "another route",
};

/** Refused, and not because no route takes it. */
function isGuarded({ refused }: VersionAnswer): boolean {
  return refused !== null && !/^40[45]\b/.test(refused);
}

/** "key_auth of the route answers 401 key_missing"; null: the plugins pass it on. */
function refusalOf({ plugins }: VersionAnswer): string | null {
  return plugins.find(([, verdict]) => /^(?:answers [45]|hangs)/.test(verdict ?? ""))?.join(" ") ?? null;
}

/**
 * The places where two values differ, without indices: "services[].routes[].path"; undefined: one of them has nothing
 * there.
 */
function differing(old: unknown, now: unknown, at = ""): (readonly [place: string, Values])[] {
  if (!isParent(old) || !isParent(now)) return old === now ? [] : [[at.slice(1), [old, now]]];
  const names = new Set([...Object.keys(old), ...Object.keys(now)]);
  const of = (value: Parent, name: string) => (Object.hasOwn(value, name) ? value[name] : undefined);
  return [...names].flatMap((name) =>
    differing(of(old, name), of(now, name), Array.isArray(old) ? `${at}[]` : `${at}.${name}`),
  );
}

type Parent = Readonly<Record<string, unknown>>;

function isParent(value: unknown): value is Parent {
  return typeof value === "object" && value !== null;
}

function textOf(value: unknown, secrets: readonly string[] = []): string {
  const text = value === undefined ? "nothing" : typeof value === "string" ? value : JSON.stringify(value);
  return secrets
    .flatMap((secret) => [secret, encodeURIComponent(secret)])
    .reduce((shown, secret) => shown.replaceAll(secret, "********"), text)
    .slice(0, MAX_TEXT);
}

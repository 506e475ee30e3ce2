/**
 * The forms for common changes: which fields each has, and what it puts where in the configuration.
 */
import { valueAt, type JsonPath } from "./json_text.ts";

export interface Choice {
  readonly label: string;
  readonly path: JsonPath;
  /** The names of service and route, or of service and group, by which a link to the form chooses it. */
  readonly of: readonly string[];
  /** What it is now. */
  readonly now?: string;
}

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  /** The value of a switch is "on" or "". */
  readonly kind: "text" | "number" | "choice" | "switch";
  readonly isRequired?: boolean;
  readonly choices?: readonly Choice[];
  readonly range?: readonly [least: number, most: number | null];
}

export interface Form {
  readonly title: string;
  readonly fields: (file: unknown) => readonly Field[];
  /** What to put where. `chosen`: the path of the choice; `key_sha256` is in `values` where the form makes a key. */
  readonly put: (
    file: unknown,
    chosen: JsonPath,
    values: Values,
  ) => { readonly path: JsonPath; readonly value: unknown };
  /** Makes a key, which is shown once. */
  readonly makesKey?: true;
}

type Values = Readonly<Record<string, string>>;

const DAY_MS = 86_400_000;
const LEAST_ONE: readonly [number, null] = [1, null];

export const FORMS: Readonly<Record<string, Form>> = {
  service: {
    title: "Add a service",
    fields: () => [
      { name: "name", label: "Name", kind: "text", isRequired: true },
      {
        name: "base_path",
        label: "Base path",
        kind: "text",
        isRequired: true,
        hint: "Its requests begin with it: /shop",
      },
      { name: "host", label: "Host of the upstream", kind: "text", isRequired: true },
      { name: "port", label: "Port of the upstream", kind: "number", isRequired: true, range: [1, 65_535] },
      {
        name: "path",
        label: "Path of the first route",
        kind: "text",
        hint: "Below the base path; empty: all, /{rest*}",
      },
    ],
    put: (file, _chosen, { name, base_path, host, port, path }) =>
      appended(file, ["services"], {
        name,
        base_path,
        upstreams: [{ host, port: Number(port) }],
        routes: [{ path: path || "/{rest*}" }],
      }),
  },
  route: {
    title: "Add a route",
    fields: (file) => [
      { name: "place", label: "Service", kind: "choice", choices: servicesOf(file) },
      { name: "name", label: "Name", kind: "text", isRequired: true },
      {
        name: "path",
        label: "Path",
        kind: "text",
        isRequired: true,
        hint: "Below the base path of the service: /items/{id}",
      },
      { name: "methods", label: "Methods", kind: "text", hint: "GET, POST; empty: all" },
    ],
    put: (file, chosen, { name, path, methods }) =>
      appended(file, [...chosen, "routes"], {
        name,
        path,
        ...(methods !== "" && { methods: wordsOf(methods).map((word) => word.toUpperCase()) }),
      }),
  },
  caller: {
    title: "Add a caller with a key",
    fields: () => [
      {
        name: "id",
        label: "Caller",
        kind: "text",
        isRequired: true,
        hint: "Its identity in limits, quotas and the access log",
      },
      { name: "groups", label: "Groups", kind: "text", hint: "gold, partners; may be empty" },
    ],
    put: (file, _chosen, { id, groups, key_sha256 }) =>
      appended(file, ["callers"], {
        id,
        ...(groups !== "" && {
          groups: (groups ?? "")
            .split(",")
            .map((group) => group.trim())
            .filter((group) => group !== ""),
        }),
        keys: [{ key_sha256 }],
      }),
    makesKey: true,
  },
  key: {
    title: "Add a key to a caller",
    fields: (file) => [
      { name: "place", label: "Caller", kind: "choice", choices: callersOf(file) },
      {
        name: "days",
        label: "Days until its other keys end",
        kind: "number",
        range: LEAST_ONE,
        hint: "Empty: they stay. Those that end earlier do so.",
      },
    ],
    put(file, chosen, { days, key_sha256 }) {
      const list = [...chosen, "keys"];
      const end = new Date(Date.now() + Number(days) * DAY_MS).toISOString();
      const others = days === "" ? listAt(file, list) : listAt(file, list).map((key) => endingAt(end, key));
      return { path: list, value: [...others, { key_sha256 }] };
    },
    makesKey: true,
  },
  caller_state: {
    title: "Enable or disable a caller",
    fields: (file) => [
      { name: "place", label: "Caller", kind: "choice", choices: callersOf(file) },
      { name: "enabled", label: "Enabled: its requests are admitted", kind: "switch" },
    ],
    put: (_file, chosen, { enabled }) => ({ path: [...chosen, "enabled"], value: enabled === "on" }),
  },
  limit: {
    title: "Add a rate limit",
    fields: (file) => [
      {
        name: "place",
        label: "For",
        kind: "choice",
        choices: [
          { label: "All requests", path: ["global"], of: [] },
          ...servicesOf(file).flatMap((service) => [service, ...routesOf(file, service)]),
        ],
      },
      { name: "limit_second", label: "Requests per second", kind: "number", range: LEAST_ONE },
      { name: "limit_min", label: "Requests per minute", kind: "number", range: LEAST_ONE },
      { name: "limit_hour", label: "Requests per hour", kind: "number", range: LEAST_ONE },
      {
        name: "limit_by",
        label: "Counted by",
        kind: "text",
        hint: "client_ip (default), credential, all, or header:X-Name",
      },
    ],
    put(file, chosen, { limit_by, ...limits }) {
      const set = Object.entries(limits)
        .filter(([name, value]) => name.startsWith("limit_") && value !== "")
        .map(([name, value]) => [name, Number(value)]);
      return appended(file, [...chosen, "plugins"], {
        name: "rate_limit",
        config: { ...Object.fromEntries(set), ...(limit_by !== "" && { limit_by }) },
      });
    },
  },
  upstream: {
    title: "Add an upstream",
    fields: (file) => [
      { name: "place", label: "Service", kind: "choice", choices: servicesOf(file) },
      { name: "host", label: "Host", kind: "text", isRequired: true },
      { name: "port", label: "Port", kind: "number", isRequired: true, range: [1, 65_535] },
      { name: "id", label: "Id", kind: "text", hint: "Empty: host and port" },
      { name: "weight", label: "Weight", kind: "number", range: [0, null], hint: "Empty: 1" },
      { name: "group", label: "Group", kind: "text", hint: "For a canary; may be empty" },
      { name: "backup", label: "Backup: only while no other upstream can be used", kind: "switch" },
    ],
    put: (file, chosen, { id, host, port, weight, group, backup }) =>
      appended(file, [...chosen, "upstreams"], {
        ...(id !== "" && { id }),
        host,
        port: Number(port),
        ...(weight !== "" && { weight: Number(weight) }),
        ...(group !== "" && { group }),
        ...(backup === "on" && { backup: true }),
      }),
  },
  share: {
    title: "Change the share of a canary",
    fields: (file) => [
      { name: "place", label: "Split", kind: "choice", choices: splitsOf(file) },
      { name: "percent", label: "Percent", kind: "number", isRequired: true, range: [0, 100] },
    ],
    put: (_file, chosen, { percent }) => ({ path: [...chosen, "percent"], value: Number(percent) }),
  },
};

/** Behind the last item of a list, which may be missing. */
function appended(file: unknown, list: JsonPath, value: unknown): { readonly path: JsonPath; readonly value: unknown } {
  return { path: [...list, listAt(file, list).length], value };
}

function listAt(value: unknown, path: JsonPath): readonly unknown[] {
  const found = valueAt(value, path);
  return Array.isArray(found) ? found : [];
}

function textOf(value: unknown, name: string): string {
  const found = (value as Record<string, unknown> | null)?.[name];
  return typeof found === "string" || typeof found === "number" ? String(found) : "?";
}

function callersOf(file: unknown): readonly Choice[] {
  return listAt(file, ["callers"]).map((caller, i) => {
    const id = textOf(caller, "id");
    const isOff = (caller as { readonly enabled?: unknown } | null)?.enabled === false;
    return { label: isOff ? `${id}, disabled` : id, path: ["callers", i], of: [id] };
  });
}

/** A key that does not end before. */
function endingAt(end: string, key: unknown): unknown {
  const known = (key as { readonly expires_at?: unknown } | null)?.expires_at;
  const isEarlier = typeof known === "string" && Date.parse(known) <= Date.parse(end);
  return isEarlier ? key : { ...(key as object), expires_at: end };
}

function servicesOf(file: unknown): readonly Choice[] {
  return listAt(file, ["services"]).map((service, i) => ({
    label: textOf(service, "name"),
    path: ["services", i],
    of: [textOf(service, "name")],
  }));
}

function routesOf(file: unknown, { path, label, of }: Choice): readonly Choice[] {
  return listAt(file, [...path, "routes"]).map((route, i) => ({
    label: `${label} / ${routeName(route)}`,
    path: [...path, "routes", i],
    of: [...of, routeName(route)],
  }));
}

/** The gateway names a route without a name by its methods and path: "GET,POST /items". */
function routeName(route: unknown): string {
  const methods = listAt(route, ["methods"]).join(",");
  return textOf({ name: `${methods} ${textOf(route, "path")}`.trimStart(), ...(route as object | null) }, "name");
}

function splitsOf(file: unknown): readonly Choice[] {
  return servicesOf(file).flatMap(({ path, label, of }) =>
    listAt(file, [...path, "split"]).map((split, i) => {
      const now = textOf(split, "percent");
      const where = (split as { readonly match?: unknown } | null)?.match === undefined ? "" : ", by conditions";
      return {
        label: `${label}: ${textOf(split, "group")}${where}, now ${now} %`,
        path: [...path, "split", i],
        of: [...of, textOf(split, "group")],
        now,
      };
    }),
  );
}

function wordsOf(text = ""): readonly string[] {
  return text.split(/[\s,]+/).filter((word) => word !== "");
}

/**
 * Compares the tables of the documents with the code: fields, settings, errors, warnings, metrics, commands; and checks
 * every link.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { ACCEPTABLE_WARNINGS } from "../lib/config/accepted_warnings.ts";
import { ERRORS } from "../lib/base/errors.ts";
import type { AnyConfigInput } from "../lib/config/model.ts";
import type { JsonSchema } from "../lib/config/schema.ts";
import { CLIENT_SETTINGS, SETTINGS } from "../lib/config/settings_table.ts";
import type { Setting } from "../lib/config/start_settings.ts";
import type { Followers } from "../lib/gateway/bundle.ts";
import { Gateway } from "../lib/embed/gateway.ts";
import { ReportedGateway } from "../lib/embed/reported_gateway.ts";
import { GatewayCore } from "../lib/gateway/gateway.ts";
import { Call, Exchange } from "../lib/http/exchange.ts";
import * as everything from "../lib/index.ts";
import { builtinPlugins } from "../lib/plugins/builtin.ts";
import { document, documents, found, read, root, tableUnder } from "./support/documents.ts";
import { configJsonSchema } from "../lib/cli/schema.ts";

const sources = readdirSync(`${root}/lib`, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => read(`lib/${name}`));
const kindNames = builtinPlugins.map(({ name }) => name);

describe("fields of the configuration", () => {
  const schema = configJsonSchema(builtinPlugins) as Node;
  const definitions = schema.$defs!;
  const configuration = document("docs/configuration.md");
  const sections: readonly (readonly [string, Node, () => string[][]])[] = [
    ...[
      [
        "Root",
        { ...schema, properties: { ...schema.properties, global: withoutProperties(schema.properties!.global!) } },
      ] as const,
      ...["Service", "Upstream", "Route", "Plugin"].map((name) => [name, definitions[name]!] as const),
    ].map(([name, node]) => [name, node, () => tableUnder(name, configuration)] as const),
    ["global", schema.properties!.global!, globals] as const,
    ["Caller", definitions.Caller!, () => tableUnder("Fields", document("docs/callers.md"))] as const,
    ["ErrorBody", definitions.ErrorBody!, () => tableUnder("Fields", document("docs/errors.md"))] as const,
    ["Test", definitions.Test!, () => tableUnder("Fields", document("docs/tests.md"))] as const,
    ...builtinPlugins.map(({ name, schema: own }) => [name, own.jsonSchema() as Node, () => fieldTable(name)] as const),
  ];

  it.each(sections)(
    "the table of %s lists exactly the fields of the schema, with their defaults",
    (_name, node, table) => {
      const rows = table();
      const fields = fieldsOf(node);
      expect(rows.map(([field]) => field).sort()).toEqual([...fields.keys()].sort());
      for (const [field = "", , fallback = ""] of rows) {
        const { presence, value } = fields.get(field)!;
        // A name that is derived from other fields has no default in JSON Schema: the documents describe it in words.
        if (presence === "optional") expect([field, fallback]).not.toEqual([field, "required"]);
        else expect([field, fallback]).toEqual([field, presence === "required" ? "required" : JSON.stringify(value)]);
      }
    },
  );

  it("every definition of the schema has a table", () => {
    expect(sections.map(([name]) => name)).toEqual(expect.arrayContaining(Object.keys(definitions)));
  });

  it("every plugin kind has a page of its own and a row in the list of kinds, and nothing else has", () => {
    const pages = documents
      .flatMap(({ path }) => found(path, /^docs\/plugins\/(\w+)\.md$/g))
      .filter((name) => name !== "README");
    const rows = tableUnder("Kinds", document("docs/plugins/README.md")).flatMap(([name]) =>
      found(name!, /^\[(\w+)\]/g),
    );
    expect(pages.sort()).toEqual([...kindNames].sort());
    expect(rows.sort()).toEqual([...kindNames].sort());
  });
});

describe("settings", () => {
  const settings = Object.values(SETTINGS) as Setting<unknown>[];

  it("every setting is listed with its flag, variable and default, in the order of --help", () => {
    const rows = tableUnder("Settings", document("docs/settings.md")).map(([flag, variable, fallback]) => [
      flag,
      variable,
      fallback,
    ]);
    expect(rows).toEqual(settings.map(rowOf));
  });

  it("every limit of the configuration has a row on the page about limits", () => {
    const fields = globals().flatMap(([field]) => found(field!, /^limits\.(\w+)$/g));
    const rows = tableUnder("Limits", document("docs/limits.md")).map(([field]) => field);
    expect(rows).toEqual(fields);
  });

  it("the flags of the command reload are listed with variable and default", () => {
    const rows = tableUnder("Reload", document("docs/operations.md")).map(([flag, variable, fallback]) => [
      flag,
      variable,
      fallback,
    ]);
    expect(rows).toEqual(Object.values(CLIENT_SETTINGS).map(rowOf));
  });

  function rowOf({ flag, variable, fallback }: Pick<Setting<unknown>, "flag" | "variable" | "fallback">): string[] {
    return [flag === null ? "none" : `--${flag}`, variable, fallback ?? "none"];
  }

  it("every variable of OpenTelemetry that the documents name is read by the code", () => {
    const named = tableUnder("Traces", document("docs/observability.md")).map(([variable]) => variable!);
    expect(named.length).toBeGreaterThan(10);
    // OTEL_EXPORTER_OTLP_HEADERS and the like are put together of a prefix and a name.
    const isIn = (name: string) => sources.some((text) => text.includes(name));
    expect(
      named.filter((variable) => !isIn(variable) && !isIn(variable.replace(/OTEL_EXPORTER_OTLP_(TRACES_)?/, ""))),
    ).toEqual([]);
  });
});

/** Texts that stand in several lines, each as one. */
function joined(text: string): string {
  return text.replace(/(["'`]) \+\s+\1/g, "");
}

describe("errors and warnings", () => {
  const troubleshooting = document("docs/troubleshooting.md");

  it("every error has a row with its status, its title, a cause and a remedy, and every row is an error", () => {
    const rows = tableUnder("Errors", troubleshooting);
    expect(rows.map(([code, status, title]) => [code, Number(status), title])).toEqual(
      Object.entries(ERRORS).map(([code, { status, title }]) => [code, status, title]),
    );
    expect(rows.filter(([, , , cause, remedy]) => !cause || !remedy)).toEqual([]);
  });

  it("every warning has a row with a cause and a remedy, and every row is a warning", () => {
    const union = sources.flatMap((text) => found(text, /export type WarningCode =([^;]*);/g));
    const declared = found(union.join().replace("AcceptableWarning", ACCEPTABLE_WARNINGS.join()), /(\w+)/g);
    const rows = tableUnder("Warnings", troubleshooting);
    expect(declared.length).toBeGreaterThan(5);
    expect(rows.map(([code]) => /^`?(\w+)/.exec(code!)![1])).toEqual(declared);
    expect(rows.filter(([, cause, remedy]) => !cause || !remedy)).toEqual([]);
  });

  it(
    "every message that is logged as a warning or an error has a row with a cause and a remedy, " +
      "and every row is such a message",
    () => {
      const logged = sources
        .map(joined)
        .flatMap((text) => [
          ...found(text, /\.(?:warn|error)\(\s*[`"](?! )([^`"]*)[`"]/g),
          ...found(text, /const message =\s*`([^`]*)`;\s*log\.warn\(message/g),
        ]);
      const messages = logged.map((message) => message.replace(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, "…"));
      const table = tableUnder("Log messages", troubleshooting);
      expect(table.filter(([, cause, remedy]) => !cause || !remedy)).toEqual([]);
      const rows = table.map(([message]) => message!);
      const fits = (row: string, message: string) =>
        row === message || (row.endsWith("…") && message.startsWith(row.slice(0, -1)));
      expect(messages.length).toBeGreaterThan(15);
      expect(messages.filter((message) => !rows.some((row) => fits(row, message)))).toEqual([]);
      expect(rows.filter((row) => !messages.some((message) => fits(row, message)))).toEqual([]);
    },
  );
});

describe("the threat model", () => {
  const model = document("docs/threat-model.md");
  const proofs = [...model.prose.matchAll(/`(spec\/[\w./]+)` “([^”]+)”/g)].map(([, path, title]) => ({
    path: path!,
    title: title!,
  }));

  it("every threat has a proof: a spec that is there, with a promise of that title", () => {
    const rows = ["Requests", "Availability", "Upstreams and other servers", "Operation"].flatMap((heading) =>
      tableUnder(heading, model),
    );
    expect(rows.length).toBeGreaterThan(20);
    expect(
      rows.filter(([threat, stops, proof]) => !threat || !stops || !/`spec\/[\w./]+\.spec\.ts` “/.test(proof!)),
    ).toEqual([]);
    const titles = (path: string) =>
      found(joined(read(path)), /^(?:.*?\b(?:it|describe)\b.*?|\s*\]\)\()?\s*["'`](.*)/gm)
        .join("\n")
        .replaceAll("\\", "");
    expect(proofs.filter(({ path, title }) => !existsSync(`${root}/${path}`) || !titles(path).includes(title))).toEqual(
      [],
    );
  });
});

describe("what programs see", () => {
  it("every family of metrics is listed with its type", async () => {
    const config = JSON.parse(read("examples/quickstart.json")) as AnyConfigInput;
    const gateway = everything.createGateway({ config, tracing: { url: "http://127.0.0.1:9/v1/traces" } });
    const { configuration } = Gateway.internalsOf(gateway);
    // As with workers: these have families of their own.
    configuration.followers = { serving: 2, restarts: 0 } as Followers;
    const families = found(gateway.metrics(), /^# TYPE (.+)$/gm).map((line) => line.split(" "));
    configuration.followers = null;
    await gateway.close(0);
    const rows = tableUnder("Metrics", document("docs/observability.md")).map(([name, type]) => [name, type]);
    expect(rows.filter(([name]) => process.platform === "linux" || name !== "process_open_fds")).toEqual(families);
  });

  it("every member of a gateway has a row, and every row names members", async () => {
    const gateway = everything.createGateway({ config: { services: [] } });
    const classes = [Gateway, ReportedGateway, GatewayCore];
    const kinds = classes.flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype));
    const members = [...new Set(kinds), ...Object.keys(gateway)];
    await gateway.close(0);
    const rows = tableUnder("Members of the gateway", document("docs/embedding.md"));
    const named = rows.flatMap(([cell]) => found(cell!, /(?:^|`)(\w+)(?:\([^`]*\))?(?:`|$)/g));
    expect(named.sort()).toEqual(members.filter((name) => name !== "constructor").sort());
  });

  it(
    "every member of an exchange has a row with its type and whether a copy may change it, " +
      "in the order of the code",
    () => {
      const code = read("lib/http/exchange.ts");
      const [, parts = ""] = /^export interface ExchangeParts \{\n([^]*?)^\}/m.exec(code)!;
      const [, kept = ""] = /with\(changes: Partial<Omit<ExchangeParts, ([^>]*)>>\)/.exec(code)!;
      const getters = [...code.matchAll(/^ {2}get (\w+)\(\): (\w+) \{\n {4}return this\.call\./gm)].map(
        ([, name, type]) => [name, type, "no"],
      );
      const fields = [...parts.matchAll(/^ {2}readonly (\w+): (.+);$/gm)].map(([, name, type]) => [
        name,
        type,
        kept.includes(`"${name}"`) ? "no" : "yes",
      ]);
      expect(fields.length).toBeGreaterThan(15);
      const rows = tableUnder("The exchange", document("docs/writing-plugins.md"));
      const written = rows.map(([name, type, , may]) => [
        name,
        type!.replaceAll("\\|", "|").replaceAll("`", ""),
        /^\w+/.exec(may!)![0],
      ]);
      expect(written).toEqual([...fields, ...getters, ["with", "(changes) => Exchange", "no"]]);
      expect(Object.getOwnPropertyNames(Exchange.prototype).sort()).toEqual([
        "constructor",
        "requestId",
        "signal",
        "with",
      ]);
    },
  );

  it("every member of the call of an exchange has a row, and every row names members", () => {
    const call = new Call({ id: "", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => undefined });
    const members = [...Object.keys(call), ...Object.getOwnPropertyNames(Call.prototype)].filter(
      (name) => name !== "constructor",
    );
    const named = tableUnder("The call", document("docs/writing-plugins.md")).flatMap(([cell]) =>
      found(cell!, /(?:^|`)(\w+)(?:\([^`]*\))?(?:`|$)/g),
    );
    expect(named.sort()).toEqual(members.sort());
  });

  it("every endpoint of the admin interface in the documents is one that the code serves", () => {
    const named = tableUnder("Endpoints", document("docs/admin-api.md")).map(([endpoint]) => endpoint!.split(" ")[1]!);
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((path) => !sources.some((text) => text.includes(`"${path}"`)))).toEqual([]);
  });

  it("every benchmark has a row, and every row is a benchmark", () => {
    const benchmarks = found(read("spec/bench/main.ts"), /^  (\w+): \[\s*async/gm);
    const rows = tableUnder("Benchmarks", document("docs/performance.md")).map(([command]) => command!.split(" ")[4]);
    expect(benchmarks.length).toBeGreaterThan(10);
    expect(rows.sort()).toEqual(benchmarks.sort());
  });

  it("every command of the program has a row, and every row is a command", () => {
    const { stdout } = spawnSync(process.execPath, ["--import", "tsx", "bin/edge-gateway.ts", "--help"], {
      cwd: root,
      encoding: "utf8",
    });
    const commands = found(stdout, /^ {2}([a-z][a-z-]+) /gm);
    const rows = tableUnder("Commands", document("docs/operations.md")).map(([command]) =>
      command!.split(" ")[1]!.replace("`,", ""),
    );
    expect(rows.filter((name) => !name.startsWith("-")).sort()).toEqual(commands.sort());
  });

  it("the kinds that count as guards are listed where guards matter", () => {
    const guards = builtinPlugins.filter(({ guards }) => guards === true).map(({ name }) => name);
    const places = [
      /^- Wherever it is written[^]*?\n(?=- )/m.exec(document("docs/plugins/response_cache.md").text)![0],
      tableUnder("Warnings", document("docs/troubleshooting.md")).find(([code]) =>
        code!.includes("limit_by_any_header"),
      )![1]!,
    ];
    for (const place of places) {
      const listed = found(place, /`(\w+)`/g).filter((name) => kindNames.includes(name) && name !== "rate_limit");
      expect(listed.sort()).toEqual(guards.sort());
    }
  });

  it("every value that the package exports is named on the page about embedding", () => {
    const { text } = document("docs/embedding.md");
    expect(Object.keys(everything).filter((name) => !text.includes(`\`${name}\``))).toEqual([]);
  });
});

describe("the documents", () => {
  it("README.md has at most 250 lines", () => {
    expect(document("README.md").text.split("\n").length - 1).toBeLessThanOrEqual(250);
  });

  it("no line is longer than 140 characters outside of tables, links and code", () => {
    const lines = documents.flatMap(({ path, prose }) => prose.split("\n").map((line) => ({ path, line })));
    expect(lines.filter(({ line }) => line.length > 140 && !/^\||\]\(/.test(line))).toEqual([]);
  });

  it.each(documents)("every link of $path leads to a file or a heading that is there", ({ path, links, anchors }) => {
    const leadsNowhere = links.filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [file = "", anchor] = link.split("#");
      if (file === "") return !anchors.includes(anchor!);
      const target = join(dirname(path), file);
      if (!existsSync(`${root}/${target}`)) return true;
      return anchor !== undefined && !document(target).anchors.includes(anchor);
    });
    expect(leadsNowhere).toEqual([]);
  });

  it("every file and folder of the repository that a document names is there", () => {
    const named = documents.flatMap(({ path, prose }) =>
      found(prose, /`((?:lib|spec|bin|examples|docs|\.ci)\/[\w./-]*)`/g).map((name) => ({ path, name })),
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter(({ name }) => !name.includes("KIND") && !existsSync(`${root}/${name}`))).toEqual([]);
  });

  it("every page of docs/ is listed in docs/README.md", () => {
    const { links } = document("docs/README.md");
    const pages = documents.flatMap(({ path }) => found(path, /^docs\/([\w-]+\.md)$/g));
    expect(pages.filter((page) => page !== "README.md" && !links.includes(page))).toEqual([]);
  });

  it("the page about upgrading has a section for every released version", () => {
    const released = found(read("CHANGELOG.md"), /^## \[(\d+\.\d+\.\d+)\]/gm);
    expect(found(document("docs/upgrading.md").text, /^## From (.+)$/gm)).toEqual(released);
  });

  it("files in the package link to no file outside the package", () => {
    const { files } = JSON.parse(read("package.json")) as { files: string[] };
    const always = ["README.md", "LICENSE", "package.json"];
    const ships = (path: string) =>
      always.includes(path) || files.some((each) => path === each || path.startsWith(`${each}/`));
    const links = documents.flatMap(({ path, links }) => links.map((link) => ({ path, link })));
    const relative = links.filter(({ link }) => !/^(https?:|#)/.test(link));
    expect(
      relative.filter(({ path, link }) => ships(path) && !ships(join(dirname(path), link.split("#")[0]!))),
    ).toEqual([]);
  });
});

interface Node extends JsonSchema {
  readonly properties?: Readonly<Record<string, Node>>;
  readonly required?: readonly string[];
  readonly items?: Node;
  readonly default?: unknown;
  readonly $defs?: Readonly<Record<string, Node>>;
}

interface FieldFacts {
  readonly presence: "required" | "defaulted" | "optional";
  readonly value: unknown;
}

/** Fields by dotted name, down to those of nested objects; what `$ref` leads to has a table of its own. */
function fieldsOf(node: Node, prefix = ""): Map<string, FieldFacts> {
  const fields = new Map<string, FieldFacts>();
  for (const [key, field] of Object.entries(node.properties ?? {})) {
    const name = prefix + key;
    const nested = field.properties !== undefined;
    const presence = node.required?.includes(key) ? "required" : "default" in field ? "defaulted" : "optional";
    if (!nested) fields.set(name, { presence, value: field.default });
    for (const entry of fieldsOf(field, `${name}.`)) fields.set(...entry);
    for (const entry of fieldsOf(field.items ?? {}, `${name}[].`)) fields.set(...entry);
  }
  return fields;
}

function withoutProperties({ properties: _, ...field }: Node): Node {
  return field;
}

/** The table of the fields of `global`. */
function globals(): string[][] {
  return tableUnder("Fields", document("docs/global.md"));
}

/** The table of fields on a kind's page. */
function fieldTable(kind: string): string[][] {
  return tableUnder(kind, document(`docs/plugins/${kind}.md`));
}

/** `edge-gateway audit --evidence`, its table and docs/compliance.md. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { COMMANDS } from "../../lib/cli/commands.ts";
import type { EvidenceEntry } from "../../lib/cli/evidence.ts";
import { REQUIREMENTS } from "../../lib/cli/evidence_table.ts";
import { SETTINGS } from "../../lib/config/settings_table.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { CA, SERVER } from "../support/certs.ts";
import { document, root, tableUnder } from "../support/documents.ts";
import { emptyFolder, fileWith, program } from "../support/process.ts";

const SAID = { always: "yes", never: "no", elsewhere: "does not apply", partial: "partly" };
const HEADINGS = [
  "NIST SP 800-228",
  "OpenSSF baseline",
  "Cyber Resilience Act, Annex I",
  "Application layer gateway SRG",
];

describe("the table of requirements", () => {
  it("has each requirement once, and a proof for each", () => {
    const names = REQUIREMENTS.map(({ requirement }) => requirement);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(70);
    expect(REQUIREMENTS.filter(({ proof, setting }) => proof.length === 0 || setting === "")).toEqual([]);
  });

  it("names only files that are there", () => {
    const files = REQUIREMENTS.flatMap(({ proof }) => proof);
    expect(files.filter((file) => !/^(?:spec|docs)\//.test(file) || !existsSync(join(root, file)))).toEqual([]);
  });

  it("names only settings, fields, plugin kinds, commands and files that are there", () => {
    const variables = Object.values(SETTINGS).map(({ variable }) => variable);
    const kinds = builtinPlugins.map(({ name }) => name);
    const fields = (heading: string, page: string) =>
      tableUnder(heading, document(page)).map(([name]) => /[a-z][a-z0-9_]*/.exec(name!)![0]);
    const known = new Set<string>([
      ...variables,
      ...kinds,
      ...fields("Fields", "docs/global.md").map((name) => `global.${name}`),
      ...fields("Service", "docs/configuration.md").map((name) => `service.${name}`),
      ...[...Object.keys(COMMANDS), "--version"].map((name) => `edge-gateway ${name}`),
      ...readdirSync(root),
    ]);
    expect(REQUIREMENTS.flatMap(({ setting }) => setting.split(", ")).filter((name) => !known.has(name))).toEqual([]);
  });

  it("is that of docs/compliance.md, line by line", () => {
    const page = document("docs/compliance.md");
    const rows = HEADINGS.flatMap((heading) => tableUnder(heading, page));
    expect(
      rows.map(([requirement, , met, by, proof]) => ({
        requirement,
        met,
        by: by!.replaceAll("`", ""),
        proof: Array.from(proof!.matchAll(/`([^`]+)`|\]\(([^)]+)\)/g), ([, spec, doc]) => spec ?? `docs/${doc}`),
      })),
    ).toEqual(
      REQUIREMENTS.map(({ requirement, rule, setting, proof }) => ({
        requirement,
        met: rule in SAID ? SAID[rule as keyof typeof SAID] : "by configuration",
        by: setting,
        proof,
      })),
    );
  });
});

describe("edge-gateway audit --evidence", () => {
  const upstreams = [{ host: "10.0.0.5", port: 8080 }];
  const plain = {
    services: [{ name: "s", base_path: "/", protocol: "http", upstreams, routes: [{ path: "/a" }, { path: "/b" }] }],
  };

  /** Paths of the certificates. */
  function pem() {
    const folder = emptyFolder();
    const files = { cert: SERVER.cert, key: SERVER.key, ca: CA.cert };
    return Object.fromEntries(
      Object.entries(files).map(([name, text]) => {
        const path = join(folder, `${name}.pem`);
        writeFileSync(path, text);
        return [name, path];
      }),
    ) as Record<keyof typeof files, string>;
  }

  async function printed(
    config: object,
    environment: Record<string, string> = {},
  ): Promise<Map<string, EvidenceEntry>> {
    const { code, stdout, stderr } = await program(["audit", fileWith(config), "--evidence"], {
      environment: { LISTEN_HOST: "127.0.0.1", ...environment },
    }).ended;
    expect([code, stderr]).toEqual([0, ""]);
    const { entries } = JSON.parse(stdout) as { readonly entries: readonly EvidenceEntry[] };
    expect(entries.map(({ requirement }) => requirement)).toEqual(REQUIREMENTS.map(({ requirement }) => requirement));
    for (const entry of entries)
      expect(Object.keys(entry)).toEqual(["requirement", "status", "fact", "setting", "proof"]);
    return new Map(entries.map((entry) => [entry.requirement, entry]));
  }
  const TLS = "NIST SP 800-228 REC-API-9",
    GUARDS = "NIST SP 800-228 REC-API-12",
    CREDENTIALS = "NIST SP 800-228 REC-API-11",
    RATES = "NIST SP 800-228 REC-API-15",
    SIGNED = "CRA Annex I Part I (2)(f)";
  const METRICS = "NIST SP 800-228 REC-API-8",
    SESSION = "SRG-NET-000213-ALG-000107",
    MANAGEMENT = "SRG-NET-ALG: management",
    CHANGES = "SRG-NET-ALG: changes",
    CLIENTS = "SRG-NET-ALG: certificates of clients";
  const statuses = (entries: Map<string, EvidenceEntry>, ...names: readonly string[]) =>
    names.map((name) => entries.get(name)!.status);

  it("says of a bare configuration what is not met", async () => {
    const entries = await printed(plain);
    expect(statuses(entries, TLS, GUARDS, RATES, SIGNED, METRICS)).toEqual([
      "not_met",
      "not_met",
      "not_met",
      "not_met",
      "not_met",
    ]);
    expect(statuses(entries, SESSION, MANAGEMENT, CHANGES)).toEqual([
      "not_applicable",
      "not_applicable",
      "not_applicable",
    ]);
    expect(statuses(entries, "OSPS-BR-02.01", "OSPS-BR-06.01", "SRG-NET-ALG: FIPS-validated cryptography")).toEqual([
      "met",
      "partly",
      "not_met",
    ]);
  });

  it("says partly where one route of two is without a guard, and where a plain port is open beside TLS", async () => {
    const [service] = plain.services;
    const guard = { name: "key_auth", config: { keys: [{ key: "a-long-key-of-a-caller", id: "a" }] } };
    const config = {
      services: [
        {
          ...service,
          routes: [
            { path: "/a", plugins: [guard, { name: "rate_limit", config: { limit_min: 9 } }] },
            { path: "/b", plugins: [{ ...guard, enabled: false }] },
          ],
        },
      ],
    };
    const { cert, key } = pem();
    const entries = await printed(config, { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key });
    expect(statuses(entries, TLS, GUARDS, CREDENTIALS, RATES)).toEqual(["partly", "partly", "partly", "partly"]);
  });

  it(
    "takes no guard for credentials that asks for none, no limit that only counts, no server without TLS, " +
      "no half of a requirement for all of it",
    async () => {
      const [service] = plain.services;
      const { cert, key, ca } = pem();
      const plugins = [
        { name: "acl", config: { whitelist: ["10.0.0.0/8"] } },
        { name: "rate_limit", config: { limit_min: 9, mode: "shadow" } },
        { name: "request_validation", config: { query: { type: "object" } } },
        { name: "http_log", config: { http_endpoint: "http://10.0.0.9/log" } },
      ];
      const config = { global: { plugins }, services: [{ ...service, protocol: "https", tls: { ca } }] };
      const tls = { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key, CA_CERT_PATH: ca, HTTP_PORT: "off" };
      const entries = await printed(config, {
        ...tls,
        ADMIN_USER: "a",
        ADMIN_PASSWORD: "a long password",
        MANAGER: "true",
        MANAGER_HOST: "0.0.0.0",
      });
      expect(statuses(entries, GUARDS, CREDENTIALS, RATES, TLS)).toEqual(["met", "not_met", "not_met", "partly"]);
      expect(statuses(entries, "NIST SP 800-228 REC-API-3", "NIST SP 800-228 REC-API-13", MANAGEMENT, CLIENTS)).toEqual(
        ["partly", "met", "partly", "not_met"],
      );
    },
  );

  it("says met where TLS is all there is, every route has its guard, and operators are bounded", async () => {
    const [service] = plain.services;
    const plugins = [
      { name: "key_auth", config: { keys: [{ key: "a-long-key-of-a-caller", id: "a" }] } },
      { name: "rate_limit", config: { limit_min: 9 } },
    ];
    const { cert, key, ca } = pem();
    const config = { global: { plugins }, services: [{ ...service, protocol: "https", tls: { ca } }] };
    const environment = {
      SERVER_CERT_PATH: cert,
      SERVER_KEY_PATH: key,
      HTTP_PORT: "off",
      ADMIN_USER: "a",
      ADMIN_PASSWORD: "a long password",
      ADMIN_SESSION_TTL_S: "600",
    };
    const entries = await printed(config, environment);
    expect(statuses(entries, TLS, GUARDS, RATES, METRICS, SESSION, MANAGEMENT, CHANGES)).toEqual([
      "met",
      "met",
      "met",
      "met",
      "met",
      "met",
      "not_applicable",
    ]);
    const unverified = { ...config, services: [{ ...service, protocol: "https", tls: { verify: false } }] };
    const open = await printed(unverified, { ...environment, ADMIN_HOST: "0.0.0.0", ADMIN_SESSION_TTL_S: "3600" });
    expect(statuses(open, TLS, MANAGEMENT, SESSION)).toEqual(["partly", "not_met", "not_met"]);
  });

  it("names the fact of this configuration for each verdict, and takes no other fact for it", async () => {
    const [service] = plain.services;
    const SERVERS = "SRG-NET-000138-ALG-000089";
    const jwt = (config: object) => ({ name: "jwt", config: { aud: "a", ...config } });
    const of = async (plugins: object[], environment = {}) =>
      printed({ services: [{ ...service, plugins }] }, environment);
    const local = await of([jwt({ secret: "a secret of more than thirty-two bytes", alg: "HS256" })]);
    expect(local.get(SERVERS)).toMatchObject({
      status: "not_applicable",
      fact: "no plugin of a route asks a server who the caller is",
    });
    expect(local.get(CREDENTIALS)).toMatchObject({ status: "met", fact: "2 of 2 routes: jwt" });
    const remote = await of([jwt({ jwks_uri: "https://issuer.example/keys", alg: "RS256" })]);
    expect(remote.get(SERVERS)).toMatchObject({ status: "met", fact: "servers are asked by jwt" });
    const failing = await of([{ name: "forward_auth", config: { url: "https://auth.example/", on_error: "allow" } }]);
    expect(statuses(failing, GUARDS, CREDENTIALS)).toEqual(["not_met", "not_met"]);
    const { cert, key, ca } = pem();
    const tls = { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key, CA_CERT_PATH: ca, CLIENT_AUTH: "require" };
    const beside = await of([], tls);
    expect(beside.get(CLIENTS)).toMatchObject({
      status: "partly",
      fact: "CLIENT_AUTH is require; HTTPS is on, HTTP is on",
    });
    expect((await of([], { ...tls, HTTP_PORT: "off" })).get(CLIENTS)!.status).toBe("met");
    for (const { fact } of [...local.values(), ...beside.values()]) expect(fact).not.toBe("");
  });

  it("takes AUDIT_LOG for changes, and with AUDIT_REFUSALS for attempts to get access", async () => {
    const ATTEMPTS = "SRG-NET-000513-ALG-000026",
      EVENTS = "CRA Annex I Part I (2)(l)";
    const quiet = { ...plain, global: { access_log: { enabled: false } } };
    const sampled = { ...plain, global: { access_log: { enabled: true, sample: 0.5 } } };
    const all = { ...plain, global: { access_log: { enabled: true } } };
    const audited = { AUDIT_LOG: "/var/log/audit.log" };
    const of = async (config: object, environment = {}) =>
      statuses(await printed(config, environment), ATTEMPTS, EVENTS, CHANGES);
    expect(await of(quiet)).toEqual(["not_met", "not_met", "not_applicable"]);
    expect(await of(quiet, audited)).toEqual(["partly", "partly", "met"]);
    expect(await of(quiet, { ...audited, AUDIT_REFUSALS: "true" })).toEqual(["met", "met", "met"]);
    // A sample leaves refusals out.
    expect(await of(sampled)).toEqual(["partly", "partly", "not_applicable"]);
    expect(await of(sampled, audited)).toEqual(["partly", "partly", "met"]);
    expect(await of(sampled, { ...audited, AUDIT_REFUSALS: "true" })).toEqual(["met", "met", "met"]);
    expect(await of(all, audited)).toEqual(["met", "met", "met"]);
  });

  it("refuses another form beside it", async () => {
    const { code, stderr } = await program(["audit", fileWith(plain), "--evidence", "--json"], {}).ended;
    expect([code, stderr]).toEqual([2, expect.stringContaining("choose one of --json and --evidence")]);
  });

  it("is loaded with the option alone", () => {
    const source = readFileSync(join(root, "lib/cli/audit.ts"), "utf8");
    expect(source).not.toContain("evidence.ts");
  });
});

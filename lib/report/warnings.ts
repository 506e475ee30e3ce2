/**
 * Writes the warnings about a gateway at one moment, and lists them before those about its configuration, except
 * injected faults, which come first. They change only when their cause does, so that two lists can be compared.
 */
import { countOfIssues } from "../config/json.ts";
import type { TargetsRecord } from "../upstream/contracts.ts";
import type { UpstreamSetReport } from "../upstream/upstream_report.ts";
import { pluginPlaces, type DisplayedConfig } from "../gateway/displayed_config.ts";
import { pluginPath } from "../config/plugin_place.ts";
import { describePlace } from "../gateway/plugin_error.ts";
import { linesOf } from "../gateway/refusal.ts";
import { keyEnds, SOON_MS } from "./key_ends.ts";
import type { CallerRegistry } from "../plugins/callers.ts";
import type { ConfigWarning, GatewayStatus, ShownCertificate, Warning } from "../gateway/status.ts";

export interface WarningsSource extends Pick<
  GatewayStatus,
  | "lastReload"
  | "source"
  | "digest"
  | "certificates"
  | "acme"
  | "revocationLists"
  | "counters"
  | "workers"
  | "state"
  | "pluginFaults"
> {
  readonly upstreamSets: readonly UpstreamSetReport[];
  /** SRV records without a current answer. */
  readonly unresolved: readonly {
    readonly service: string;
    readonly record: Pick<TargetsRecord, "name" | "state" | "targets">;
  }[];
  readonly shown: DisplayedConfig;
  readonly callers: CallerRegistry | null;
  /** The gateway's own listeners; null: it has none, and the host program has its own. */
  readonly listeners: { readonly https: boolean; readonly asksForCertificates: boolean } | null;
  readonly configWarnings: readonly ConfigWarning[];
  readonly areQuotasKept: boolean;
  readonly isProgramReplaced: boolean;
  /** The setting whose secret goes to the source of the configuration in the clear; null: none does. */
  readonly plainSecret: string | null;
  /** The end of a signed configuration, in milliseconds since 1970; null: it has none. */
  readonly expiresAt: number | null;
  /** Milliseconds since 1970. */
  readonly wall: number;
}

const MAX_WARNINGS = 100;

export function warningsOf(source: WarningsSource): readonly Warning[] {
  const ofServices = source.upstreamSets.flatMap((upstreamSet) => [...ofService(upstreamSet)]);
  const { configWarnings } = source;
  // Faults that an operator has asked for must not be taken for real ones, however many those are.
  const faults = configWarnings.filter(({ code }) => code === "faults_injected");
  const ofState = [
    ...ofReload(source),
    ...ofSource(source),
    ...ofProgram(source),
    ...ofExpiry(source),
    ...ofCertificates(source),
    ...ofAcmeFleet(source),
    ...ofRevocationLists(source),
    ...ofKeys(source),
    ...ofIdle(source),
    ...ofCounters(source),
    ...ofWorkers(source),
    ...ofRecords(source),
    ...ofServices,
    ...ofPlugins(source),
  ];
  const warnings = [...faults, ...ofState, ...configWarnings.slice(faults.length)];
  if (warnings.length <= MAX_WARNINGS) return warnings;
  const message = `There are ${warnings.length - MAX_WARNINGS} more warnings like these.`;
  const remedy =
    "See GET /gateway/health for every upstream, and edge-gateway validate for all warnings about the configuration.";
  return [...warnings.slice(0, MAX_WARNINGS), warning("more", message, remedy)];
}

function* ofReload({ lastReload, digest }: WarningsSource): Iterable<Warning> {
  if (lastReload?.outcome !== "refused") return;
  const { file, issues } = lastReload;
  const count = countOfIssues(issues);
  const others = count > 1 ? `, and ${count - 1} more` : "";
  const why = `${linesOf({ file, issues: issues.slice(0, 1) })[0]}${others}`;
  yield warning(
    "reload_refused",
    `The last reload was refused (${why}); configuration ${digest} stays in force.`,
    "Correct the configuration; it is then reloaded.",
  );
}

function* ofSource({ source, plainSecret }: WarningsSource): Iterable<Warning> {
  if (source === null) return;
  const { name, up, problem, copy } = source;
  const inForce =
    copy === null
      ? "what was received last stays in force"
      : `the copy that was kept at ${new Date(copy.keptAt).toISOString()} is in force`;
  if (!up)
    yield warning(
      "source_unreachable",
      `The source of the configuration, ${name}, does not answer (${problem}); ${inForce}.`,
      "Mend what the message names; a new text is then taken by itself.",
    );
  if (plainSecret !== null)
    yield warning(
      "plain_http_secret",
      `${plainSecret} is sent to ${name} without TLS: whoever is between can read it.`,
      "Use https:// or etcds:// in CONFIG_FILE_PATH.",
    );
}

function* ofProgram({ isProgramReplaced }: WarningsSource): Iterable<Warning> {
  if (!isProgramReplaced) return;
  const message = "The program's files have been replaced since the start, and nothing of them runs in this process.";
  yield warning("program_replaced", message, "Restart it.");
}

function* ofExpiry({ expiresAt, wall }: WarningsSource): Iterable<Warning> {
  if (expiresAt === null || expiresAt - wall >= SOON_MS) return;
  const at = new Date(expiresAt).toISOString();
  const place = { path: "expires_at" };
  if (wall < expiresAt)
    yield warning(
      "configuration_expires",
      `The signed configuration ends at ${at}; after that no start and no reload takes it.`,
      "Sign one with a later end.",
      place,
    );
  else
    yield warning(
      "configuration_expired",
      `The signed configuration has ended at ${at}: a restart would refuse it.`,
      "Sign one with a later end.",
      place,
    );
}

function* ofCertificates({ certificates, acme, wall }: WarningsSource): Iterable<Warning> {
  for (const certificate of certificates) {
    const isOrdered = certificate.where === "global.acme";
    const error = isOrdered ? renewalError(certificate, acme) : null;
    // It is renewed in time, which for some is less than those days before their end.
    if (isOrdered && error === null && wall <= certificate.notAfter) continue;
    const { notAfter } = certificate;
    const which = nameOf(certificate);
    const date = new Date(notAfter).toISOString().slice(0, 10);
    const remedy = isOrdered
      ? error === null
        ? "Another one is ordered."
        : `The last attempt to renew it has failed: ${error}`
      : "Renew it; the new file is read by itself.";
    const path = certificate.where.startsWith("global.") ? certificate.where : null;
    if (wall > notAfter)
      yield warning("certificate_expired", `${which} expired on ${date}, and clients refuse it.`, remedy, { path });
    else if (notAfter - wall < SOON_MS)
      yield warning("certificate_expires", `${which} expires on ${date}.`, remedy, { path });
  }
}

function* ofAcmeFleet({ acme, source }: WarningsSource): Iterable<Warning> {
  if (acme === null) return;
  const { fleet } = acme;
  const place = { path: "global.acme" };
  if (fleet === null && source?.name.startsWith("etcd") === true)
    yield warning(
      "acme_not_shared",
      "Each gateway with this configuration orders certificates for itself, by an account of its own: " +
        "many of them meet the rate limits of the directory, and a challenge that arrives at another gateway fails.",
      "Set ACME_FLEET_KEY_FILE, so that one of them orders for all.",
      place,
    );
  const problem = fleet?.problem ?? null;
  if (problem !== null)
    yield warning(
      "acme_unusable",
      `What the fleet shares of global.acme cannot be used: ${problem}. ` +
        "This gateway serves the certificates that it has.",
      "Mend what the message names.",
      place,
    );
}

/** Null: its renewal is not due, or has not failed. Other hosts may fail at any time. */
function renewalError({ notAfter }: ShownCertificate, acme: WarningsSource["acme"]): string | null {
  const due = acme?.hosts.find((each) => each.isDue && each.notAfter === notAfter);
  return due === undefined || acme === null || acme.error === null ? null : (due.error ?? acme.error);
}

function* ofRevocationLists({ revocationLists, wall }: WarningsSource): Iterable<Warning> {
  for (const { where, path: file, issuer, notAfter } of revocationLists) {
    const which = `The revocation list ${file} (${where})${issuer === null ? "" : ` of ${issuer}`}`;
    const at = new Date(notAfter).toISOString();
    const remedy = "Fetch the next one from its issuer; the new file is read by itself.";
    const [, service] = /^services\.(.*)\.tls\.crl$/.exec(where) ?? [];
    const place = { path: where, service: service ?? null };
    if (wall > notAfter)
      yield warning("crl_expired", `${which} expired at ${at}: crl_expired decides what it does.`, remedy, place);
    else if (notAfter - wall < LIST_SOON_MS) yield warning("crl_expires", `${which} expires at ${at}.`, remedy, place);
  }
}

/** Issuers publish lists every few days. */
const LIST_SOON_MS = 3 * 86_400_000;

function* ofKeys({ shown, callers, wall }: WarningsSource): Iterable<Warning> {
  const { near, more } = keyEnds(shown, callers, wall);
  for (const { id, end, ...place } of near) {
    const at = new Date(end).toISOString();
    const message =
      wall < end
        ? `A key of "${id}" ends at ${at}: from then on requests with it get 401.`
        : `A key of "${id}" has ended at ${at}: requests with it get 401.`;
    const remedy =
      wall < end ? "Give its owner a new one beside it, then remove it." : "Remove it, or give it a later end.";
    yield warning("key_expires", message, remedy, place);
  }
  if (more === 0) return;
  const message = `There are ${more} more keys that end within 14 days, or have ended within the last 14.`;
  yield warning("key_expires", message, "Replace them, as those before.");
}

function nameOf({ where, path, names, commonName }: ShownCertificate): string {
  const first =
    names.length === 0 ? (commonName ?? "") : names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "");
  return (
    `The certificate ${path === null ? `of ${where}` : `${path} (${where})`}` + `${first === "" ? "" : ` for ${first}`}`
  );
}

/** Settings that the listeners make useless are no errors: the same file may be used on other machines. */
function* ofIdle({ listeners, areQuotasKept, shown }: WarningsSource): Iterable<Warning> {
  const has = (kind: string) =>
    [...pluginPlaces(shown)].some(({ plugins }) => plugins.some(({ name, enabled }) => name === kind && enabled));
  const lost = "The counts of quota are lost when the gateway ends: they are in its memory alone.";
  if (!areQuotasKept && has("quota"))
    yield warning("quota_not_durable", lost, "Set STATE_DIR to a folder of this gateway, or global.counters.");
  if (listeners === null) return;
  if (!listeners.https && shown.global.certificates.length > 0) {
    const remedy = "Have the gateway listen with tls, or remove the certificates.";
    yield warning("certificates_unused", "global.certificates are not used: no listener has TLS.", remedy, {
      path: "global.certificates",
    });
  }
  if (listeners.asksForCertificates) return;
  if (shown.global.tls?.client_crl !== undefined) {
    const unused = "global.tls.client_crl is not used: no listener asks clients for a certificate.";
    yield warning("crl_unused", unused, "Set CA_CERT_PATH, or remove the list.", { path: "global.tls.client_crl" });
  }
  const refused = "The plugin mtls refuses every request: no listener asks clients for a certificate.";
  if (has("mtls"))
    yield warning("mtls_idle", refused, "Set CA_CERT_PATH with the server's certificate, or remove the plugin.");
}

function* ofCounters({ counters }: WarningsSource): Iterable<Warning> {
  if (counters?.state !== "down") return;
  const failed = counters.servers.find(({ state }) => state === "down");
  const why = failed === undefined ? "" : `: ${failed.address} cannot be used (${failed.reason})`;
  const message =
    `Rate limits are not shared with other gateways${why}; ` + `on_error "${counters.onError}" decides meanwhile.`;
  yield warning("counters_down", message, "Repair the server; it is used again by itself.", {
    path: "global.counters",
  });
}

/** While the gateway drains, workers end because they are asked to. */
function* ofWorkers({ workers, state }: WarningsSource): Iterable<Warning> {
  if (workers === null || state !== "serving" || workers.serving >= workers.configured) return;
  const message =
    `${workers.serving} of ${workers.configured} workers serve: ` + `the others have ended and are being replaced.`;
  yield warning("workers_missing", message, "See the log for why they ended.");
}

function* ofRecords({ unresolved }: WarningsSource): Iterable<Warning> {
  for (const { service, record } of unresolved) {
    const meaning =
      record.state === "old"
        ? `its last targets stay in use for a while (${record.targets.length})`
        : "it has no targets, and requests get none of its upstreams";
    yield warning(
      "srv_unresolved",
      `The SRV record ${record.name} of service "${service}" cannot be looked up: ${meaning}.`,
      "Check the record and the name servers; it is looked up again by itself.",
      { path: `services.${service}`, service },
    );
  }
}

function* ofService({ name, circuitBreaker, upstreams }: UpstreamSetReport): Iterable<Warning> {
  const place = { path: `services.${name}`, service: name };
  if (!upstreams.some(({ usable }) => usable)) {
    const message = `Service "${name}" has no upstream that can be used, and its requests get 503.`;
    const isTaken = upstreams.some(({ adminState }) => adminState !== null);
    yield warning(
      "no_upstream",
      message,
      isTaken ? "Use an upstream again that was taken out." : "Repair an upstream, or give one a weight above 0.",
      place,
    );
  }
  const usable = upstreams.filter((upstream) => upstream.usable);
  if (usable.length > 0 && usable.every(({ backup }) => backup)) {
    const message = `No upstream of service "${name}" but its backups can be used, and they get its requests.`;
    yield warning(
      "backups_serve",
      message,
      "Repair one that is no backup, or use one again that was taken out.",
      place,
    );
  }
  if (circuitBreaker?.state === "open") {
    const message = `The circuit of service "${name}" is open, and its requests get 503 until it tries again.`;
    yield warning("circuit_open", message, "Find out why its upstreams fail.", place);
  }
  const named = new Set<string>();
  for (const { id, host, port, state, reason, adminState, adminId } of upstreams) {
    const which = `Upstream "${id}" (${host}:${port}) of service "${name}"`;
    const why = reason === null ? "" : ` (${reason})`;
    const own = { path: `services.${name}.upstreams.${id}`, service: name };
    if (state === "unhealthy")
      yield warning(
        "upstream_down",
        `${which} is unhealthy: its checks fail${why}.`,
        "Repair it; it is used again once its checks pass.",
        own,
      );
    if (state === "ejected") {
      yield warning(
        "upstream_ejected",
        `${which} is ejected for a while because it failed requests${why}.`,
        "Find out why it fails; the access log has the fault of each request.",
        own,
      );
    }
    if (adminId !== null && !named.has(adminId)) {
      named.add(adminId);
      const what =
        adminState === "drain"
          ? "(drained): it gets no new requests, but those of its sticky sessions"
          : "(ejected): it gets no requests";
      yield warning(
        "upstream_taken_out",
        `${adminId === id ? which : `Upstream "${adminId}" of service "${name}"`} is taken out ${what}.`,
        "Use it again once it is ready; no reload does.",
        { ...own, path: `services.${name}.upstreams.${adminId}` },
      );
    }
  }
}

function* ofPlugins({ pluginFaults }: WarningsSource): Iterable<Warning> {
  for (const { plugin, id, service, route, count } of pluginFaults) {
    const times = count === 1 ? "a request" : `${count} requests`;
    const which = `Plugin ${plugin}${id === null ? "" : ` "${id}"`} of ${describePlace({ service, route })}`;
    const path = pluginPath({ service, route }, id ?? plugin);
    yield warning(
      "plugin_faults",
      `${which} was at fault for ${times} that got a 500.`,
      "See the log, which has each error.",
      { path, service, route },
    );
  }
}

type WarnedAt = Partial<Pick<Warning, "path" | "service" | "route">>;

function warning(
  code: Warning["code"],
  message: string,
  remedy: string,
  { path = null, service = null, route = null }: WarnedAt = {},
): Warning {
  return { code, path, message, example: null, remedy, service, route };
}

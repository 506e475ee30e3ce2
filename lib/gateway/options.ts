/**
 * The options of a gateway, of its configuration and of its listeners, and the form in which it reports the health of
 * its upstreams.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { ConfigSource } from "../config/source.ts";
import type { ReadableSource } from "../config/text_source.ts";
import type { TracingSettings } from "../config/settings_types.ts";
import type { AuditEvent, AuditSink } from "../observe/audit_log.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { TlsFiles } from "../server/certificates.ts";
import type { TakenOut } from "../upstream/taken_out.ts";
import type { UpstreamSetReport } from "../upstream/upstream_report.ts";
import type { Watch } from "./bundle.ts";
import type { StandIns } from "./compile_types.ts";
import type { ConfigInput } from "./config_input.ts";
import type { AcmeMeans, Https, Kept, Seen } from "./features.ts";
import type { LoadedFeatures } from "./loaded_features.ts";
import type { StateKeeper } from "./runtime.ts";
import type { AskedBy } from "./status.ts";

export interface ConfigurationOptions {
  /** The configuration as a value; either this or `configFile`. */
  readonly config?: ConfigInput;
  /** Path of the JSON configuration file. */
  readonly configFile?: string;
  /** Where the text of `configFile`, which is its name then, is received. Default: it is a file. */
  readonly textSource?: ReadableSource;
  /** What has been read for a start, if it could be: the file may be another by now. Default: it is read. */
  readonly source?: ConfigSource;
  /**
   * Path of a PEM file with one public Ed25519 key or more. The configuration file must then be signed
   * by one of them, in `FILE.sig` beside it, and have the SHA-256 of its plugin modules, callers and tests. The keys
   * are read again at each reload. Default: no signature is needed.
   */
  readonly configKeyFile?: string;
  /**
   * With `configKeyFile`: what outlives the program of the configurations that were in force. Default: nothing does.
   * Null: one that is older than another, or has ended, is taken as well.
   */
  readonly seen?: Kept<Seen> | null;
  /** Keeps which upstreams an administrator has taken out. Default: that ends with the program. */
  readonly takenOut?: Kept<readonly TakenOut[]>;
  /** The names of the built-in plugin kinds that a configuration may use. Default: all. */
  readonly kinds?: readonly string[];
  /** Plugin kinds beside the built-in ones. */
  readonly plugins?: readonly AnyPlugin[];
  /** The result of `loadPluginModules` for the same configuration; needed where it has `global.plugin_modules`. */
  readonly modules: LoadedFeatures;
  /** The variables that `${env:NAME}` refers to. Default `process.env`. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /**
   * Whether the settings of a program open its HTTPS port; where they do not, its first configuration decides, by its
   * certificates: "open" or "closed", and later ones must agree. Default: not known, as in a host's own server.
   */
  readonly https?: Https;
  /**
   * What the program keeps certificates of `global.acme` with: whether it has a STATE_DIR, and a plain port. "checked":
   * it keeps none, because it only reads the configuration, or another thread keeps them. Default: there is no program,
   * and a configuration that has `global.acme` is refused.
   */
  readonly acme?: AcmeMeans;
  /** Whether the `tests` of the configuration run before the gateway listens, and before each reload. Default "run". */
  readonly tests?: "run" | "skip";
}

/** Those of a program, with the features that its configuration names. */
export interface CompleteOptions extends ConfigurationOptions {
  /** Receives logged faults and reloads. Default: no log. */
  readonly log?: Log;
  /** Gets the access log, whole lines, where `global.access_log` is enabled and names no file. Default: nowhere. */
  readonly accessLog?: (lines: string) => void;
  /** The destination and sampling of traces. Default: none; `traceparent` passes through unchanged. */
  readonly tracing?: TracingSettings;
  /**
   * Who can ask for figures and for what became of requests: "administrators" for all of it, "scrapers" for metrics.
   * Default: administrators, where the code for it is loaded.
   */
  readonly asked?: "nobody" | "scrapers" | "administrators";
  /** Whether `http.server.request.duration` is counted, for metrics that are sent. Default false. */
  readonly areDurationsSent?: boolean;
  /** The name of a cookie: sessions of admin interfaces in it are not forwarded. Default: none. */
  readonly adminCookie?: string;
  /** Keeps what outlives the program; the gateway closes it. Default: nothing does. */
  readonly state?: StateKeeper | null;
  /** Default: there is no audit log. */
  readonly audit?: AuditTrail | null;
  /** Default: the system's clock. */
  readonly clock?: Clock;
  /**
   * Returns all addresses of an upstream's host name, at least one; rejects when there is none. Default: as the system
   * does (getaddrinfo).
   */
  readonly lookup?: (host: string) => Promise<readonly { readonly address: string; readonly family: number }[]>;
  /**
   * Returns the targets of an SRV record, as `resolveSrv` of `node:dns/promises` does; rejects when there are none.
   * Default: asks the name servers of the system.
   */
  readonly lookUpService?: (
    record: string,
  ) => Promise<
    readonly { readonly name: string; readonly port: number; readonly priority: number; readonly weight: number }[]
  >;
}

/** What an audit log has of the gateway of one thread, see `gateway_audit.ts`. */
export interface AuditTrail {
  readonly settings: AuditSettings;
  readonly sink: AuditSink;
  /** Wraps the middleware of every plugin; undefined: none has to be. */
  readonly observed: StandIns["observed"] | undefined;
  /** Whether no traffic is let through. */
  readonly isClosed: boolean;
  /** `watch`: what wraps handlers besides. */
  watch(watch: Watch | undefined): Watch | undefined;
  /**
   * `before`: the digest of the configuration that was in force; null: none was. `signer`: see `Configuration.signer`.
   */
  applied(
    by: AskedBy | { readonly by: "start" },
    before: string | null,
    inForce: { readonly digest: string; readonly signer: string | undefined },
  ): void;
  /** `inForce`: the digest that stays in force; null: none. */
  refused(by: AskedBy | { readonly by: "start" }, error: unknown, inForce: string | null): void;
  /** Events of a worker, which learns when they are written, or that they cannot be; its successor does not. */
  receive(
    batch: { readonly events: readonly AuditEvent[]; readonly lost: number },
    worker: { postMessage(message: unknown): void },
  ): void;
}

/** The same for all threads. */
export interface AuditSettings {
  readonly fail: "open" | "closed";
  readonly refusals: boolean;
  /** In shared memory: not 0 while the log cannot be written. */
  readonly failing: Int32Array;
}

export interface ListenOptions {
  /** 0: any free port. Default 8008. */
  readonly port?: number;
  /** Default "127.0.0.1". */
  readonly host?: string;
  /** A socket that is already bound, or listens, by its file descriptor, in place of `port` and `host`. TCP only. */
  readonly fd?: number;
  /** Makes it an HTTPS listener: HTTP/2 and HTTP/1.1 by ALPN. */
  readonly tls?: TlsFiles;
}

/** One address on which every thread listens. */
export interface BoundAddress {
  readonly host: string;
  readonly port: number;
  readonly isSecure: boolean;
}

export interface GatewayHealth {
  /** In the order of the configuration. */
  readonly services: readonly UpstreamSetReport[];
}

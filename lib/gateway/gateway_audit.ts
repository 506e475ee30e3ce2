/**
 * What an audit log has of the gateway of one thread: the configurations that were applied and refused, and the
 * requests that were refused.
 * With AUDIT_FAIL=closed no request is let through while the log cannot be written.
 */
import type { Worker } from "node:worker_threads";
import { Fault, messageOf } from "../base/errors.ts";
import type { Issue } from "../config/json.ts";
import type { Call } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import type { AuditEvent, AuditSink } from "../observe/audit_log.ts";
import type { Watch } from "./bundle.ts";
import type { PluginPlace } from "./compile_types.ts";
import { ConfigError } from "./config_error.ts";
import type { AskedBy } from "./status.ts";

/** The same for all threads. */
export interface AuditSettings {
  readonly fail: "open" | "closed";
  readonly refusals: boolean;
  /** In shared memory: not 0 while the log cannot be written. */
  readonly failing: Int32Array;
}

/** `signer`: see `Configuration.signer`. */
interface InForce {
  readonly digest: string;
  readonly signer: string | undefined;
}

type By = AskedBy | { readonly by: "start" };

/** Of a refused configuration. */
const [MAX_ISSUES, MAX_ISSUE] = [5, 256];

export class GatewayAudit {
  readonly settings: AuditSettings;
  readonly sink: AuditSink;
  /** The plugin that got a request last. */
  readonly #plugins = new WeakMap<Call, string>();
  /** Resolves when all batches of workers so far are answered. */
  #answered: Promise<void> = Promise.resolve();
  /** Wraps the middleware of every plugin; undefined: none has to be. */
  readonly observed: ((plugin: PluginPlace, middleware: Middleware) => Middleware) | undefined;

  constructor(settings: AuditSettings, sink: AuditSink) {
    this.settings = settings;
    this.sink = sink;
    this.observed = settings.refusals ? ({ name }, middleware) => this.#noting(name, middleware) : undefined;
  }

  /** `before`: the digest of the configuration that was in force; null: none was. */
  applied(by: By, before: string | null, { digest, signer }: InForce): void {
    this.sink.add("configuration_applied", {
      ...by,
      ...(before !== null && { before }),
      digest,
      ...(signer !== undefined && { signed_by: signer }),
    });
  }

  /** `inForce`: the digest that stays in force; null: none. */
  refused(by: By, error: unknown, inForce: string | null): void {
    // Not the configuration was refused, but the request to change it.
    if (error instanceof Fault) return;
    const issues: readonly Pick<Issue, "message" | "isSignature">[] =
      error instanceof ConfigError ? error.issues : [{ message: messageOf(error) }];
    const event = issues.some(({ isSignature }) => isSignature) ? "signature_refused" : "configuration_refused";
    const shown = issues.slice(0, MAX_ISSUES).map(({ message }) => message.slice(0, MAX_ISSUE));
    this.sink.add(event, { ...by, ...(inForce !== null && { in_force: inForce }), issues: shown });
  }

  /** Events of a worker, which learns when they are written, or that they cannot be; its successor does not. */
  receive(
    { events, lost }: { readonly events: readonly AuditEvent[]; readonly lost: number },
    worker: Pick<Worker, "postMessage">,
  ): void {
    this.sink.addEvents!(events, lost);
    const written = this.sink.written();
    // It takes an answer for that to its oldest batch, and a loss is known before a write has ended.
    this.#answered = this.#answered.then(async () => worker.postMessage({ type: "audited", isWritten: await written }));
  }

  /** Whether no traffic is let through. */
  get isClosed(): boolean {
    return this.settings.fail === "closed" && Atomics.load(this.settings.failing, 0) !== 0;
  }

  #noting(name: string, middleware: Middleware): Middleware {
    return (next) => {
      const handler = middleware(next);
      if (typeof handler !== "function") return handler;
      return (exchange) => {
        this.#plugins.set(exchange.call, name);
        return handler(exchange);
      };
    };
  }

  /** `watch`: what wraps handlers besides. */
  watch(watch: Watch | undefined): Watch | undefined {
    const { fail, refusals } = this.settings;
    if (fail === "open" && !refusals) return watch;
    return (handler, route) => {
      const watched = watch?.(handler, route) ?? handler;
      return (exchange) => {
        if (this.isClosed) return problem(exchange.call, "audit_unavailable");
        const returned = watched(exchange);
        if (!refusals) return returned;
        const { call, clientAddress } = exchange;
        return returned instanceof Promise
          ? returned.then((reply) => this.#seen(reply, call, clientAddress))
          : this.#seen(returned, call, clientAddress);
      };
    };
  }

  #seen(reply: Reply, call: Call, address: string): Reply | Promise<Reply> {
    const { status } = reply;
    if (status !== 401 && status !== 403) return reply;
    const { upstream, code, service, route, identity } = call.notes;
    // The upstream's own answer.
    if (upstream !== null && code === null) return reply;
    this.sink.add("request_refused", {
      id: call.id,
      address,
      ...(identity !== null && { identity }),
      service,
      route,
      plugin: this.#plugins.get(call) ?? null,
      status,
      code,
    });
    return this.settings.fail === "open" ? reply : this.#whenWritten(reply, call);
  }

  async #whenWritten(reply: Reply, call: Call): Promise<Reply> {
    if (await this.sink.written()) return reply;
    discard(reply);
    return problem(call, "audit_unavailable");
  }
}

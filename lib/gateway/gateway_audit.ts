/**
 * What an audit log has of the gateway of one thread: the configurations that were applied and refused, and the
 * requests that were refused.
 * With AUDIT_FAIL=closed no request is let through while the log cannot be written.
 */
import { Fault, messageOf } from "../base/errors.ts";
import type { Issue } from "../config/json.ts";
import type { Call } from "../http/exchange.ts";
import type { Middleware } from "../http/handler.ts";
import { discard, problem, type Reply } from "../http/reply.ts";
import type { AuditSink } from "../observe/audit_log.ts";
import type { Watch } from "./bundle.ts";
import { ConfigError } from "./config_error.ts";
import type { AuditTrail, AuditSettings } from "./options.ts";

/** Of a refused configuration. */
const [MAX_ISSUES, MAX_ISSUE] = [5, 256];

export class GatewayAudit implements AuditTrail {
  readonly settings: AuditSettings;
  readonly sink: AuditSink;
  /** The plugin that got a request last. */
  readonly #plugins = new WeakMap<Call, string>();
  /** Resolves when all batches of workers so far are answered. */
  #answered: Promise<void> = Promise.resolve();
  readonly observed: AuditTrail["observed"];

  constructor(settings: AuditSettings, sink: AuditSink) {
    this.settings = settings;
    this.sink = sink;
    this.observed = settings.refusals ? ({ name }, middleware) => this.#noting(name, middleware) : undefined;
  }

  readonly applied: AuditTrail["applied"] = (by, before, { digest, signer }) => {
    this.sink.add("configuration_applied", {
      ...by,
      ...(before !== null && { before }),
      digest,
      ...(signer !== undefined && { signed_by: signer }),
    });
  };

  readonly refused: AuditTrail["refused"] = (by, error, inForce) => {
    // Not the configuration was refused, but the request to change it.
    if (error instanceof Fault) return;
    const issues: readonly Pick<Issue, "message" | "isSignature">[] =
      error instanceof ConfigError ? error.issues : [{ message: messageOf(error) }];
    const event = issues.some(({ isSignature }) => isSignature) ? "signature_refused" : "configuration_refused";
    const shown = issues.slice(0, MAX_ISSUES).map(({ message }) => message.slice(0, MAX_ISSUE));
    this.sink.add(event, { ...by, ...(inForce !== null && { in_force: inForce }), issues: shown });
  };

  readonly receive: AuditTrail["receive"] = ({ events, lost }, worker) => {
    this.sink.addEvents!(events, lost);
    const written = this.sink.written();
    // It takes an answer for that to its oldest batch, and a loss is known before a write has ended.
    this.#answered = this.#answered.then(async () => worker.postMessage({ type: "audited", isWritten: await written }));
  };

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

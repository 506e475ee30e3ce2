/**
 * Runs a request through the plugins of its route with state of their own, and describes what each of them does with
 * it. Nothing is dialled and nothing is forwarded: where a plugin would ask another server, the request goes on as if
 * the plugin had let it pass.
 */
import { waitAtMost, type Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { ClientFailure } from "../client/client.ts";
import { groupsOf, type Exchange } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { asSent, discard, faultReply, isForeignFault, type Reply } from "../http/reply.ts";
import { isReply } from "../plugins/chain.ts";
import type { Scope } from "../plugins/plugin.ts";
import type { Found } from "../route/table.ts";
import type { Inbound } from "../server/inbound.ts";
import type { RouteTarget, Snapshot } from "../gateway/snapshot.ts";
import { Scratch } from "./scratch.ts";
import { concealerOf } from "../config/secrets.ts";

/** What became of a request. */
export interface Trial {
  /** The answer of the route table; null: it was not asked. */
  readonly found: Found<RouteTarget> | null;
  /** Null: a plugin could not be created, or did not answer in time. */
  readonly reply: Reply | null;
  /** Why the plugins could not be run; null: they were. */
  readonly problem: string | null;
  /** As the upstream would get it; null: a plugin answered. */
  readonly forwarded: Exchange | null;
  /** Of the plugins that were created, in the order of the configuration. */
  readonly steps: readonly Step[];
}

/** What one plugin does with the request. */
export interface PluginVerdict {
  /** "asks": it would ask another server, which is not done. "hangs": it has not answered in time. */
  readonly action: "passes" | "answers" | "asks" | "hangs" | "not_reached";
  /** Of its answer; null: it gives none. */
  readonly status: number | null;
  /** Of a refusal or a fault: "key_missing". */
  readonly code: string | null;
  /** Of a refusal: the member of its `config` that decides, see `Notes.rule`. */
  readonly rule: string | null;
  /** Where its answer redirects to; null: nowhere. */
  readonly location: string | null;
  /** The origin of the server that it would ask; null: none. */
  readonly asks: string | null;
  /** Whom it takes the caller for; null: it does not say, or another plugin has said the same. */
  readonly caller: string | null;
  readonly groups: readonly string[];
  /** Names of headers that it adds, changes and removes on the way to the upstream. */
  readonly sets: readonly string[];
  readonly removes: readonly string[];
  /**
   * The same for people, with the plugin as the subject: "passes the request on", "answers 401 key_missing", "not
   * reached".
   */
  readonly verdict: string;
}

export interface Step {
  readonly scope: Scope;
  readonly now: PluginVerdict;
}

export const NOT_REACHED = said("not_reached", "not reached");

/** In milliseconds, for all plugins together. */
const MAX_WAITING_MS = 2_000;
const SILENT = said("hangs", `has not answered within ${MAX_WAITING_MS / 1000} s`);

/** Ends the call of the request. */
export async function tryRequest(inbound: Inbound, snapshot: Snapshot, clock: Clock): Promise<Trial> {
  const steps = new Map<string, PluginStep>();
  const stepAt = (scope: Scope) => {
    if (!steps.has(scope.key)) steps.set(scope.key, new PluginStep(scope));
    return steps.get(scope.key)!;
  };
  let forwarded: Exchange | null = null;
  const scratch = new Scratch(snapshot, snapshot.table, {
    clock,
    early: snapshot.ownAnswers,
    upstream: () => (exchange) => {
      forwarded = exchange;
      return { status: 200, headers: [], body: null };
    },
    wrap: ({ scope }, middleware) => stepAt(scope).wrap(middleware),
    ask: ({ url }, { scope }) => stepAt(scope).ask(url),
    // What is explained is why, with code and detail.
    plainErrors: true,
  });
  let reply: Reply | null = null;
  let problem: string | null = null;
  try {
    const returned = scratch.serve(inbound);
    if (returned instanceof Promise)
      await waitAtMost(
        returned.then((late) => void (reply = late)),
        MAX_WAITING_MS,
      );
    else reply = returned;
  } catch (error) {
    problem = messageOf(error);
  }
  // A verdict may quote what a plugin was configured with: where it redirects to, or its error.
  const conceal = concealerOf(snapshot);
  const shown = Array.from(steps.values(), ({ scope, now }) => ({ scope, now: concealed(now, conceal) }));
  const trial = {
    found: scratch.found,
    reply,
    problem: problem === null ? null : conceal(problem),
    forwarded,
    steps: shown,
  };
  for (const step of steps.values()) step.end();
  // A plugin that still waits can end its work.
  if (reply === null) inbound.call.abort();
  else discard(reply);
  inbound.call.close();
  inbound.body?.destroy();
  scratch.close();
  return trial;
}

class PluginStep implements Step {
  readonly scope: Scope;
  now = NOT_REACHED;
  /** Whom it would ask: "https://auth.example.com"; null: nobody so far. */
  #asked: string | null = null;
  /** Lets the request go on behind the plugin; null unless the plugin has the request. */
  #goOn: (() => void) | null = null;
  #isOver = false;

  constructor(scope: Scope) {
    this.scope = scope;
  }

  /** The URL may hold secrets: only its origin is shown. */
  ask({ origin }: URL): Promise<never> {
    this.#asked = origin;
    // Asked at its creation, or at the end: the entries of a log, for instance.
    if (this.#goOn === null) return Promise.reject(new ClientFailure("unreachable", "nothing is dialled here"));
    this.now = this.#asking();
    this.#goOn();
    return new Promise(() => {});
  }

  /** From now on the plugin can neither ask nor pass a request on. */
  end(): void {
    this.#isOver = true;
    this.#goOn = null;
  }

  wrap(middleware: Middleware): Middleware {
    return (next) => {
      let given: Exchange | null = null;
      // The chain behind it runs once, also where a plugin passes a request on after it has asked.
      let behind: Reply | Promise<Reply> | null = null;
      const goOn = (exchange: Exchange) => (behind ??= this.#isOver ? new Promise(() => {}) : next(exchange));
      const handler = middleware((exchange) => {
        if (this.#asked === null) this.now = passing(given!, exchange);
        return goOn(exchange);
      });
      return (exchange) => {
        given = exchange;
        this.now = this.#asked === null ? SILENT : this.#asking();
        const goneOn = new Promise<Reply>((resolve) => (this.#goOn = () => resolve(goOn(exchange))));
        const settled = (reply: Reply) => {
          if (this.#asked !== null) {
            if (behind === null) discard(reply);
            return this.#ignored(exchange, goOn);
          }
          if (behind === null)
            this.now = isReply(reply)
              ? answering(exchange, reply)
              : failing(exchange, new TypeError("it returned no reply"));
          return reply;
        };
        const failed = (error: unknown): Reply | Promise<Reply> => {
          if (this.#asked !== null) return this.#ignored(exchange, goOn);
          this.now = failing(exchange, error);
          throw error;
        };
        let returned: Reply | Promise<Reply>;
        try {
          returned = handler(exchange);
        } catch (error) {
          return failed(error);
        }
        return returned instanceof Promise ? Promise.race([returned.then(settled, failed), goneOn]) : settled(returned);
      };
    };
  }

  #asking(): PluginVerdict {
    return said("asks", `asks ${this.#asked}: not done here`, { asks: this.#asked });
  }

  /** What a plugin answers because nobody has answered it does not count. */
  #ignored(exchange: Exchange, goOn: Handler): Reply | Promise<Reply> {
    exchange.call.notes.code = exchange.call.notes.rule = null;
    return goOn(exchange);
  }
}

function said(action: PluginVerdict["action"], verdict: string, more: Partial<PluginVerdict> = {}): PluginVerdict {
  return {
    action,
    status: null,
    code: null,
    rule: null,
    location: null,
    asks: null,
    caller: null,
    groups: [],
    sets: [],
    removes: [],
    ...more,
    verdict,
  };
}

function concealed(verdict: PluginVerdict, conceal: (text: string) => string): PluginVerdict {
  const { rule, location, caller, groups, verdict: sentence } = verdict;
  return {
    ...verdict,
    rule: rule && conceal(rule),
    location: location && conceal(location),
    caller: caller && conceal(caller),
    groups: groups.map(conceal),
    verdict: conceal(sentence),
  };
}

/** `more`: what follows status and code. */
function answer(status: number, code: string | null, more = "", rest: Partial<PluginVerdict> = {}): PluginVerdict {
  return said("answers", `answers ${status}${code === null ? "" : ` ${code}`}${more}`, { status, code, ...rest });
}

/** As `serve` answers it. */
function failing({ call }: Exchange, error: unknown): PluginVerdict {
  const { status } = asSent(faultReply(call, error));
  return isForeignFault(error) ? answer(status, error.code) : answer(status, "internal", `: ${messageOf(error)}`);
}

function answering({ call }: Exchange, reply: Reply): PluginVerdict {
  const { status, headers } = asSent(reply);
  const location = headerValue(headers, "location") ?? null;
  const { code, rule } = call.notes;
  const by = rule === null ? "" : ` by ${rule}`;
  return answer(status, code, location === null ? by : `${by} to ${location}`, { rule, location });
}

/** `passes the request on as "ada" in "gold", sets X-User, removes Cookie` */
function passing(before: Exchange, after: Exchange): PluginVerdict {
  const [old, now] = [linesOf(before.headers), linesOf(after.headers)];
  const sets = [...now].flatMap(([lower, { name, values }]) => (old.get(lower)?.values === values ? [] : [name]));
  const removes = [...old].flatMap(([lower, { name }]) => (now.has(lower) ? [] : [name]));
  const listed = (verb: string, names: readonly string[]) =>
    names.length === 0 ? "" : `, ${verb} ${names.join(", ")}`;
  const caller = after.identity === before.identity ? null : after.identity;
  const groups = caller === null ? [] : [...groupsOf(after)];
  const within = groups.map((group) => `"${group}"`).join(", ");
  const as = caller === null ? "" : ` as "${caller}"${within && ` in ${within}`}`;
  return said("passes", `passes the request on${as}${listed("sets", sets)}${listed("removes", removes)}`, {
    caller,
    groups,
    sets,
    removes,
  });
}

/** By the name in lower case. */
function linesOf(headers: HeaderList): Map<string, { readonly name: string; readonly values: string }> {
  const lines = new Map<string, { readonly name: string; readonly values: string }>();
  for (let i = 0; i < headers.length; i += 2) {
    const lower = headers[i]!.toLowerCase();
    lines.set(lower, { name: headers[i]!, values: `${lines.get(lower)?.values ?? ""}\n${headers[i + 1]!}` });
  }
  return lines;
}

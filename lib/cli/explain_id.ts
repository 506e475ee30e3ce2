/**
 * `edge-gateway explain --id`: prints what became of a request, as the gateway that has answered it remembers.
 */
import { REQUEST_ID } from "../http/request_id.ts";
import type { RequestDecision } from "../observe/decision_reader.ts";
import { asAdmin, unexpected, type AdminTarget } from "./admin_client.ts";
import { Failure } from "./failure.ts";
import { withoutAnyControls, withoutControls, type Paint } from "./terminal.ts";

export interface Remembered {
  readonly decision: RequestDecision;
  /** Digest of the configuration that is in force now; null: the gateway has not said. */
  readonly inForce: string | null;
}

/** Throws a `Failure` with exit code 1 if the gateway cannot be asked, or does not know the id. */
export function askForRequest(id: string, target: AdminTarget): Promise<Remembered> {
  return asAdmin(target, async (ask) => {
    const answer = await ask("GET", `/gateway/requests/${encodeURIComponent(id)}`);
    const { status, json } = answer;
    if (status === 404 && json.id !== undefined) {
      const why = "it may be older than those that global.decisions keeps, or another gateway has answered it";
      throw new Failure(`${target.url} remembers no request with the id ${id}: ${why}`, 1);
    }
    if (status !== 200 || !Array.isArray(json.tries)) throw unexpected(answer, "GET /gateway/requests", target.url);
    const { digest } = (await ask("GET", "/gateway/status")).json;
    return { decision: json as unknown as RequestDecision, inForce: typeof digest === "string" ? digest : null };
  });
}

/** Throws a `Failure` where nothing can have this id. */
export function checkId(id: string): void {
  if (REQUEST_ID.test(id)) return;
  const found = id.length > 128 ? `${id.length} characters` : withoutControls(JSON.stringify(id));
  throw new Failure(
    `--id: expected a request id as in X-Request-Id (1 to 128 of the characters A-Z a-z 0-9 _ . : ` +
      `/ + = @ -), found ${found}`,
    2,
  );
}

/** For people; `paint` colours it. */
export function rememberedText({ decision: raw, inForce }: Remembered, paint: Paint): string {
  const decision = withoutAnyControls(raw);
  const { id, time, client, method, host, path, status, code, service, route, caller, tries, ms, digest } = decision;
  const asked = method === null ? "A request that could not be read" : `${method} ${host ?? ""}${path ?? ""}`;
  const got = status === null ? "no reply" : [status, code].filter((each) => each !== null).join(" ");
  const place =
    route === null ? "No route was found, or looked for." : `By route "${route}" of service "${service ?? "unknown"}".`;
  const rows = tries.map(
    (each) => `  ${each.upstream ?? "unknown"}: ${each.status ?? "no response"} after ${each.ms} ms\n`,
  );
  const isOther = inForce !== null && inForce !== digest;
  const replaced = () => paint("bad", ` is no longer in force: now it is ${withoutControls(inForce!)}`);
  const untilNow = inForce === null ? "" : " is in force";
  return [
    `${asked}${client === null ? "" : ` from ${client}`} got ` +
      `${paint(status !== null && status < 400 ? "good" : "bad", got)}\n`,
    `  ${whoAnswered(decision)}\n`,
    ...instanceLines(decision),
    `  ${place}\n`,
    // An older gateway does not say it.
    ...(caller == null ? [] : [`  The caller was ${caller}.\n`]),
    ...mcpLines(decision),
    ...(rows.length === 0 ? [] : ["\nUpstreams that were asked\n", ...rows]),
    `\nRequest ${id} ended at ${time}, after ${ms} ms.\n`,
    `Configuration ${digest}${isOther ? replaced() : untilNow}.\n`,
    ...(code === null || status === null ? [] : [`What ${code} means: edge-gateway help ${code}\n`]),
  ].join("");
}

/** An older gateway names neither. */
function instanceLines({ plugin = null, rule = null }: RequestDecision): string[] {
  if (plugin === null) return [];
  return [`  It is ${plugin}${rule === null ? "" : `; ${rule} of its config decided`}.\n`];
}

/** An older gateway does not say it. */
function mcpLines({ mcp = null }: Partial<RequestDecision>): string[] {
  if (mcp === null) return [];
  return [`  The message was ${mcp.method}${mcp.name === null ? "" : ` of ${JSON.stringify(mcp.name)}`}.\n`];
}

function whoAnswered({ by, status, tries, code }: RequestDecision): string {
  const last = tries.at(-1)?.upstream ?? "unknown";
  if (status === null)
    return tries.length === 0
      ? "The client disconnected before a reply, and no upstream was asked."
      : `The client disconnected before a reply; upstream ${last} was asked last.`;
  if (by === "upstream") return `Upstream ${last} answered${code === null ? "" : "; then the reply was broken off"}.`;
  if (by === "gateway")
    return tries.length === 0
      ? "The gateway itself answered; no upstream was asked."
      : "The gateway itself answered, since no upstream gave a usable reply.";
  return (
    `${by === null ? "A plugin that is no longer known" : `The plugin ${by}`} ` +
    `answered${tries.length === 0 ? "; no upstream was asked" : ""}.`
  );
}

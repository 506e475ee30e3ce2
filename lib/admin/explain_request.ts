/**
 * Answers `POST /gateway/explain`, whose body is the request to explain, and `GET /gateway/plugins`.
 */
import { isIP } from "node:net";
import { Fault } from "../base/errors.ts";
import { problem, type Reply } from "../http/reply.ts";
import { isObject } from "../json_schema/values.ts";
import type { Question } from "../proof/explain.ts";
import type { Inbound } from "../server/inbound.ts";
import { readJsonBody } from "./json_body.ts";
import { json, queryOf } from "./replies.ts";
import { explanationView, type InterfaceOptions, type Secrets } from "./views.ts";

const MAX_BYTES = 64 * 1024;

export async function explainRequest(
  inbound: Inbound,
  { gateway, refresh }: Pick<InterfaceOptions, "gateway" | "refresh">,
  secrets: Secrets,
): Promise<Reply> {
  const request = await readExplainRequest(inbound);
  await refresh("counts");
  return json(200, explanationView(await gateway.explain(request, secrets)));
}

/** The plugins of a route in the order in which they run. */
export async function pluginsRequest(
  { call, target }: Inbound,
  { gateway, refresh }: Pick<InterfaceOptions, "gateway" | "refresh">,
): Promise<Reply> {
  const query = queryOf(target);
  const service = query.get("service");
  const route = query.get("route");
  if (service === null || route === null)
    return problem(call, "request_invalid", { detail: 'Name a route: "?service=…&route=…".' });
  await refresh("counts");
  const plugins = await gateway.routePlugins(service, route);
  if (plugins === null)
    return problem(call, "route_not_found", { detail: "The configuration in force has no such route." });
  return json(200, { plugins });
}

/** Rejects with a `Fault`. */
async function readExplainRequest(inbound: Inbound): Promise<Question> {
  const body = await readJsonBody(inbound, MAX_BYTES, "the request to explain");
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (error) {
    const why = error instanceof SyntaxError ? `The body is not JSON: ${error.message}.` : "The body is not UTF-8.";
    throw new Fault("bad_request", why);
  }
  return explainRequestOf(value);
}

/** Throws a `Fault` with every field that is wrong, in one sentence each. */
function explainRequestOf(value: unknown): Question {
  if (!isObject(value))
    throw invalid(['The body must be an object: {"method":"GET","url":"/shop/items","headers":{}}.']);
  const { method, url, headers = {}, client_ip: clientIp = null, body = null, ...others } = value;
  const wrong: string[] = [];
  if (typeof method !== "string" || method === "") wrong.push('"method" is missing, or not a string such as "GET".');
  if (typeof url !== "string" || url === "") wrong.push('"url" is missing, or not a string such as "/shop/items?x=1".');
  if (
    !isObject(headers) ||
    !Object.values(headers)
      .flat()
      .every((each) => typeof each === "string")
  ) {
    wrong.push('"headers" is not an object of strings, or of lists of them, such as {"Host":"shop.example.com"}.');
  }
  if (clientIp !== null && (typeof clientIp !== "string" || isIP(clientIp) === 0)) {
    wrong.push('"client_ip" is not an IP address such as "203.0.113.9".');
  }
  for (const name of Object.keys(others).slice(0, MAX_NAMED)) {
    wrong.push(
      `${JSON.stringify(name)} is not a known field: the fields are "method", "url", ` +
        `"headers", "client_ip" and "body".`,
    );
  }
  if (wrong.length > 0) throw invalid(wrong);
  const question = {
    method: method as string,
    url: url as string,
    headers: headers as Record<string, string | string[]>,
  };
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    ...question,
    ...(clientIp !== null && { clientIp: clientIp as string }),
    ...(body !== null && { body: text }),
  };
}

const MAX_NAMED = 3;

function invalid(details: readonly string[]): Fault {
  return new Fault("request_invalid", details.join(" "));
}

/**
 * Writes tests of the configuration as JSON, and reads their requests for the form of "Try it".
 */
import type { Explanation, ExplainRequest, RequestDecision } from "./api.ts";
import { urlOf } from "./requests_text.ts";
import { MASK } from "./setting_lines.ts";
import type { TryInput } from "./try_form.ts";

/** A test as `tests` of the configuration has it, with the members that are written here. */
interface TestJson {
  readonly name: string;
  readonly request: {
    readonly method: string;
    readonly url: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly client_ip?: string;
  };
  readonly expect: {
    readonly status?: number;
    readonly code?: string;
    readonly service?: string;
    readonly route?: string;
  };
}

const MAX_NAME_LENGTH = 200;

/**
 * A test that expects what was explained. It expects no status if a plugin asks another machine: that depends on the
 * `answers` of the test. A request that reaches the upstream gets the 200 that tests assume.
 */
export function testOf(
  request: ExplainRequest,
  { outcome, status, code, service, route, open, answer: ofPlugin }: Explanation,
): TestJson {
  const { method, url, headers, body, client_ip: clientIp } = request;
  const asked = {
    method,
    url,
    ...(Object.keys(headers).length > 0 && { headers }),
    ...(body !== undefined && { body }),
    ...(clientIp !== undefined && { client_ip: clientIp }),
  };
  const place = outcome === "refused" ? {} : { service: service ?? "", route: route ?? "" };
  const answer = outcome === "refused" ? { status, code } : open ? null : ofPlugin;
  const name = `${method} ${url} ${answer === null ? `reaches ${service}, ${route}` : `gets ${reply(answer)}`}`.slice(
    0,
    MAX_NAME_LENGTH,
  );
  if (answer !== null) return { name, request: asked, expect: { ...expected(answer), ...place } };
  return { name, request: asked, expect: open ? place : { status: 200, ...place } };
}

/**
 * A test of a remembered request, without its query, headers and body. A status that came from an upstream, or because
 * of one, is no matter of the configuration: tests ask none.
 */
export function testOfDecision(decision: RequestDecision): TestJson {
  const { method, client, by, status, code, service, route, tries } = decision;
  const request = { method: method ?? "GET", url: urlOf(decision), ...(client !== null && { client_ip: client }) };
  const place = { ...(service !== null && { service }), ...(route !== null && { route }) };
  const isOwn = by !== "upstream" && tries.length === 0 && status !== null;
  const expect = { ...(isOwn && expected({ status, code })), ...place };
  const what = isOwn ? `gets ${reply({ status, code })}` : `reaches ${service}, ${route}`;
  return { name: `${request.method} ${request.url} ${what}`.slice(0, MAX_NAME_LENGTH), request, expect };
}

interface Answer {
  readonly status: number | null;
  readonly code: string | null;
}

function expected({ status, code }: Answer): TestJson["expect"] {
  return { ...(status !== null && { status }), ...(code !== null && { code }) };
}

function reply({ status, code }: Answer): string {
  return [status, code].filter((part) => part !== null).join(" ");
}

/** The request of a test as the configuration has it. */
interface WrittenRequest {
  readonly method?: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: unknown;
  readonly client_ip?: string;
  readonly times?: number;
  readonly [other: string]: unknown;
}

/** `missing`: what the form does not have of the request, a sentence each. */
export function formOf(request: unknown): { readonly input: TryInput; readonly missing: readonly string[] } {
  const {
    method = "GET",
    url,
    headers = {},
    body,
    client_ip: clientIp = "",
    as,
    certificate,
    times = 1,
    every_ms: _,
    ...others
  } = request as WrittenRequest;
  const missing: string[] = [];
  const isKnown = (what: string, text: string): boolean => {
    const why = text.includes(MASK)
      ? "is masked for you"
      : /\$\{(?:env|file):/.test(text.replaceAll("$${", ""))
        ? "has a reference, which tests alone resolve"
        : null;
    if (why !== null) missing.push(`${what} ${why}.`);
    return why === null;
  };
  const lines = Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().flatMap((value) => (isKnown(`The header ${name}`, value) ? [`${name}: ${value}`] : [])),
  );
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  // In a configuration `$${` is `${` itself.
  const plain = (written: string) => written.replaceAll("$${", "${");
  const input = {
    method,
    url: isKnown("The URL", url) ? plain(url) : "",
    headers: plain(lines.join("\n")),
    clientIp,
    body: isKnown("The body", text) ? plain(text) : "",
  };
  if (as !== undefined)
    missing.push("The caller or token of “as”, which plugins accept without a check: here they see the headers alone.");
  if (certificate !== undefined) missing.push("The certificate of the client: here it has none.");
  if (times > 1) missing.push(`The test sends it ${times} times: here it is explained once.`);
  for (const name of Object.keys(others)) missing.push(`“${name}”, which this page does not know.`);
  return { input, missing };
}

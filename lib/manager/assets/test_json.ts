/**
 * Writes tests of the configuration as JSON.
 */
import type { Explanation, ExplainRequest } from "./api.ts";

/** A test as `tests` of the configuration has it, with the members that are written here. */
export interface TestJson {
  readonly name: string;
  readonly request: {
    readonly method: string;
    readonly url: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly client_ip?: string;
  };
  readonly expect: { readonly status?: number; readonly code?: string; readonly service?: string; readonly route?: string };
}

const MAX_NAME_LENGTH = 200;

/** Shown to users who have no tests yet. */
export const EXAMPLE_TEST: TestJson = {
  name: "orders need a key",
  request: { method: "GET", url: "http://api.example.com/orders/7" },
  expect: { status: 401, code: "key_missing" },
};

/**
 * A test that expects what was explained. It expects no status if a plugin asks another machine: that depends on the `answers` of the
 * test. A request that reaches the upstream gets the 200 that tests assume.
 */
export function testOf(request: ExplainRequest, { outcome, status, code, service, route, open, answer: ofPlugin }: Explanation): TestJson {
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
  const name = `${method} ${url} ${answer === null ? `reaches ${service}, ${route}` : `gets ${reply(answer)}`}`.slice(0, MAX_NAME_LENGTH);
  if (answer !== null) return { name, request: asked, expect: { ...expected(answer), ...place } };
  return { name, request: asked, expect: open ? place : { status: 200, ...place } };
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

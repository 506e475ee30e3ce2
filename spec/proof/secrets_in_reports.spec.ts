/** No report of tests, explanations and dry runs shows a secret. */
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { createGateway, definePlugin, schema, type AnyPlugin } from "../../lib/index.ts";
import { oneService } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";

type TestInput = NonNullable<AnyConfigInput["tests"]>[number];
type Expected = TestInput["expect"];

const KEY = { name: "key_auth", config: { keys: [{ id: "web", key: "a-key-of-the-web" }] } };
const SET = {
  name: "request_headers",
  config: { set: { "X-Token": "${env:TOKEN}", "X-Own": "a-literal-secret", Authorization: "Basic YWRhOnB3" } },
};
const environment = { TOKEN: "the-token", PREFIX: "hidden-place" };

/** What a refused reload reports: the error, the last reload, the last run of tests and the status. */
async function reported(
  expected: Expected,
  plugins: readonly object[] = [SET],
  request: Partial<TestInput["request"]> = {},
  own: readonly AnyPlugin[] = [],
) {
  const gateway = createGateway({ config: { services: [] }, environment, plugins: own });
  onTestFinished(async () => void (await gateway.close(0)));
  const tests = [{ name: "t", request: { url: "/a/x", ...request }, expect: expected }];
  const error = (await gateway
    .reload({ ...oneService(9, { plugins: plugins as never }), tests })
    .catch((each: unknown) => each)) as Error;
  const { lastReload, warnings } = gateway.status;
  return {
    differences: gateway.lastTests!.report.tests[0]!.differences,
    all: JSON.stringify([error.message, lastReload, warnings, gateway.lastTests]),
  };
}

describe("the report of a test", () => {
  it.each<[string, Expected, string]>([
    [
      "the value of a reference",
      { upstream_headers: { "X-Token": null } },
      'upstream_headers.X-Token: expected null, found "${env:TOKEN}"',
    ],
    [
      "a secret that is written in the configuration",
      { upstream_headers: { "X-Own": "other" } },
      'upstream_headers.X-Own: expected "other", found "********"',
    ],
    [
      "credentials, by the name of their header",
      { upstream_headers: { authorization: null } },
      'upstream_headers.authorization: expected null, found "********"',
    ],
    [
      "credentials that are expected",
      { upstream_headers: { authorization: "Basic Ym9iOnB3" } },
      "upstream_headers.authorization: not as expected; both are secret or too long to be shown",
    ],
    [
      "credentials in a header of another custom name",
      { upstream_headers: { "X-Vault-Token": "Ym9iOnB3" } },
      'upstream_headers.X-Vault-Token: expected "********", found null',
    ],
    [
      "credentials in a member of an expected document",
      { body: { user: "ada", clientSecret: "Ym9iOnB3", session: { id: "Ym9iOnB3" } } },
      'body: expected {"user":"ada","clientSecret":"********","session":{"id":"********"}}, found null',
    ],
    [
      "an expected form with credentials",
      { body: "user=ada&password=Ym9iOnB3" },
      'body: expected "********", found ""',
    ],
    [
      "an expected list of cookies",
      { headers: { "Set-Cookie": ["sid=Ym9iOnB3"] } },
      'headers.Set-Cookie: expected ["********"], found null',
    ],
    [
      "a pattern of credentials",
      { upstream_headers: { Authorization: { matches: "Ym9iOnB3" } } },
      'upstream_headers.Authorization: expected a match of ********, found "********"',
    ],
  ])("does not show %s", async (_what, expected, difference) => {
    const { differences, all } = await reported(expected);
    expect(differences).toEqual([difference]);
    expect(all).not.toMatch(/the-token|a-literal-secret|YWRhOnB3|Ym9iOnB3/);
  });

  it("does not show credentials in the query, and no JWT", async () => {
    const url = "/a/x?token=abcdef&next=eyJhbGciOiJub25lIn0.e30.";
    const { differences, all } = await reported({ upstream_path: "/y" }, [], { url });
    expect(differences).toEqual(['upstream_path: expected "/y", found "/x?token=[redacted]&next=[redacted]"']);
    expect(all).not.toMatch(/abcdef|eyJ/);
  });

  it("does not show them in a body, nor what a plugin says in its error", async () => {
    const leaking = (isBroken: boolean) =>
      definePlugin({
        name: "leaks",
        schema: schema.object({ token: schema.string() }),
        create:
          ({ token }) =>
          () =>
          () => {
            if (isBroken) throw new Error(`cannot use ${token}`);
            return { status: 200, headers: [], body: Buffer.from(JSON.stringify({ by: [`Bearer ${token}`] })) };
          },
      });
    const plugins = [{ name: "leaks", config: { token: "${env:TOKEN}" } }];
    const { differences, all } = await reported({ body: {} }, plugins, {}, [leaking(false)]);
    expect(differences).toEqual(['body: expected {}, found {"by":["Bearer ${env:TOKEN}"]}']);
    expect(all).not.toContain("the-token");
    const broken = await reported({ status: 200 }, plugins, {}, [leaking(true)]);
    expect(broken.differences).toEqual([
      "status: expected 200, found 500",
      "the gateway logs: cannot use ${env:TOKEN}",
    ]);
    expect(broken.all).not.toContain("the-token");
  });

  it("shows 2000 characters of a value at most, and none of a secret at their end", async () => {
    const body = `${"x".repeat(1_995)}the-token`;
    const ends = { name: "request_termination", config: { status: 200, body: `${"x".repeat(1_995)}\${env:TOKEN}` } };
    const { all } = await reported({ body: "y" }, [ends]);
    expect(all).toContain(`"found":{"body":"${"x".repeat(1_995)}\${env…"}`);
    expect(all).not.toContain(body.slice(0, 1_999));
  });
});

describe("explain", () => {
  it("does not show the value of a reference in a verdict", async () => {
    const redirect = { name: "redirect", config: { location: "https://h.example/${env:TOKEN}" } };
    const gateway = createGateway({ config: oneService(9, { plugins: [redirect] }), environment });
    onTestFinished(async () => void (await gateway.close(0)));
    const { plugins } = await gateway.explain({ method: "GET", url: "/a/x" }, "masked");
    expect(plugins[0]!.verdict).toMatch(/^answers 30\d to https:\/\/h\.example\/\$\{env:TOKEN\}$/);
  });
});

describe("the dry run of a text", () => {
  async function tried(text: object, paths: readonly string[] = []) {
    const gateway = createGateway({ configFile: fileWith(oneService(9)), environment });
    onTestFinished(async () => void (await gateway.close(0)));
    for (const path of paths) await gateway.inject({ url: path });
    return gateway.dryRun(Buffer.from(JSON.stringify(text)));
  }
  const guarded = { name: "guarded", path: "/{x}/{y*}", plugins: [KEY] };

  it("has examples", async () => {
    const run = await tried(oneService(9, { base_path: "/", routes: [guarded, { path: "/open/{x}" }] }));
    expect(run.warnings[0]!.example).toBe("GET http://localhost/open/x");
  });

  it("shows no credentials in the paths of recent requests", async () => {
    const { requests } = await tried({ services: [] }, ["/a/confirm/eyJhbGciOiJub25lIn0.e30.", "/a/x;token=abc/y"]);
    expect(requests!.examples.map(({ request }) => request)).toEqual([
      "GET http://localhost/a/confirm/[redacted]",
      "GET http://localhost/a/x;token=[redacted]/y",
    ]);
  });
});

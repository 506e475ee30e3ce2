import { describe, expect, it } from "vitest";
import { protectedResource } from "../../lib/plugins/resource_metadata.ts";

const resource = protectedResource(
  {
    resource: "https://api.example.com/mcp",
    authorizationServers: ["https://id.example.com"],
    audience: "resource",
  },
  { scopes: ["read", "write"] },
)!;
const METADATA = 'resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/mcp"';
const SCOPE = 'scope="read write"';

/** The challenges of a 401 that has had these. */
const challengesOf = (...given: string[]) =>
  resource
    .challenged({
      status: 401,
      headers: ["X-A", "b", ...given.flatMap((each) => ["Www-Authenticate", each])],
      body: null,
    })
    .headers.filter((_text, i, list) => i % 2 === 1 && list[i - 1]!.toLowerCase() === "www-authenticate");

describe("challenges", () => {
  it.each<[string, string[], string[]]>([
    ["none", [], [`Bearer ${METADATA}, ${SCOPE}`]],
    ["Bearer alone", ["Bearer"], [`Bearer ${METADATA}, ${SCOPE}`]],
    ["Bearer in lower case", ["bearer realm=x"], [`bearer realm=x, ${METADATA}, ${SCOPE}`]],
    [
      "commas and quotes within a text",
      ['Bearer error_description="a, \\"b\\", Basic c=d"'],
      [`Bearer error_description="a, \\"b\\", Basic c=d", ${METADATA}, ${SCOPE}`],
    ],
    ["a scope of its own", ['Bearer scope="admin"'], [`Bearer scope="admin", ${METADATA}`]],
    [
      "metadata of its own",
      ['Bearer resource_metadata="https://x/"'],
      [`Bearer resource_metadata="https://x/", ${SCOPE}`],
    ],
    ["DPoP", ['DPoP algs="ES256"'], [`DPoP algs="ES256", ${METADATA}, ${SCOPE}`]],
    [
      "both schemes",
      ["Bearer a=b", "DPoP c=d"],
      [`Bearer a=b, ${METADATA}, ${SCOPE}`, `DPoP c=d, ${METADATA}, ${SCOPE}`],
    ],
    ["another scheme", ['Basic realm="x"'], [`Bearer ${METADATA}, ${SCOPE}`, 'Basic realm="x"']],
    [
      "several in one line, which could be extended at the wrong one",
      ['Bearer a=b, Basic realm="x"'],
      [`Bearer ${METADATA}, ${SCOPE}`, 'Bearer a=b, Basic realm="x"'],
    ],
    ["a scheme that begins so", ["BearerX a=b"], [`Bearer ${METADATA}, ${SCOPE}`, "BearerX a=b"]],
    ["a token in place of parameters", ["Bearer abc="], [`Bearer ${METADATA}, ${SCOPE}`, "Bearer abc="]],
  ])("of a reply with %s", (_what, given, expected) => {
    expect(challengesOf(...given)).toEqual(expected);
  });

  it("other headers stay, and the reply that was given is not changed", () => {
    const reply = { status: 403, headers: ["X-A", "b", "WWW-Authenticate", "Bearer a=b"], body: Buffer.from("x") };
    const { headers, ...rest } = resource.challenged(reply);
    expect([headers.slice(0, 2), rest]).toEqual([["X-A", "b"], { status: 403, body: reply.body }]);
    expect(reply.headers[3]).toBe("Bearer a=b");
  });
});

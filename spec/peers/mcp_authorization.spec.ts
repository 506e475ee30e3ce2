/**
 * The authorization of MCP from its first request on: the client of `@modelcontextprotocol/sdk` reads the challenge of
 * the gateway, the metadata, and those of the authorization server, registers itself, gets a token, and calls a tool.
 */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { oneService } from "../support/gateway.ts";
import { authorizationServer, browse, peer } from "./authorization_server.ts";
import { startBuilt } from "./built.ts";

/** The parts of `@modelcontextprotocol/sdk` that are used here; without the package this file still compiles. */
interface Transport {
  finishAuth(code: string): Promise<void>;
  handleRequest(request: object, response: object): Promise<void>;
}
interface ClientPart {
  Client: new (info: object) => {
    connect(transport: Transport): Promise<void>;
    callTool(call: object): Promise<{ readonly content: readonly { readonly text: string }[] }>;
    close(): Promise<void>;
  };
}
interface ClientTransportPart {
  StreamableHTTPClientTransport: new (url: URL, options: object) => Transport;
}
interface ServerPart {
  McpServer: new (info: object) => {
    registerTool(name: string, settings: object, run: (extra: Extra) => object): void;
    connect(transport: Transport): Promise<void>;
    close(): Promise<void>;
  };
}
interface Extra {
  readonly requestInfo?: { readonly headers: Readonly<Record<string, string>> };
}
interface ServerTransportPart {
  StreamableHTTPServerTransport: new (options: object) => Transport;
}

const SDK = "@modelcontextprotocol/sdk";
const REDIRECT = "http://127.0.0.1:1/callback";

/** An MCP server without sessions, whose only tool says who calls. */
async function mcpServer(): Promise<number> {
  const { McpServer } = await peer<ServerPart>(`${SDK}/server/mcp.js`);
  const { StreamableHTTPServerTransport } = await peer<ServerTransportPart>(`${SDK}/server/streamableHttp.js`);
  const http = createServer((request, response) => {
    const server = new McpServer({ name: "tools", version: "1" });
    server.registerTool("whoami", { description: "Says who calls." }, ({ requestInfo }) => ({
      content: [{ type: "text", text: String(requestInfo?.headers["x-user"]) }],
    }));
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on("close", () => void server.close());
    void server.connect(transport).then(() => transport.handleRequest(request, response));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  onTestFinished(() => {
    http.close();
    http.closeAllConnections();
  });
  return (http.address() as AddressInfo).port;
}

/** A client's memory of who it is and what it has, whose browser is `opened`. */
function memory(opened: (url: URL) => void) {
  const kept: { client?: object; tokens?: object; verifier?: string } = {};
  return {
    kept,
    provider: {
      redirectUrl: REDIRECT,
      clientMetadata: {
        client_name: "a client of MCP",
        redirect_uris: [REDIRECT],
        grant_types: ["authorization_code"],
        response_types: ["code"],
        token_endpoint_auth_method: "none",
      },
      clientInformation: () => kept.client,
      saveClientInformation: (client: object) => void (kept.client = client),
      tokens: () => kept.tokens,
      saveTokens: (tokens: object) => void (kept.tokens = tokens),
      redirectToAuthorization: opened,
      saveCodeVerifier: (verifier: string) => void (kept.verifier = verifier),
      codeVerifier: () => kept.verifier,
    },
  };
}

describe("the authorization of MCP", () => {
  it("leads the client of the SDK from a 401 to a token for this resource, and to its tool", async () => {
    const { Client } = await peer<ClientPart>(`${SDK}/client/index.js`);
    const { StreamableHTTPClientTransport } = await peer<ClientTransportPart>(`${SDK}/client/streamableHttp.js`);
    const { issuer, paths } = await authorizationServer("tools:call tools:admin");
    const upstream = await mcpServer();
    const config = (resource: string) =>
      oneService(upstream, {
        base_path: "/mcp",
        plugins: [
          {
            name: "jwt",
            config: {
              algs: ["RS256"],
              jwks_uri: `${issuer}/jwks`,
              iss: issuer,
              scopes: ["tools:call"],
              claims_to_headers: { sub: "X-User" },
              resource_metadata: {
                resource,
                authorization_servers: [issuer],
                scopes_supported: ["tools:call", "tools:admin"],
              },
            },
          },
        ],
      });
    // The resource has the port, which is known once the gateway listens.
    const { url, port, file } = await startBuilt(config("http://127.0.0.1:1/mcp"));
    const resource = `${url.replace(/\/$/, "")}/mcp`;
    writeFileSync(file, JSON.stringify(config(resource)));
    const metadata = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;
    await expect
      .poll(async () => ((await (await fetch(metadata)).json()) as { resource: string }).resource)
      .toBe(resource);

    let opened: URL | null = null;
    const { kept, provider } = memory((to) => void (opened = to));
    const first = new StreamableHTTPClientTransport(new URL(resource), { authProvider: provider });
    await expect(new Client({ name: "c", version: "1" }).connect(first)).rejects.toThrow(/Unauthorized/);
    const asked = opened! as URL;
    expect([asked.origin, asked.searchParams.get("resource"), asked.searchParams.get("scope")]).toEqual([
      issuer,
      resource,
      "tools:call",
    ]);
    const back = await browse(asked, issuer);
    expect(back.href).toMatch(/^http:\/\/127\.0\.0\.1:1\/callback\?code=/);
    await first.finishAuth(back.searchParams.get("code")!);
    expect(kept.tokens).toMatchObject({ token_type: "Bearer", scope: "tools:call" });

    const client = new Client({ name: "c", version: "1" });
    await client.connect(new StreamableHTTPClientTransport(new URL(resource), { authProvider: provider }));
    const { content } = await client.callTool({ name: "whoami", arguments: {} });
    expect(content[0]!.text).toBe("ada");
    await client.close();
    expect(paths).toEqual(expect.arrayContaining(["POST /reg", "GET /auth", "POST /token", "GET /jwks"]));

    // A token for another resource of the same server is of no use here.
    const other = `http://127.0.0.1:${port}/other`;
    asked.searchParams.set("resource", other);
    const code = (await browse(asked, issuer)).searchParams.get("code")!;
    const body = new URLSearchParams({
      grant_type: "authorization_code",
      code,
      redirect_uri: REDIRECT,
      client_id: (kept.client as { client_id: string }).client_id,
      code_verifier: kept.verifier!,
      resource: other,
    });
    const { access_token: stray } = (await (await fetch(`${issuer}/token`, { method: "POST", body })).json()) as {
      access_token: string;
    };
    const refused = await fetch(resource, { method: "POST", headers: { Authorization: `Bearer ${stray}` } });
    expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([
      401,
      expect.stringMatching(/error="invalid_token".*not for here.*resource_metadata="[^"]+\/mcp", scope="tools:call"/),
    ]);
  });
});

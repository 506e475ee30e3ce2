import { describe, expect, it } from "vitest";
import { configJsonSchema } from "../../lib/cli/schema.ts";
import { definePlugin, schema as s } from "../../lib/index.ts";
import { schemaRequest } from "../../lib/admin/schema_request.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { startAdmin } from "./harness.ts";

describe("GET /gateway/schema", () => {
  it("is what edge-gateway schema prints, to the byte", async () => {
    const { ask, session } = await startAdmin();
    const got = await ask("GET", "/gateway/schema", { headers: { cookie: await session() } });
    expect([got.status, got.headers["content-type"]]).toEqual([200, "application/json"]);
    expect(got.text).toBe(`${JSON.stringify(configJsonSchema(builtinPlugins), null, 2)}\n`);
  });

  it("has an ETag, and gives 304 to whoever has it, in whatever coding", async () => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    const { etag } = (await ask("GET", "/gateway/schema", { headers: { cookie } })).headers;
    expect(etag).toMatch(/^W\/"[0-9a-f]{12}"$/);
    const zipped = await schemaRequest({ headers: ["Accept-Encoding", "gzip"] } as never, {
      gateway: { pluginKinds: [] } as never,
    });
    expect([headerValue(zipped.headers, "content-encoding"), headerValue(zipped.headers, "etag")]).toEqual([
      "gzip",
      etag,
    ]);
    expect((zipped.body as Buffer).length).toBeLessThan(40_000);
    for (const tag of [etag!, `"other", ${etag!}`, "*"]) {
      const got = await ask("GET", "/gateway/schema", { headers: { cookie, "if-none-match": tag } });
      expect([got.status, got.headers.etag, got.text]).toEqual([304, etag, ""]);
    }
    expect((await ask("GET", "/gateway/schema", { headers: { cookie, "if-none-match": '"other"' } })).status).toBe(200);
  });

  it("needs a session, or credentials, and accepts GET and HEAD only", async () => {
    const { ask, session } = await startAdmin();
    expect((await ask("GET", "/gateway/schema")).status).toBe(401);
    const got = await ask("POST", "/gateway/schema", { headers: { cookie: await session() } });
    expect([got.status, got.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
  });

  it("has the kinds of modules in force, another tag with them, and each built-in kind once", async () => {
    const mine = definePlugin({ name: "mine", schema: s.object({ depth: s.integer() }), create: () => (next) => next });
    const replies = [];
    for (const pluginKinds of [[...builtinPlugins], [...builtinPlugins, mine]]) {
      replies.push(await schemaRequest({ headers: [] } as never, { gateway: { pluginKinds } as never }));
    }
    const [without, withMine] = replies.map(({ body }) => String(body as Buffer));
    expect([without!.includes('"depth"'), withMine!.includes('"depth"')]).toEqual([false, true]);
    expect(withMine).toBe(`${JSON.stringify(configJsonSchema([...builtinPlugins, mine]), null, 2)}\n`);
    expect(replies[0]!.headers).not.toEqual(replies[1]!.headers);
  });
});

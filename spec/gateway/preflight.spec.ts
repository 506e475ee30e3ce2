import { describe, expect, it } from "vitest";
import { createGateway, definePlugin, schema } from "../../lib/index.ts";
import { oneService } from "../support/gateway.ts";

describe("CORS preflights", () => {
  const own = (takes?: "preflights") =>
    definePlugin({
      name: "own",
      schema: schema.object({}),
      ...(takes === undefined ? {} : { takes }),
      create: () => () => (exchange) => ({ status: 204, headers: ["X-Asked", exchange.method], body: null }),
    });
  const ask = async (plugin: ReturnType<typeof own>, headers: Record<string, string>, others: { path: string; methods: string[] }[] = []) => {
    const routes = [{ path: "/x", methods: ["GET"], plugins: [{ name: "own" }] }, ...others];
    const gateway = createGateway({ config: oneService(9, { routes }), plugins: [plugin] });
    const { status, header } = await gateway.inject({ path: "/a/x", method: "OPTIONS", headers });
    await gateway.close(0);
    return [status, header("x-asked")];
  };
  const preflight = { Origin: "https://a.example", "Access-Control-Request-Method": "GET" };

  it("reach the route of the method they ask about, where a plugin takes them", async () => {
    expect(await ask(own("preflights"), preflight)).toEqual([204, "OPTIONS"]);
  });

  it("do so although another route takes OPTIONS", async () => {
    expect(await ask(own("preflights"), preflight, [{ path: "/{rest*}", methods: ["OPTIONS"] }])).toEqual([204, "OPTIONS"]);
  });

  it("get 405 where none does, and where they ask about another method", async () => {
    expect((await ask(own(), preflight))[0]).toBe(405);
    expect((await ask(own("preflights"), { ...preflight, "Access-Control-Request-Method": "PUT" }))[0]).toBe(405);
  });

  it("are no other OPTIONS requests", async () => {
    expect((await ask(own("preflights"), { Origin: "https://a.example" }))[0]).toBe(405);
    expect((await ask(own("preflights"), { "Access-Control-Request-Method": "GET" }))[0]).toBe(405);
  });
});

/** The migrations in `examples/kubernetes/`: the program imports them, accepts the result, and a gateway serves it. */
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { fileWith, program } from "../../support/process.ts";
import { serve } from "./kubernetes_objects.ts";

/** What the program makes of an example, which `validate` accepts. */
async function migrated(name: string) {
  const file = fileURLToPath(new URL(`../../../examples/kubernetes/${name}`, import.meta.url));
  const { code, stdout, stderr } = await program(["import", "kubernetes", file]).ended;
  const valid = await program(["validate", fileWith(stdout)]).ended;
  expect([code, valid.code, valid.stdout]).toEqual([0, 0, expect.stringContaining("is valid")]);
  return { ...(await serve({ ...JSON.parse(stdout), notes: [] })), listed: stderr };
}

describe("the examples of a migration from Kubernetes", () => {
  const HTTPS = { "X-Forwarded-Proto": "https", Host: "shop.example.com" };

  it("serve the HTTPRoutes of a Gateway as it does, and close what only it knows", async () => {
    const { send, listed } = await migrated("gateway-api.json");
    expect(await send("GET /api/1?x", { Host: "shop.example.com" })).toBe("301 https://shop.example.com/api/1?x");
    expect(await send("GET /any", { Host: "other.test" })).toBe("301 https://other.test/any");
    const counts: Record<string, number> = {};
    for (let i = 0; i < 10; i++) {
      const answer = await send("GET /api/orders/1", HTTPS);
      counts[answer] = (counts[answer] ?? 0) + 1;
    }
    expect(counts).toEqual({ "orders GET /v1/orders/1": 9, "orders-next GET /v1/orders/1": 1 });
    expect(await send("GET /api/orders/1", { ...HTTPS, "X-Canary": "on" })).toBe("orders-next GET /api/orders/1");
    expect(await send("GET /", HTTPS)).toBe("web GET /");
    expect(await send("GET /admin/users", HTTPS)).toBe("503");
    expect(listed).toContain('"ExtensionRef" may decide who passes, and is not carried over');
  });

  it("serve the Ingresses of ingress-nginx as it does, and close what needs a Secret", async () => {
    const { send, listed } = await migrated("ingress.json");
    expect(await send("GET /api/orders?x", { Host: "shop.example.com" })).toBe(
      "308 https://shop.example.com/api/orders?x",
    );
    expect(await send("GET /api/orders?x", HTTPS)).toBe("orders GET /orders?x");
    expect(await send("GET /", { Host: "admin.example.com" })).toBe("503");
    expect(listed).toContain('"nginx.ingress.kubernetes.io/auth-type" may decide who passes, and is not carried over');
  });
});

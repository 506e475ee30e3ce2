/** POST /gateway/acme/rollover: who may ask for it, and what is reported. A stand-in keeps the certificates. */
import { describe, expect, it } from "vitest";
import { Gateway } from "../../lib/embed/gateway.ts";
import { withPort, writable } from "./writable.ts";

const PATH = "/gateway/acme/rollover";
const acme = { directory: "https://ca.example/directory", hosts: ["shop.example"], terms_agreed: true };

async function keeping(config: object = { ...withPort(1), global: { acme } }) {
  const own = await writable(config);
  let refusal: string | null = null;
  let rolled = 0;
  Gateway.internalsOf(own.gateway).certificates = {
    async rollover() {
      if (refusal !== null) throw new Error(refusal);
      rolled++;
    },
    close: async () => {},
  };
  return { ...own, rolled: () => rolled, refuse: (why: string) => void (refusal = why) };
}

describe("POST /gateway/acme/rollover", () => {
  it("replaces the key, and logs who has asked for it", async () => {
    const { asAdmin, rolled, lines } = await keeping();
    const { status, json } = await asAdmin("POST", PATH);
    expect([status, json, rolled()]).toEqual([200, { directory: acme.directory }, 1]);
    expect(lines().filter(({ message }) => message === "admin change")).toMatchObject([
      { action: "rollover", directory: acme.directory, user: "ädmin" },
    ]);
  });

  it("is for administrators with the right to write, and for POST alone", async () => {
    const { asAdmin, asViewer, ask, rolled } = await keeping();
    expect((await asViewer("POST", PATH)).status).toBe(403);
    expect((await ask("POST", PATH)).status).toBe(401);
    expect((await asAdmin("GET", PATH)).status).toBe(405);
    expect(rolled()).toBe(0);
  });

  it("gets 409 with the reason where the key is not replaced, or there is no account, and logs no change", async () => {
    const { asAdmin, refuse, lines } = await keeping();
    refuse("an order is under way: try again once it has ended");
    const { status, json } = await asAdmin("POST", PATH);
    expect([status, json.code, json.detail]).toEqual([
      409,
      "conflict",
      "The replacement has failed: an order is under way: try again once it has ended",
    ]);
    expect(lines().some(({ message }) => message === "admin change")).toBe(false);
    const none = await writable();
    expect(await none.asAdmin("POST", PATH)).toMatchObject({
      status: 409,
      json: { detail: "The configuration in force does not have global.acme." },
    });
  });
});

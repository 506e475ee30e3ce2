/** Changes through the server of the management UI, as its pages send them. */
import { describe, expect, it } from "vitest";
import { digestOf, withPort, writable } from "../admin/writable.ts";
import { json, startManager } from "./harness.ts";

const text = (port: number) => JSON.stringify(withPort(port));

async function started() {
  const all = await writable(text(1));
  const { ask, port } = await startManager(all.port);
  const put = (body: string, headers: Record<string, string> = {}) =>
    ask("PUT", "/api/gateway/source", {
      body,
      headers: {
        Cookie: all.cookie,
        "Content-Type": "application/json",
        "If-Match": `"${digestOf(text(1))}"`,
        ...headers,
      },
    });
  return { ...all, ask, own: `http://127.0.0.1:${port}`, putThrough: put };
}

describe("PUT /api/gateway/source", () => {
  it("of a page of the management UI replaces the file, and its answer has the new ETag", async () => {
    const { putThrough, own, ask, cookie, content } = await started();
    const got = await putThrough(text(2), { Origin: own, "Sec-Fetch-Site": "same-origin" });
    expect([got.status, got.headers.etag, json(got).digest, content()]).toEqual([
      200,
      `"${digestOf(text(2))}"`,
      digestOf(text(2)),
      text(2),
    ]);
    const read = await ask("GET", "/api/gateway/source", { headers: { Cookie: cookie } });
    expect([read.status, read.headers.etag, read.body.toString()]).toEqual([200, `"${digestOf(text(2))}"`, text(2)]);
    expect((await putThrough(text(3), { Origin: own })).status).toBe(412);
  });

  it.each([
    ["of a page of another origin", { Origin: "http://evil.example" }],
    ["of a page of another port of this host", { Origin: "http://127.0.0.1:1" }],
    ["of a page without an origin", { Origin: "null" }],
    ["of another site, as the browser says", { "Sec-Fetch-Site": "cross-site" }],
    ["of a subdomain's page, as the browser says", { "Sec-Fetch-Site": "same-site" }],
  ])("%s is refused with 403, and the file stays", async (_title, headers) => {
    const { putThrough, content, gateway } = await started();
    const got = await putThrough(text(2), headers);
    expect([got.status, json(got).code, content(), gateway.digest]).toEqual([
      403,
      "forbidden",
      text(1),
      digestOf(text(1)),
    ]);
  });

  it("of more than 16 MiB is refused with 413 by its length, and the file stays", async () => {
    const { ask, cookie, content } = await started();
    const headers = {
      Cookie: cookie,
      "Content-Type": "application/json",
      "If-Match": `"${digestOf(text(1))}"`,
      "Content-Length": String(17 * 1024 * 1024),
    };
    const got = await ask("PUT", "/api/gateway/source", { headers });
    expect([got.status, json(got).code, content()]).toEqual([413, "body_too_large", text(1)]);
  });
});

/** Where in the file of the configuration something is that the admin interface reports. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { source, startAdmin, STATUS } from "./harness.ts";
import { withPort, writable } from "./writable.ts";

type Placed = readonly { readonly code: string; readonly path: string | null; readonly line: number | null; readonly column: number | null }[];

const route = (name: string, more: object = {}) => ({ name, path: `/${name}`, ...more });
const guarded = (...more: object[]) => withPort(1, { routes: [route("a", { plugins: [{ name: "key_auth", config: { key: "<key>" } }] }), ...more] });
const lined = (config: object) => JSON.stringify(config, null, 2);
/** Where a line of the text begins that has this. */
const placeOf = (text: string, part: string) => {
  const lines = text.split("\n");
  const i = lines.findIndex((line) => line.includes(part));
  return { line: i + 1, column: lines[i]!.search(/\S/) + 1 };
};

describe("a warning of GET /gateway/status, /gateway/now and /gateway/events", () => {
  it("has the line and column of its item in the text that is in force, for viewers too, and after a reload those of the new text", async () => {
    const text = lined(guarded());
    const { asAdmin, asViewer, gateway, file } = await writable(text);
    const warnings = async (as = asAdmin) => (await as("GET", "/gateway/status")).json.warnings as Placed;
    const key = text.split("\n").findIndex((line) => line.includes('"<key>"'));
    const place = { line: key + 1, column: text.split("\n")[key]!.indexOf('"<key>"') + 1 };
    expect(await warnings()).toMatchObject([{ code: "placeholder_secret", path: "services.s.routes.a.plugins.key_auth", ...place }]);
    expect(await warnings(asViewer)).toEqual(await warnings());
    expect((await asAdmin("GET", "/gateway/now")).json.status.warnings).toEqual(await warnings());
    writeFileSync(file, "{ broken");
    expect(await warnings()).toMatchObject([place]);
    writeFileSync(file, `\n\n${text}`);
    await gateway.reload();
    expect(await warnings()).toMatchObject([{ line: place.line + 2, column: place.column }]);
  });

  it("has the place of the service or upstream whose state it is about, also where their names have dots", async () => {
    const config = withPort(1, { name: "s.upstreams.u", upstreams: [{ id: "u.v", host: "127.0.0.1", port: 1 }, { id: "w", host: "127.0.0.1", port: 2 }] });
    const text = lined(config);
    const { asAdmin } = await writable(text);
    for (const id of ["u.v", "w"]) await asAdmin("POST", `/gateway/upstreams/s.upstreams.u/${id}`, { body: '{"state":"eject"}', headers: { "content-type": "application/json" } });
    const { warnings } = (await asAdmin("GET", "/gateway/status")).json as { readonly warnings: Placed };
    const [service, first, second] = ['"name": "s.upstreams.u"', '"id": "u.v"', '"id": "w"'].map((part) => ({ line: placeOf(text, part).line - 1, column: placeOf(text, part).column - 2 }));
    expect(warnings.map(({ code, line, column }) => [code, { line, column }])).toEqual([["no_upstream", service], ["upstream_taken_out", first], ["upstream_taken_out", second]]);
  });

  it("has the place of a global setting, and none where it is about no part of the text", async () => {
    const { asAdmin } = await writable(lined({ ...withPort(1, { plugins: [{ name: "quota", config: { limit: 1, per: "day" } }] }) }));
    const { warnings } = (await asAdmin("GET", "/gateway/status")).json as { readonly warnings: Placed };
    expect(warnings).toMatchObject([{ code: "quota_not_durable", path: null, line: null, column: null }]);
    const warning = { code: "circuit_open", path: "services.s", message: "Open.", example: null, remedy: "Wait.", service: "s", route: null } as const;
    const { ask, session } = await startAdmin({ source: { ...source, status: () => ({ ...STATUS, warnings: [warning] }) } });
    expect((await ask("GET", "/gateway/status", { headers: { cookie: await session() } })).json.warnings).toMatchObject([{ line: null, column: null }]);
  });
});

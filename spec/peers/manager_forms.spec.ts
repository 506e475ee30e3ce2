/**
 * The forms of the management UI that are made from the schema: any plugin kind, settings of items, and tests.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type Browser } from "./browser.ts";
import { allFaultsOf, heading, openOverview, remembered, until, upstream, type Open } from "./manager_pages.ts";
import { apply, goTo, shows } from "./manager_writing.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

async function shop(): Promise<Open> {
  const { port } = await upstream();
  const services = [
    {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ id: "v1", host: "127.0.0.1", port, request_headers: { "X-A": "1" } }],
      routes: [
        { name: "open", path: "/open", plugins: [{ name: "cors", config: { allow_origins: ["https://a.example"] } }] },
      ],
    },
  ];
  return openOverview(browser, { global: { trusted_proxies: ["127.0.0.1"] }, services } as never, {
    environment: { ADMIN_WRITE: "true" },
  });
}

const put = ({ page }: Open) => page.getByRole("button", { name: "Put into the draft" }).press("Enter");
/** Checks of the gateway wait until they are let go. */
const HELD = `{
  const send = fetch;
  window.held = [];
  window.fetch = (url, init) =>
    !url.endsWith("/gateway/validate") ? send(url, init) :
    new Promise((done) => held.push(() => send(url, init).then(async (answer) => {
      const text = await answer.text();
      done(new Response(text, answer));
    })));
}`;
const contentOf = ({ file }: Open) => JSON.parse(readFileSync(file, "utf8"));

describe("a plugin", () => {
  it(
    "is added at a route by keyboard: a kind with a sentence, " + "settings in groups and lists, and is applied",
    async () => {
      const opened = await shop();
      const { page, url, errors } = opened;
      await goTo(page, "#/add/plugin?of=shop&of=open", "Add a plugin");
      await page.getByText("Requires a signed JSON Web Token.").waitFor();
      expect(await page.locator("dl.pairs dt").count()).toBe(28);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("link", { name: "response_headers", exact: true }).press("Enter");
      await page.getByText("Kind: response_headers").waitFor();
      await page.getByRole("button", { name: "Add to set" }).press("Enter");
      // The new entry has the focus: its name, then its value.
      await page.keyboard.type("X-Shop");
      await page.keyboard.press("Tab");
      await page.keyboard.type("7");
      expect(await allFaultsOf(page)).toEqual([]);
      await put(opened);
      await heading(page, "Review");
      await apply(page);
      await shows(page, "In force by the one process.");
      expect(contentOf(opened).services[0].routes[0].plugins[1]).toEqual({
        name: "response_headers",
        config: { set: { "X-Shop": "7" } },
      });
      expect((await fetch(`${url}/shop/open`)).headers.get("x-shop")).toBe("7");
      expect(errors).toEqual([]);
    },
  );

  it("has errors of the gateway beside their fields, and secrets as references alone", async () => {
    const opened = await shop();
    const { page, errors } = opened;
    await goTo(page, "#/add/plugin?of=shop&kind=jwt", "Add a plugin");
    await page.getByLabel("secret", { exact: true }).fill("written-in-the-clear");
    await put(opened);
    await until(page, "document.activeElement.validity.patternMismatch");
    await goTo(page, "#/add/plugin?of=shop&kind=acl", "Add a plugin");
    await page.getByLabel("whitelist").fill("10.0.0.0/8\n10.0.0.0/99");
    await put(opened);
    await until(page, "document.activeElement.getAttribute('aria-invalid') === 'true'");
    const said = await page.evaluate<string>(
      "document.getElementById(document.activeElement.getAttribute('aria-describedby').split(' ')[1]).innerText",
    );
    expect(said).toContain("10.0.0.0/99");
    expect(await allFaultsOf(page)).toEqual([]);
    expect(contentOf(opened).services[0].plugins).toBeUndefined();
    // A refused text was answered with 422 or 200; nothing else went wrong.
    expect(errors.filter((each) => !each.includes("422"))).toEqual([]);
  });

  it(
    "is changed at its place, with the rest byte for byte, " + "and what the form cannot show is kept and led to",
    async () => {
      const { port } = await upstream();
      const text = `{
  "services": [ { "name": "shop", "base_path": "/shop",
      "upstreams": [ { "host": "127.0.0.1", "port": ${port} } ],
      "routes": [ { "name": "open",   "path": "/open", "plugins": [
        { "name": "rate_limit", "id": "per-ip", "config": { "limit_second": 5 } },
        { "name": "request_validation", "config": { "body": { "type": "object" }, "body_required": true } }
      ] } ] } ]
}
`;
      const opened = await openOverview(browser, text, { environment: { ADMIN_WRITE: "true" } });
      const { page, file, errors } = opened;
      await goTo(page, "#/add/plugin_settings?of=shop&of=open&of=per-ip", "Change a plugin");
      await page.getByText("Kind: rate_limit").waitFor();
      expect(await page.getByLabel("limit_second").inputValue()).toBe("5");
      await page.getByLabel("limit_second").fill("7");
      await put(opened);
      await heading(page, "Review");
      await apply(page);
      await shows(page, "In force by the one process.");
      expect(readFileSync(file, "utf8")).toBe(text.replace('"limit_second": 5', '"limit_second": 7'));
      await goTo(page, "#/add/plugin_settings?of=shop&of=open&of=request_validation", "Change a plugin");
      await page.getByText('{"type":"object"}').waitFor();
      await page.getByRole("link", { name: "Edit it in the text" }).click();
      await heading(page, "Edit");
      await until(page, "location.hash === '#/edit?line=6'");
      expect(errors).toEqual([]);
    },
  );
});

describe("a form", () => {
  it("asks the gateway once however often it is sent, and changes nothing once the user is elsewhere", async () => {
    const opened = await shop();
    const { page, errors } = opened;
    await page.evaluate(HELD);
    await goTo(page, "#/add/upstream", "Add an upstream");
    await page.getByLabel("host").fill("127.0.0.1");
    await page.getByLabel("port").fill("1");
    const send = "(form => { form.requestSubmit(); form.requestSubmit(); })(document.querySelector('main form'))";
    await page.evaluate(send);
    await page.evaluate(send);
    expect(await page.evaluate("held.length")).toBe(1);
    await goTo(page, "#/services", "Services");
    await page.evaluate("held[0]()");
    await goTo(page, "#/add/upstream", "Add an upstream");
    await page.getByLabel("host").waitFor();
    expect(await page.getByText("Draft:").count()).toBe(0);
    expect(errors).toEqual([]);
  });

  it("keeps a claim a number or makes it a switch, and shows a condition by its own alternative", async () => {
    const { port } = await upstream();
    const config = { alg: "HS256", secret: "${env:FORMS_SECRET}", claims: { level: 5, email_verified: "true" } };
    const match = { headers: { "X-A": { not: "x" } } };
    const routes = [{ name: "open", path: "/open", match, plugins: [{ name: "jwt", config }] }];
    const services = [{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port }], routes }];
    const { page, errors } = await openOverview(browser, JSON.stringify({ services }, null, 2), {
      environment: { ADMIN_WRITE: "true", FORMS_SECRET: "a-secret-of-at-least-32-characters" },
    });
    await goTo(page, "#/add/plugin_settings?of=shop&of=open&of=jwt", "Change a plugin");
    const claims = page.getByRole("group", { name: "claims" }).locator("textarea");
    expect([await claims.nth(0).inputValue(), await claims.nth(1).inputValue()]).toEqual(["5", '"true"']);
    await claims.nth(0).fill("6");
    await claims.nth(1).fill("true");
    await page.getByRole("button", { name: "Put into the draft" }).click();
    await heading(page, "Review");
    await shows(page, '"level": 6');
    await shows(page, '"email_verified": true');
    await goTo(page, "#/add/route_settings?of=shop&of=open", "Change a route");
    await page.getByText("match", { exact: true }).first().waitFor();
    expect(await page.getByLabel("not", { exact: false }).first().inputValue()).toBe("x");
    expect(errors).toEqual([]);
  });
});

describe("a test", () => {
  it("is begun with a remembered request, and is in the configuration after Apply", async () => {
    const opened = await shop();
    const { page, url, managerUrl, adminUrl, errors } = opened;
    await fetch(`${url}/shop/nothing`, { headers: { "X-Request-Id": "lost-1" } }).then((got) => got.arrayBuffer());
    await remembered(adminUrl, "lost-1");
    await page.goto(`${managerUrl}#/requests/lost-1`);
    await page.getByRole("button", { name: "Add a test" }).click();
    await heading(page, "Add a test");
    await page.getByLabel("url").waitFor();
    expect(await page.getByLabel("url").inputValue()).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/shop\/nothing$/);
    expect(await page.getByLabel("name required").inputValue()).toMatch(/^GET http.* gets 404 route_not_found$/);
    expect(await allFaultsOf(page)).toEqual([]);
    await put(opened);
    await heading(page, "Review");
    await shows(page, "1 test passed");
    await apply(page);
    await shows(page, "In force by the one process.");
    expect(contentOf(opened).tests[0].expect).toEqual({ status: 404, code: "route_not_found" });
    expect(errors).toEqual([]);
  });
});

describe("the map", () => {
  it("draws what leads where, says the same as a list, and leads to each page", async () => {
    const { page, managerUrl, errors } = await shop();
    await page.goto(`${managerUrl}#/map`);
    await page.getByText("The same as a list").click();
    await until(
      page,
      "document.querySelector('main details li').textContent === " +
        "'/shop leads to shop; routes: open: cors; upstreams: v1.'",
    );
    expect(await page.locator("main svg a").count()).toBe(4);
    expect(await allFaultsOf(page)).toEqual([]);
    await page.locator("main details").getByRole("link", { name: "v1" }).click();
    await heading(page, "Upstream v1");
    expect(errors).toEqual([]);
  });
});

describe("the documentation", () => {
  it("is found by the palette: what a code means, with its requests, and the text of a chapter", async () => {
    const { page, errors } = await shop();
    const find = async (text: string, option: RegExp) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Go to" }).fill(text);
      await page.getByRole("option", { name: option }).first().click();
    };
    await find("rate_limited", /^rate_limited Too many requests Code$/);
    await heading(page, "rate_limited");
    await page.getByText("Wait for").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("link", { name: "Requests with this code" }).click();
    await until(page, "location.hash === '#/requests?code=rate_limited'");
    await find("Cost request_validation", /^Cost .*Docs$/);
    await heading(page, "Cost");
    await page.getByText("## Cost").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    expect(errors).toEqual([]);
  });
});

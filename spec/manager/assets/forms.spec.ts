import { describe, expect, it } from "vitest";
import { endingIn, FORMS, listAt } from "../../../lib/manager/assets/forms.ts";
import { hashForForm, parseHash, queryIn } from "../../../lib/manager/assets/url_hash.ts";

describe("forms", () => {
  it.each(["a/b", "100%", "#/x?of=y&of=z", "a+b c", "%2F", "<img src=x onerror=alert(1)>", "☃ 🚀", ""])(
    "is led to by a link with the service %j chosen, and its route and group of that name",
    (name) => {
      const service = {
        name,
        plugins: [{ name: "acl" }, { name: "acl" }, { name: "acl", id: name }],
        routes: [{ name }, { path: name, methods: ["GET", "PUT"] }, { path: name }, { name: `${name}/${name}` }],
        split: [{ group: name, percent: 1 }],
      };
      const file = {
        services: [
          { name: `${name}/${name}` },
          { name: "other", routes: service.routes, split: service.split },
          service,
        ],
      };
      const chosenBy = (form: string, ...names: readonly string[]) => {
        const of = queryIn(hashForForm(form, ...names)).getAll("of");
        const choices = FORMS[form]!.place!.of(file);
        return choices.filter((choice) => JSON.stringify(choice.of) === JSON.stringify(of)).map(({ path }) => path);
      };
      expect(parseHash(hashForForm("limit", name, name))).toMatchObject({ page: "add", segments: ["limit"] });
      for (const form of ["route", "upstream", "limit"]) expect(chosenBy(form, name)).toEqual([["services", 2]]);
      expect(chosenBy("limit", name, name).at(0)).toEqual(["services", 2, "routes", 0]);
      expect(chosenBy("limit", name, `GET,PUT ${name}`)).toEqual([["services", 2, "routes", 1]]);
      expect(chosenBy("limit", name, `${name}/${name}`)).toEqual([["services", 2, "routes", 3]]);
      expect(chosenBy("share", name, name)).toEqual([["services", 2, "split", 0]]);
      expect(chosenBy("limit")).toEqual([["global"]]);
      expect(chosenBy("plugin_settings", name, "acl#2")).toEqual([["services", 2, "plugins", 1]]);
      if (name !== "") expect(chosenBy("plugin_settings", name, name)).toEqual([["services", 2, "plugins", 2]]);
      expect(chosenBy("limit", name, "gone")).toEqual([]);
    },
  );

  it("give the other keys of a caller an end in some days, and none a later one than it has", () => {
    const soon = new Date(Date.now() + 86_400_000).toISOString();
    const keys = [{ key: "a" }, { key: "b", expires_at: soon }, { key: "c", expires_at: "2999-01-01T00:00:00Z" }];
    const [first, second, third] = endingIn(7, keys) as readonly { readonly expires_at: string }[];
    expect(Date.parse(first!.expires_at) - Date.now()).toBeGreaterThan(6.9 * 86_400_000);
    expect([second, third]).toEqual([keys[1], { key: "c", expires_at: first!.expires_at }]);
  });

  it("say which callers are disabled, and what a canary has now", () => {
    const file = {
      callers: [{ id: "ada" }, { id: "bob", enabled: false }],
      services: [
        {
          name: "shop",
          split: [
            { group: "canary", percent: 5 },
            { group: "canary", percent: 9, match: {} },
          ],
        },
      ],
    };
    expect(FORMS.caller_state!.place!.of(file).map(({ label }) => label)).toEqual(["ada", "bob, disabled"]);
    expect(FORMS.share!.place!.of(file).map(({ label }) => label)).toEqual([
      "shop / canary, now 5 %",
      "shop / canary, by conditions, now 9 %",
    ]);
  });

  it("survive a file that is no configuration, and offer what there is", () => {
    for (const file of [
      ...[null, 1, "x", []],
      { services: 7 },
      { services: [null, 1, {}, { name: 5, routes: {}, split: [null], plugins: [null, 3] }] },
      JSON.parse('{"__proto__": {"services": [{"name": "x"}]}}'),
    ]) {
      for (const { place } of Object.values(FORMS)) expect(Array.isArray(place?.of(file) ?? [])).toBe(true);
      expect(listAt(file, ["services", 0, "routes"])).toEqual([]);
    }
  });
});

/**
 * The editor of the configuration in a browser: typing, completion, errors where they stand, finding, undo, large
 * texts, and what others write.
 */
import { describe, expect, it } from "vitest";
import { soon, type Page } from "./browser.ts";
import { ACCEPTED, atCaret, caretBehind, drawn, openEditor, openStandIn, settled } from "./editor_pages.ts";
import { allFaultsOf, endSession, heading, shareGateway, signIn, until } from "./manager_pages.ts";

const shared = shareGateway({ ADMIN_WRITE: "true" });
const open = (text: string) => openEditor(shared, text);

const TEXT = `{
  "services": [
    {
      "name": "shop",
      "base_path": "/shop",
      "upstreams": [{ "host": "127.0.0.1", "port": 9 }],
      "routes": [{ "name": "items", "path": "/items" }],
      "protocol": "http"
    }
  ]
}
`;

describe("typing", () => {
  it("replaces nothing once the page is open, nor behind a link to a line, which is marked", async () => {
    const { page, field } = await open(TEXT);
    await settled(page);
    await page.keyboard.type(" ");
    expect(await field.inputValue()).toBe(` ${TEXT}`);
    await page.keyboard.press("Backspace");
    await page.evaluate('location.hash = "#/edit?line=4&column=15"');
    await until(page, 'document.querySelector(".editor__row[data-current]")?.textContent.includes("shop") === true');
    await page.keyboard.type(" ");
    expect(await field.inputValue()).toBe(TEXT.replace('"shop"', ' "shop"'));
  });

  it("shows the text in colour with line numbers, and indents new lines", async () => {
    const { page, field, errors } = await open(TEXT);
    expect(await drawn(page, "key")).toEqual([
      '"services"',
      '"name"',
      '"base_path"',
      '"upstreams"',
      '"host"',
      '"port"',
      '"routes"',
      '"name"',
      '"path"',
      '"protocol"',
    ]);
    expect(await drawn(page, "text")).toEqual(['"shop"', '"/shop"', '"127.0.0.1"', '"items"', '"/items"', '"http"']);
    expect((await page.locator(".editor__numbers").innerText()).split(/\s+/).filter((text) => text !== "")).toEqual(
      TEXT.split("\n").map((_line, i) => String(i + 1)),
    );
    await caretBehind(page, '"http"');
    await page.keyboard.type(',\n"x": 5');
    await until(page, `[...document.querySelectorAll(".editor__atom")].some(({ textContent }) => textContent === "5")`);
    expect(await field.inputValue()).toBe(TEXT.replace('"http"', '"http",\n      "x": 5'));
    expect(errors).toEqual([]);
  });

  it("can be undone and redone by keyboard and by button, what the editor inserted included", async () => {
    const { page, field } = await open(TEXT);
    await caretBehind(page, '"http"');
    await page.keyboard.type(",");
    await page.keyboard.press("Enter");
    await page.keyboard.type('"pres');
    await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
    await page.keyboard.press("Enter");
    const done = TEXT.replace('"http"', '"http",\n      "preserve_host": ');
    expect(await field.inputValue()).toBe(done);
    for (let i = 0; i < 12 && (await field.inputValue()) !== TEXT; i++) await page.keyboard.press("Control+z");
    expect(await field.inputValue()).toBe(TEXT);
    for (let i = 0; i < 12 && (await field.inputValue()) !== done; i++)
      await page.getByRole("button", { name: "Redo" }).click();
    expect(await field.inputValue()).toBe(done);
    await page.getByRole("button", { name: "Discard changes" }).click();
    expect(await field.inputValue()).toBe(TEXT);
    await page.getByRole("button", { name: "Undo" }).click();
    expect(await field.inputValue()).toBe(done);
  });

  it("leaves the field with Tab, shifts selected lines with Tab, and says so", async () => {
    const { page, field } = await open(TEXT);
    await page.getByText("Tab leaves the text.").waitFor();
    await caretBehind(page, '"name": "shop",\n      "base', true);
    await page.keyboard.press("Tab");
    expect(await field.inputValue()).toBe(
      TEXT.replace('      "name"', '        "name"').replace('      "base_path"', '        "base_path"'),
    );
    await page.keyboard.press("Shift+Tab");
    expect(await field.inputValue()).toBe(TEXT);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Shift+Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Download");
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.id")).toBe("editor-text");
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.id")).not.toBe("editor-text");
    expect(await field.inputValue()).toBe(TEXT);
  });

  it("keeps every byte of the file that was not edited: its line ends and its byte order mark", async () => {
    const source = `\uFEFF${TEXT.replaceAll("\n", "\r\n")}`;
    const { page, validated } = await open(source);
    await expect.poll(() => validated).toEqual([source]);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    await expect.poll(() => validated.at(-1)).toBe(source.replace("shop", "shops"));
    await page.keyboard.press("Backspace");
    await expect.poll(() => validated.at(-1)).toBe(source);
  });
});

describe("completion and help", () => {
  it("suggests fields and values at the caret, chosen by keyboard alone and named for screen readers", async () => {
    const { page, field } = await open(TEXT);
    await caretBehind(page, '"name": "shop",');
    await page.keyboard.press("Enter");
    await page.keyboard.press("Control+Space");
    const options = page.getByRole("option");
    await options.first().waitFor();
    // The fields of a service but for those that it has.
    const fields = (await options.allInnerTexts()).map((text) => text.split(" ")[0]);
    expect(fields).toEqual(expect.arrayContaining(["hosts", "split", "timeouts", "preserve_host"]));
    for (const present of ["name", "base_path", "upstreams", "routes", "protocol"])
      expect(fields).not.toContain(present);
    await page.keyboard.type('"s');
    await soon(async () => (await options.allInnerTexts()).map((text) => text.split(" ")[0]).slice(0, 2)).toEqual([
      "sticky",
      "split",
    ]);
    const chosen = () =>
      page.evaluate(
        `document.getElementById(document.querySelector("textarea").getAttribute("aria-activedescendant"))` +
          `?.getAttribute("aria-selected")`,
      );
    expect(await chosen()).toBe("true");
    await page.keyboard.press("ArrowDown");
    expect([await chosen(), await page.locator("[role=option][aria-selected=true]").innerText()]).toEqual([
      "true",
      "split Percentages of the requests that go to groups of upstreams.",
    ]);
    await page.keyboard.press("Tab");
    expect(await field.inputValue()).toContain('"shop",\n      "split": []\n');
    expect(await page.getByRole("listbox").count()).toBe(0);
    expect(await field.getAttribute("aria-activedescendant")).toBeNull();
    await caretBehind(page, '"protocol": "http"');
    for (let i = 0; i < 6; i++) await page.keyboard.press("Backspace");
    await page.keyboard.type('"h2');
    await page.getByRole("option", { name: "h2c" }).click();
    expect(await field.inputValue()).toContain('"protocol": "h2c"');
    await page.keyboard.press("Control+Space");
    await options.first().waitFor();
    await page.keyboard.press("Escape");
    await until(page, `document.querySelector("[role=listbox]").checkVisibility() === false`);
  });

  it(
    "choose of what is suggested for the text of this moment, however quickly it was typed, " +
      "and keep what has been chosen",
    async () => {
      const { page, field, validated } = await open(TEXT);
      await settled(page);
      // In one turn of the page, so that nothing has read the text between.
      const quickly = (...acts: readonly string[]) =>
        page.evaluate(`(() => {
      const field = document.querySelector("textarea");
      const type = (text) => document.execCommand("insertText", false, text);
      const press = (key, more) => field.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true, ...more \
}));
      ${acts.join(";\n")};
    })()`);
      await caretBehind(page, '"name": "shop",');
      await quickly('press("Enter")', 'press(" ", { ctrlKey: true })', 'press("ArrowDown")');
      // The text that Enter has changed is read, and checked, a little later.
      await expect.poll(() => validated.length).toBe(2);
      expect(await page.locator("[role=option][aria-selected=true]").innerText()).toBe(
        await page.getByRole("option").nth(1).innerText(),
      );
      await page.keyboard.press("Escape");
      for (const act of [
        'press("Tab")',
        'press("Enter")',
        `[...document.querySelectorAll("[role=option]")].find(({ textContent }) ` +
          `=> textContent.startsWith("timeouts")).dispatchEvent(new PointerEvent("pointerdown"))`,
      ]) {
        await page.keyboard.type('"o');
        await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
        await quickly('type("u")', act);
        expect(await field.inputValue()).toContain('"shop",\n      "timeouts": {}\n');
        for (let i = 0; i < 12 && !(await field.inputValue()).includes('"shop",\n      \n'); i++)
          await page.keyboard.press("Control+z");
      }
      await page.keyboard.type('"o');
      await page.getByRole("option", { name: /^preserve_host/ }).waitFor();
      // Nothing is suggested for this text.
      await quickly('type("q")', 'press("Enter")');
      expect(await field.inputValue()).toContain('"shop",\n      "oq\n');
    },
  );

  it("explains the field at the caret and below the pointer", async () => {
    const { page } = await open(TEXT);
    await caretBehind(page, '"proto');
    const help = page.locator(".editor__help");
    await help
      .filter({
        hasText:
          'services[0].protocolProtocol used towards upstreams.one of "http", "https", "h2c", "h2" · default "http"',
      })
      .waitFor();
    await page.evaluate(`(() => {
      const { left, top, width, height } = [...document.querySelectorAll(".editor__key")].find(({ textContent }) => \
textContent === '"name"').getBoundingClientRect();
      document.querySelector("textarea").dispatchEvent(new PointerEvent("pointermove", { clientX: left + width / 2, \
clientY: top + height / 2 }));
    })()`);
    await help.filter({ hasText: /^services\[0\]\.name.*string from 1 to 200 characters/ }).waitFor();
  });
});

describe("problems", () => {
  it("are marked where they stand: an error of syntax at once, the rest as the gateway says", async () => {
    // A stand-in, because what is drawn before the gateway has answered is looked at.
    let answer!: (reply: readonly [number, unknown]) => void;
    const { page, field, standIn, errors } = await openStandIn(shared.browser, TEXT);
    standIn.validate = () => new Promise((resolve) => (answer = resolve));
    await caretBehind(page, '"http"');
    await page.keyboard.type(",");
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    expect(await drawn(page, "error")).toEqual([","]);
    await page.getByText("remove the trailing comma").first().waitFor();
    await expect.poll(() => standIn.validated.length).toBe(2);
    answer([
      200,
      {
        ...ACCEPTED,
        outcome: "refused",
        issues: [{ path: "services[0].name", line: 4, column: 15, message: "a name of the gateway's choice" }],
      },
    ]);
    await settled(page);
    expect(await drawn(page, "error")).toEqual(['"shop"']);
    expect(await page.locator(".editor__problem").allInnerTexts()).toEqual([
      "Error\nLine 4, column 15\nservices[0].name: a name of the gateway's choice",
    ]);
    await page.getByText("Checked by the gateway: one error, no warnings.").waitFor();
    // Text before and on other lines moves the mark until the next reply.
    await caretBehind(page, "{\n");
    await page.keyboard.type("\n\n");
    await until(
      page,
      `[...document.querySelectorAll(".editor__problem button")].some(({ textContent }) ` +
        `=> textContent === "Line 6, column 15")`,
    );
    await page.getByRole("button", { name: "Line 6, column 15" }).focus();
    await page.keyboard.press("Enter");
    expect([await page.evaluate("document.activeElement.id"), await atCaret(page)]).toEqual(["editor-text", '"shop"']);
    await page.locator(".editor__help").filter({ hasText: "a name of the gateway's choice" }).waitFor();
    expect(await field.inputValue()).toContain("shop");
    expect(errors).toEqual([]);
  });

  it("are reached with F8 and Shift+F8", async () => {
    const { page } = await open(
      TEXT.replace('"name": "shop"', '"protocol": "htp"').replace('"protocol": "http"', '"name": 5'),
    );
    await settled(page);
    await caretBehind(page, "{\n");
    const seen = [];
    for (const key of ["F8", "F8", "F8", "Shift+F8"]) {
      await page.keyboard.press(key);
      seen.push(await atCaret(page));
    }
    expect(seen).toEqual(['"htp"', "5", '"htp"', "5"]);
  });

  it("are asked for again when the gateway is busy, and the page says that the text is not checked", async () => {
    // A stand-in, because the gateway is busy when the test says so.
    let isBusy = false;
    const { page, standIn } = await openStandIn(shared.browser, TEXT, {
      validate: () =>
        isBusy
          ? [503, { status: 503, code: "overloaded", detail: "Other texts are being checked." }, { "Retry-After": "1" }]
          : [200, ACCEPTED],
    });
    isBusy = true;
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    await page.getByText("Not checked by the gateway. Other texts are being checked.").waitFor();
    isBusy = false;
    await settled(page);
    expect(standIn.validated.at(-1)).toContain("shops");
  });
});

describe("finding", () => {
  it("goes through the matches with Enter, counts them, and gives the focus back", async () => {
    const { page, field } = await open(TEXT);
    await field.focus();
    await page.keyboard.press("Control+f");
    await page.keyboard.type('ITEMS",');
    await page.getByText("1 of 1", { exact: true }).waitFor();
    for (const _ of '",') await page.keyboard.press("Backspace");
    await page.getByText("1 of 2", { exact: true }).waitFor();
    expect([await drawn(page, "found"), await drawn(page, "current")]).toEqual([["items"], ["items"]]);
    await page.keyboard.press("Shift+Enter");
    await page.getByText("2 of 2", { exact: true }).waitFor();
    for (const place of ["1 of 2", "2 of 2"]) {
      await page.keyboard.press("Enter");
      await page.getByText(place, { exact: true }).waitFor();
    }
    await page.keyboard.type("nothing of this");
    await page.getByText("Not found", { exact: true }).waitFor();
    await page.keyboard.press("Escape");
    expect(await page.evaluate("document.activeElement.id")).toBe("editor-text");
    expect(await drawn(page, "found")).toEqual([]);
  });
});

describe("large texts", () => {
  const routes = Array.from({ length: 1250 }, (_, i) => ({ name: `route-${i}`, path: `/${i}` }));
  const LARGE = JSON.stringify(
    { services: [{ name: "shop", base_path: "/", upstreams: [{ host: "127.0.0.1", port: 9 }], routes }] },
    null,
    2,
  );
  const LINES = LARGE.split("\n");
  const lineOf = (part: string) => LINES.findIndex((line) => line.includes(part)) + 1;
  const status = (page: Page) => page.locator("[role=search] [role=status]").innerText();
  const find = async (page: Page, what: string) => {
    await page.keyboard.press("Control+f");
    await page.keyboard.type(what);
    await expect.poll(() => status(page)).toMatch(/ of /);
    await page.keyboard.press("Escape");
  };
  /** What Ctrl+C takes. */
  const copied = async (page: Page) => {
    await page.evaluate(
      `window.addEventListener("copy", ({ clipboardData }) => (window.taken = clipboardData.getData("text/plain")))`,
    );
    await page.keyboard.press("Control+c");
    return page.evaluate<string>("window.taken");
  };

  it("are held and drawn only around the place that is seen, and are edited everywhere", async () => {
    expect(LINES.length).toBeGreaterThan(5000);
    const { page, field, validated } = await open(LARGE);
    await field.focus();
    await page.keyboard.press("Control+End");
    await until(page, `document.querySelector(".editor__numbers").textContent.includes("${LINES.length}")`);
    const held = async () => {
      const rows = await page.evaluate<number>(`document.querySelectorAll(".editor__row").length`);
      return [rows < 100, (await field.inputValue()).split("\n").length < 200];
    };
    expect(await held()).toEqual([true, true]);
    await page.keyboard.press("Backspace");
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    await expect.poll(() => validated.at(-1)?.length).toBe(LARGE.length - 1);
    // Scrolling does not move the caret: what is typed goes where it is, and is seen there.
    await page.evaluate(`document.querySelector(".editor__scroller").scrollTop = 40_000`);
    await until(page, `document.querySelector("textarea").value.includes('"route-${Math.floor(2000 / 4) - 3}"')`);
    expect(await held()).toEqual([true, true]);
    await page.keyboard.type("}");
    await until(page, `document.querySelector(".editor__row[data-current]")?.textContent === "}"`);
    await expect.poll(() => validated.at(-1)).toBe(LARGE);
    for (let i = 0; i < 30; i++) await page.keyboard.press("PageUp");
    await page.keyboard.press("Control+Home");
    await page.keyboard.type(" ");
    await expect.poll(() => validated.at(-1)).toBe(` ${LARGE}`);
    for (let i = 0; i < 3; i++) await page.keyboard.press("Control+z");
    await expect.poll(() => validated.at(-1)).toBe(LARGE);
    await until(page, `document.querySelector(".editor__row[data-current]")?.textContent === "}"`);
  });

  it("are selected, copied, cut, pasted and replaced whole or in parts larger than what the field holds", async () => {
    const { page, field, validated } = await open(LARGE);
    await settled(page);
    await page.keyboard.press("Control+a");
    expect(await copied(page)).toBe(LARGE);
    // A selection from one place to another that is far away.
    await find(page, '"route-100"');
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("Shift+Control+End");
    await page.keyboard.press("Shift+ArrowLeft");
    const part = LARGE.slice(LARGE.indexOf('"route-100"'), -1);
    expect(await copied(page)).toBe(part);
    await page.keyboard.press("Control+x");
    await expect.poll(() => validated.at(-1)).toBe(LARGE.replace(part, ""));
    await page.keyboard.press("Control+v");
    await settled(page);
    expect(await atCaret(page)).toBe("}");
    await page.keyboard.press("Control+Home");
    await page.keyboard.press("Shift+Control+End");
    await page.keyboard.type("{");
    expect(await field.inputValue()).toBe("{");
    await page.keyboard.press("Control+z");
    await settled(page);
    await page.keyboard.press("Control+a");
    expect(await copied(page)).toBe(LARGE);
    await page.keyboard.press("ArrowLeft");
    expect(await atCaret(page)).toBe("{");
  });

  it("are explained, completed, found and counted at places that the field has not held before", async () => {
    const { page, field } = await open(LARGE);
    await settled(page);
    await find(page, '"route-1111"');
    const help = page.locator(".editor__help");
    await help.filter({ hasText: "services[0].routes[1111].name" }).waitFor();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.type(', "meth');
    await page.getByRole("option", { name: /^methods/ }).waitFor();
    await page.keyboard.press("Enter");
    expect(await field.inputValue()).toContain('"name": "route-1111", "methods": []');
    await find(page, ":12");
    await until(
      page,
      `document.querySelector(".editor__row[data-current]")?.textContent.includes("${LINES[11]!.trim().slice(1, 5)}")`,
    );
    await page.keyboard.press("Home");
    await page.keyboard.type("x");
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    await find(page, `:${lineOf('"route-900"')}`);
    await page.keyboard.press("F8");
    await until(page, `document.querySelector(".editor__row[data-current]")?.textContent.startsWith("x")`);
    await page.getByRole("button", { name: "Line 12, column 1" }).waitFor();
  });

  it("of one line are shown without colours", async () => {
    const { page } = await open(`{"a": "${"x".repeat(6000)}"}`);
    expect([
      await drawn(page, "text"),
      await page.evaluate(`getComputedStyle(document.querySelector("textarea")).color !== "rgba(0, 0, 0, 0)"`),
    ]).toEqual([[], true]);
  });
});

describe("what others have written", () => {
  const EVIL = `<img src=x onerror="window.caught = true"><script>window.caught = true</script>`;

  it(
    "is text and never code: in the file, in its names as suggestions, in the schema, " +
      "and in what the gateway says",
    async () => {
      // A stand-in, because no gateway says this by itself.
      const id = { type: "object", properties: { id: { type: "string" } } };
      const service = { type: "object", properties: { name: { type: "string" }, caller: { type: "string" } } };
      const properties = {
        callers: { type: "array", items: id },
        services: { type: "array", items: service },
        [EVIL]: { description: EVIL, enum: [EVIL], default: EVIL, pattern: EVIL },
      };
      const schema = { type: "object", properties };
      const text = JSON.stringify(
        { callers: [{ id: EVIL }], services: [{ name: EVIL, caller: "" }], [EVIL]: "" },
        null,
        2,
      );
      const problem = { line: 3, column: 7, path: EVIL, message: EVIL };
      const { page } = await openStandIn(shared.browser, text, {
        schema,
        validate: () => [
          200,
          {
            ...ACCEPTED,
            issues: [problem, { ...problem, file: EVIL }],
            warnings: [{ code: EVIL, ...problem, remedy: EVIL, service: null, route: null }],
          },
        ],
      });
      const option = page.getByRole("option", { name: EVIL });
      await caretBehind(page, '"caller": "');
      await page.keyboard.press("Control+Space");
      await option.first().waitFor();
      await page.keyboard.press("Enter");
      await caretBehind(page, `${JSON.stringify(EVIL)}: "`);
      await page.keyboard.press("Control+Space");
      await option.first().waitFor();
      await page.keyboard.press("Escape");
      await page.locator(".editor__help").filter({ hasText: EVIL }).waitFor();
      await page.keyboard.press("F8");
      expect(
        await page.evaluate(`[window.caught === undefined, document.querySelectorAll("main img, main script").length]`),
      ).toEqual([true, 0]);
    },
  );
});

describe("a file that was changed by somebody else", () => {
  const OTHER = TEXT.replace("shop", "store");

  it("is followed by a text that nobody has edited", async () => {
    const { page, field } = await open(TEXT);
    await shared.put(OTHER);
    await until(page, `document.querySelector("textarea").value.includes("store")`);
    expect(await field.inputValue()).toBe(OTHER);
  });

  it("is reported beside a text that was edited, which stays until its changes are discarded", async () => {
    const { page, field } = await open(TEXT);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    await shared.put(OTHER);
    await page.getByText("The file has been changed since you began.").waitFor();
    expect(await field.inputValue()).toBe(TEXT.replace("shop", "shops"));
    await page.getByRole("button", { name: "Discard changes" }).click();
    await page.getByText("The file has been changed since you began.").waitFor({ state: "detached" });
    await until(page, `document.querySelector("textarea").value.includes("store")`);
    expect(await field.inputValue()).toBe(OTHER);
  });
});

describe("a session that ends while the text is edited", () => {
  it("leads to the login and back to the text, which is as it was, with what was typed after the end", async () => {
    const { page, field } = await open(TEXT);
    await caretBehind(page, '"shop');
    await page.keyboard.type("s");
    // The check of what is typed now finds no session.
    await endSession(page, async () => {
      await caretBehind(page, '"items');
      await page.keyboard.type("2");
    });
    await signIn(page);
    await heading(page, "Edit");
    await settled(page);
    expect(await field.inputValue()).toBe(TEXT.replace('"shop', '"shops').replace('"items', '"items2'));
  });
});

describe("for everybody", () => {
  it("the page has names, roles, contrast and room, with problems, suggestions and the find bar", async () => {
    // A warning and a test come with a text that is accepted.
    const { page, field } = await open(
      TEXT.replace(
        "  ]\n}",
        `  ],\n  "tests": [{ "name": "open", "request": { "url": "/shop/items" }, "expect": { "status": ` +
          `200 } }],\n  "callers": [{ "id": "nobody" }]\n}`,
      ),
    );
    await page.getByText(/^Checked by the gateway: no errors, one warning\. Tests: 1 passed\./).waitFor();
    expect(await field.getAttribute("aria-describedby")).toBe("editor-keys");
    await field.focus();
    await page.keyboard.press("Control+f");
    await page.keyboard.type("shop");
    await caretBehind(page, '"http"');
    await page.keyboard.type(',"');
    await page.getByRole("option").first().waitFor();
    await until(page, `document.querySelector("textarea").getAttribute("aria-invalid") === "true"`);
    expect(await allFaultsOf(page)).toEqual([]);
  });
});

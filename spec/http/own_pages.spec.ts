import { describe, expect, it } from "vitest";
import { isForeign } from "../../lib/http/own_pages.ts";

describe("isForeign", () => {
  it.each([
    ["no browser: no Origin, no Fetch Metadata", "http", "localhost:5173", [], false],
    ["the page's own origin", "http", "localhost:5173", ["Origin", "http://localhost:5173"], false],
    ["the host written in capitals", "http", "LOCALHOST:5173", ["Origin", "http://localhost:5173"], false],
    ["another port", "http", "localhost:5173", ["Origin", "http://localhost:5174"], true],
    ["another host", "http", "localhost:5173", ["Origin", "http://evil.example"], true],
    ["a host that begins alike", "http", "localhost:5173", ["Origin", "http://localhost:51730"], true],
    ["a host that ends alike", "http", "ui.example", ["Origin", "http://evil-ui.example"], true],
    ["an opaque origin", "http", "localhost:5173", ["Origin", "null"], true],
    ["an empty origin", "http", "localhost:5173", ["Origin", ""], true],
    ["an origin without a host, for a request without one", "http", "", ["Origin", "file://"], true],
    [
      "default ports on either side, TLS taken off by a proxy",
      "http",
      "ui.example:443",
      ["Origin", "https://ui.example"],
      false,
    ],
    ["TLS taken off by a proxy", "http", "ui.example", ["Origin", "https://ui.example"], false],
    ["its own TLS", "https", "ui.example:5173", ["Origin", "https://ui.example:5173"], false],
    [
      "a page that came without the TLS that is there",
      "https",
      "ui.example:5173",
      ["Origin", "http://ui.example:5173"],
      true,
    ],
    ["the wrong default port", "http", "ui.example:80", ["Origin", "https://ui.example"], true],
    ["an extension", "http", "localhost:5173", ["Origin", "chrome-extension://abc"], true],
    [
      "two origins, one of them its own",
      "http",
      "localhost:5173",
      ["Origin", "http://localhost:5173", "Origin", "http://evil.example"],
      true,
    ],
    [
      "Fetch Metadata: its own page, behind a proxy that changed Host",
      "http",
      "10.0.0.1:5173",
      ["Origin", "https://ui.example", "Sec-Fetch-Site", "same-origin"],
      false,
    ],
    ["Fetch Metadata: typed by the user", "http", "localhost:5173", ["Sec-Fetch-Site", "none"], false],
    ["Fetch Metadata: another site", "http", "localhost:5173", ["Sec-Fetch-Site", "cross-site"], true],
    [
      "Fetch Metadata: another site under this origin",
      "http",
      "localhost:5173",
      ["Origin", "http://localhost:5173", "Sec-Fetch-Site", "cross-site"],
      true,
    ],
    ["Fetch Metadata: another port of the same site", "http", "localhost:5173", ["Sec-Fetch-Site", "same-site"], true],
    [
      "Fetch Metadata: two words",
      "http",
      "localhost:5173",
      ["Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"],
      true,
    ],
    ["Fetch Metadata: a word of a later standard", "http", "localhost:5173", ["Sec-Fetch-Site", "near-site"], true],
  ] as const)("recognises %s", (_what, scheme, authority, headers, foreign) => {
    expect(isForeign({ headers, scheme }, authority)).toBe(foreign);
  });
});

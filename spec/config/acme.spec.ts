/** The schema of `global.acme`. */
import { describe, expect, it } from "vitest";
import * as s from "../../lib/config/schema.ts";
import { SHOP } from "../support/more_certs.ts";
import { CA } from "../support/certs.ts";
import { loadConfig } from "../support/schema.ts";

const ACME = { directory: "https://ca.example/directory", hosts: ["shop.example"], terms_agreed: true };
const files: Readonly<Record<string, string>> = {
  "/ca.pem": CA.cert,
  "/shop.crt": SHOP.cert,
  "/shop.key": SHOP.key,
  "/none": "hush",
};
const readFile = (path: string) => {
  if (files[path] === undefined) throw Object.assign(new Error(path), { code: "ENOENT" });
  return files[path];
};
const load = (acme: object, global: object = {}) =>
  loadConfig(
    { value: { global: { acme: { ...ACME, ...acme }, ...global }, services: [] } },
    { kinds: [], environment: { KEY: "c2VjcmV0" }, readFile },
  );
const issuesOf = (acme: object, global: object = {}) => {
  const result = load(acme, global);
  return result.ok ? [] : result.issues.map(({ at, message }) => `${s.formatPath(at)}: ${message}`);
};

describe("global.acme", () => {
  it("has defaults, and none of its own: a configuration without it orders nothing", () => {
    const result = load({});
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    expect(result.config.global.acme).toEqual({
      directory: "https://ca.example/directory",
      hosts: ["shop.example"],
      termsAgreed: true,
      challenge: "http-01",
      hostsAllowed: [],
    });
    const none = loadConfig({ value: { services: [] } }, { kinds: [], environment: {}, readFile });
    expect(none.ok && none.config.global.acme).toBeUndefined();
  });

  it("takes everything that it has; hosts come in lower case, and the key of an account is a secret", () => {
    const all = {
      email: "ops@shop.example",
      hosts: ["Shop.Example", "192.0.2.7", "2001:DB8::7"],
      ca: "/ca.pem",
      challenge: "tls-alpn-01",
      eab: { kid: "account-7", hmac_key: "${env:KEY}" },
      profile: "shortlived",
      hosts_allowed: ["API.ca.example"],
    };
    const result = load(all);
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    expect(result.config.global.acme).toMatchObject({
      email: "ops@shop.example",
      hosts: ["shop.example", "192.0.2.7", "2001:db8::7"],
      ca: { path: "/ca.pem" },
      challenge: "tls-alpn-01",
      eab: { kid: "account-7", hmacKey: "c2VjcmV0" },
      profile: "shortlived",
      hostsAllowed: ["api.ca.example"],
    });
    const literal = load({ eab: { kid: "account-7", hmac_key: "c2VjcmV0" } });
    if (!literal.ok) throw new Error(JSON.stringify(literal.issues));
    expect(literal.secrets.marked.map(({ at }) => s.formatPath(at))).toEqual(["global.acme.eab.hmac_key"]);
  });

  const many = Array.from({ length: 101 }, (_, i) => `h${i}.example`);
  it.each<[what: string, acme: object, issue: string | RegExp]>([
    ["terms_agreed is false", { terms_agreed: false }, "terms_agreed: expected true: certificates are ordered once"],
    ["terms_agreed is missing", { terms_agreed: undefined }, "terms_agreed: is required"],
    ["terms_agreed is a text", { terms_agreed: "true" }, "terms_agreed: expected true or false"],
    ["a host is a wildcard", { hosts: ["*.shop.example"] }, /hosts\[0\]: .*wildcards need a challenge over DNS/],
    ["there is no host", { hosts: [] }, "hosts: expected 1–100 items, found none"],
    ["there are 101 hosts", { hosts: many }, "hosts: expected 1–100 items, found 101"],
    [
      "a host is there twice",
      { hosts: ["a.example", "A.example"] },
      "hosts[1]: is the same host as global.acme.hosts[0]",
    ],
    ["a host has a port", { hosts: ["a.example:443"] }, /hosts\[0\]: .*write no port here/],
    ["a host ends with a dot", { hosts: ["a.example."] }, /hosts\[0\]: .*without the dot at its end/],
    ["an address is long", { hosts: ["2001:db8:0:0::7"] }, /hosts\[0\]: .*write "2001:db8::7"/],
    ["an address is mapped", { hosts: ["::ffff:192.0.2.7"] }, /hosts\[0\]: .*write "192.0.2.7"/],
    ["an address has a zone", { hosts: ["fe80::1%eth0"] }, /hosts\[0\]: .*write it without a zone/],
    ["a host is a reference", { hosts: ["${env:KEY}"] }, /hosts\[0\]: /],
    ["directory is http://", { directory: "http://ca.example/" }, /directory: .*RFC 8555 §6.1 needs TLS/],
    ["directory is no URL", { directory: "ca.example" }, "directory: expected an https:// URL"],
    ["directory has a password", { directory: "https://a:b@ca.example/" }, /directory: .*leave user and password out/],
    ["email has no domain", { email: "ops" }, "email: expected an email address"],
    ["email is two", { email: "a@a.example,b@b.example" }, "email: expected an email address"],
    ["email has header fields", { email: "a@a.example?cc=b@b.example" }, "email: expected an email address"],
    ["email is a URL", { email: "mailto:a@a.example" }, /email: .*without "mailto:"/],
    ["hmac_key is base64", { eab: { kid: "k", hmac_key: "+/==" } }, /eab\.hmac_key: expected the key in base64url/],
    ["hmac_key is one character", { eab: { kid: "k", hmac_key: "a" } }, /eab\.hmac_key: expected the key in base64url/],
    ["eab has no kid", { eab: { hmac_key: "c2VjcmV0" } }, "eab.kid: is required"],
    ["ca is no certificate", { ca: "/none" }, /ca: \/none: is not a certificate in PEM form/],
    ["challenge is dns-01", { challenge: "dns-01" }, /challenge: expected "http-01" or "tls-alpn-01"/],
    ["profile has a space", { profile: "short lived" }, "profile: expected the name of a profile"],
    [
      "hosts_allowed is a pattern",
      { hosts_allowed: ["*.ca.example"] },
      /hosts_allowed\[0\]: .*write each host by itself/,
    ],
  ])("is refused where %s", (_what, acme, issue) => {
    const [first, ...others] = issuesOf(acme);
    expect(others).toEqual([]);
    if (typeof issue === "string") expect(first).toContain(`global.acme.${issue}`);
    else expect(first).toMatch(issue);
    expect(first).not.toMatch(/hush|\+\/==/);
  });

  it("is refused where a host has a configured certificate, and taken where a wildcard is for it", () => {
    const certificate = (...hosts: string[]) => ({ certificates: [{ hosts, cert: "/shop.crt", key: "/shop.key" }] });
    expect(issuesOf({}, certificate("a.example", "Shop.example"))).toEqual([
      "global.acme.hosts[0]: has a certificate already, global.certificates[0]: name it in one of them",
    ]);
    expect(issuesOf({}, certificate("*.example"))).toEqual([]);
  });
});

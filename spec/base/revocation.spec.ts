import { X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import { revokedIn } from "../../lib/base/revocation.ts";
import { authority, type Issued } from "../support/pki.ts";

const DAY_MS = 86_400_000;
const ROOT = authority("root");
const BELOW = ROOT.below("below");
const LEAF = BELOW.issue("leaf");
const BEYOND = Date.now() + 3650 * DAY_MS;

function refusalOf(shown: readonly Issued[], lists: string, ca: string | undefined = ROOT.cert): string | null {
  const chain = shown.map(({ cert }) => new X509Certificate(cert));
  const rules = { lists: Buffer.from(lists), expired: "refuse" } as const;
  return revokedIn(chain, ca === "" ? undefined : Buffer.from(ca), rules, Date.now())?.code ?? null;
}

const NONE = ROOT.list() + BELOW.list();
const REVOKED = ROOT.list({ revoked: [BELOW] }) + BELOW.list();

describe("a chain that has been verified", () => {
  it("is accepted where each certificate has a list of its issuer that does not have it", () => {
    expect(refusalOf([LEAF, BELOW], NONE)).toBeNull();
    expect(refusalOf([LEAF, BELOW], REVOKED)).toBe("CERT_REVOKED");
    expect(refusalOf([LEAF], NONE, ROOT.cert + BELOW.cert)).toBeNull();
    expect(refusalOf([LEAF], NONE)).toBe("UNABLE_TO_GET_ISSUER_CERT");
  });

  it.each([
    ["has expired", Date.now() - DAY_MS],
    ["is in date", BEYOND],
  ])("is not accepted by a twin of a revoked CA that has signed itself and %s", (_what, to) => {
    const twin = BELOW.twin(to);
    for (const shown of [
      [LEAF, twin, BELOW],
      [LEAF, BELOW, twin],
      [LEAF, twin],
    ])
      expect(refusalOf(shown, REVOKED)).not.toBeNull();
    expect(refusalOf([LEAF, twin, BELOW], NONE)).toBeNull();
  });

  it("ends at a certificate that is trusted, of Node's where none is named", () => {
    expect(refusalOf([LEAF, BELOW, ROOT], NONE, "")).toBe("UNABLE_TO_GET_ISSUER_CERT");
    expect(refusalOf([ROOT], ROOT.list())).toBeNull();
    expect(refusalOf([ROOT], ROOT.list(), authority("root").cert)).not.toBeNull();
  });

  it("takes no certificate that is no CA for an issuer", () => {
    const leaf = authority("leaf");
    expect(refusalOf([LEAF, leaf], NONE)).toBe("UNABLE_TO_GET_ISSUER_CERT");
  });

  it("may have an empty subject", () => {
    const nameless = BELOW.issue("", { hosts: ["localhost"] });
    expect(refusalOf([nameless, BELOW], NONE)).toBeNull();
    expect(refusalOf([nameless, BELOW], ROOT.list() + BELOW.list({ revoked: [nameless] }))).toBe("CERT_REVOKED");
  });

  it("is refused where it is longer than chains are, and is not searched for long", () => {
    const others = Array.from({ length: 9 }, () => BELOW.twin(BEYOND));
    expect(refusalOf([LEAF, ...others, BELOW], NONE)).toBe("CERT_CHAIN_TOO_LONG");
    expect(refusalOf([LEAF, ...others], NONE)).toBe("UNABLE_TO_GET_ISSUER_CERT");
    // An issuer that is trusted comes first, however many have its name and its key.
    expect(refusalOf([LEAF, ...others], NONE, ROOT.cert + BELOW.cert)).toBeNull();
  });
});

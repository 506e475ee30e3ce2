import { createPublicKey, X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import {
  mayHaveLists,
  readListsAhead,
  revocationListsIn,
  revocationListsProblem,
  serialOf,
} from "../../lib/base/crl.ts";
import { authority, der, extension, integer, pem, type KeyType } from "../support/pki.ts";

const CA = authority("a CA");
const [ONE, TWO, THREE] = [CA.issue("one"), CA.issue("two"), CA.issue("three")];
const problem = (text: string) => revocationListsProblem(Buffer.from(text));
const read = (text: string) => revocationListsIn(Buffer.from(text));
const bytesOf = (text: string) => Buffer.from(text.replace(/-----.*-----|\s/g, ""), "base64");
const DAY_MS = 86_400_000;

describe("a file of revocation lists", () => {
  it("has the issuer, the times and the serial numbers of each list", () => {
    const [from, to] = [Date.UTC(2026, 0, 2, 3, 4, 5), Date.UTC(2077, 11, 31, 23, 59, 59)];
    const lists = read(`text before\n${CA.list({ revoked: [ONE, TWO], from, to })}\n${authority("b").list()}`);
    expect(lists.map(({ issuerName }) => issuerName)).toEqual(["a CA", "b"]);
    expect(lists[0]).toMatchObject({ thisUpdate: from, nextUpdate: to });
    const has = ({ serial }: { readonly serial: Buffer }) => lists[0]!.revoked.has(serialOf(serial.toString("latin1")));
    expect([ONE, TWO, THREE].map(has)).toEqual([true, true, false]);
    expect(lists[1]!.revoked.size).toBe(0);
  });

  it("is read once while its content stays, into however many buffers a reload reads it", () => {
    const text = CA.list({ revoked: [ONE] });
    const [first, again] = [Buffer.from(text), Buffer.from(text)];
    const lists = revocationListsIn(first);
    expect(revocationListsIn(again)).toBe(lists);
    expect(revocationListsIn(first)).toBe(lists);
    const other = read(CA.list({ revoked: [ONE, TWO] }));
    expect(other[0]!.revoked.size).toBe(2);
    expect(read(text)).toBe(lists);
  });

  it("is read beside the traffic where that is asked for, and is known afterwards", async () => {
    const revoked = Array.from({ length: 100_000 }, (_none, i) => ({
      ...ONE,
      serial: Buffer.from((0x10_00_00 + i).toString(16), "hex"),
    }));
    const text = CA.list({ revoked });
    const ahead = Buffer.from(text);
    let turns = 0;
    let isOver = false;
    const turn = () => void (isOver || (turns++, setImmediate(turn)));
    turn();
    await readListsAhead(ahead);
    isOver = true;
    const lists = revocationListsIn(ahead);
    expect(lists[0]!.revoked.size).toBe(100_000);
    expect(revocationListsIn(Buffer.from(text))).toBe(lists);
    expect(turns).toBeGreaterThan(1);
    const broken = Buffer.from(CA.list().slice(0, -30));
    await readListsAhead(broken);
    expect(revocationListsProblem(broken)).toMatch(/^is not a revocation list/);
    expect([text, CA.cert].map((each) => mayHaveLists(Buffer.from(each)))).toEqual([true, false]);
  });

  it.each<KeyType>(["ec", "rsa", "rsa-pss", "ed25519"])("knows whether its issuer has signed it, with %s", (type) => {
    const ca = authority("a CA", type);
    const [list] = read(ca.list({ revoked: [ONE] }));
    expect(list!.isSignedBy(createPublicKey(ca.cert))).toBe(true);
    expect(list!.isSignedBy(createPublicKey(authority("a CA", type).cert))).toBe(false);
    expect(list!.isSignedBy(createPublicKey(authority("a CA", type === "ec" ? "rsa" : "ec").cert))).toBe(false);
  });

  it("is not signed where one byte of it was changed", () => {
    const bytes = bytesOf(CA.list({ revoked: [ONE] }));
    bytes[bytes.indexOf(ONE.serial) + 1]! ^= 1;
    expect(read(pem("X509 CRL", bytes))[0]!.isSignedBy(new X509Certificate(CA.cert).publicKey)).toBe(false);
  });

  const known = [extension("2.5.29.20", integer(Buffer.from([7]))), extension("2.5.29.35", der(0x30))];
  const reason = extension("2.5.29.21", der(0x0a, Buffer.from([1])));
  it.each([
    ["whose extensions are known", { extensions: known }],
    ["with a reason for each certificate", { revoked: [ONE], entryExtensions: [reason] }],
    ["with an unknown extension that may be passed over", { extensions: [extension("1.2.3", der(0x30))] }],
    ["that has expired", { to: Date.now() - DAY_MS / 2 }],
    ["that is not valid yet", { from: Date.now() + DAY_MS }],
  ])("may have a list %s", (_what, options) => expect(problem(CA.list(options))).toBeUndefined());

  const critical = extension("1.2.3", der(0x30), true);
  it.each([
    ["is empty", "", /^has no line -----BEGIN X509 CRL-----$/],
    ["has certificates alone", CA.cert, /^has no line -----BEGIN X509 CRL-----$/],
    ["is cut off", CA.list().slice(0, -30), /^is not a revocation list in PEM form: it is no base64 up to/],
    ["has a second list that is broken", CA.list() + pem("X509 CRL", Buffer.from("none")), /\(number 2 of 2 in it\)/],
    ["has a certificate as a list", pem("X509 CRL", bytesOf(CA.cert)), /that cannot be used: what is at byte/],
    ["has bytes behind a list", pem("X509 CRL", Buffer.concat([bytesOf(CA.list()), Buffer.alloc(1)])), /is too much$/],
    [
      "has a delta CRL",
      CA.list({ extensions: [extension("2.5.29.27", integer(Buffer.from([1])), true)] }),
      /: it is a delta CRL, which has changes alone: name the complete list$/,
    ],
    [
      "has a list for a part of the certificates",
      CA.list({ extensions: [extension("2.5.29.28", der(0x30, der(0x81, Buffer.from([255]))), true)] }),
      /: it is for a part of the certificates \(issuing distribution point\): name the complete list$/,
    ],
    ["has an unknown critical extension", CA.list({ extensions: [critical] }), /unknown critical extension, 1\.2\.3$/],
    [
      "has one of a certificate",
      CA.list({ revoked: [ONE], entryExtensions: [critical] }),
      /unknown critical extension, 1\.2\.3$/,
    ],
    ["has a list without an end", CA.list({ to: null }), /no end, nextUpdate \(RFC 5280 §5\.1\.2\.5\)$/],
    [
      "has a list with SHA-1",
      authority("a", "sha1").list(),
      /an algorithm that is not accepted, 1\.2\.840\.113549\.1\.1\.5$/,
    ],
  ])("cannot be used where it %s", (_what, text, message) => expect(problem(text)).toMatch(message));

  it("in DER is told how to be converted", () => {
    expect(revocationListsProblem(bytesOf(CA.list()))).toMatch(/: convert it \(openssl crl -inform DER/);
  });

  it("cannot be used, or is not signed, where any byte of it is left out or changed", () => {
    const bytes = bytesOf(CA.list({ revoked: [ONE, TWO], extensions: known, entryExtensions: [reason] }));
    const key = new X509Certificate(CA.cert).publicKey;
    const isGood = (changed: Buffer) => {
      const text = pem("X509 CRL", changed);
      return problem(text) === undefined && read(text)[0]!.isSignedBy(key);
    };
    expect(isGood(bytes)).toBe(true);
    for (let i = 0; i < bytes.length; i++) {
      expect(isGood(bytes.subarray(0, i))).toBe(false);
      for (const bit of [1, 0x80]) {
        const changed = Buffer.from(bytes);
        changed[i]! ^= bit;
        expect(isGood(changed), `byte ${i}`).toBe(false);
      }
    }
  });
});

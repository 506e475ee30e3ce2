/**
 * When a certificate is renewed: at two thirds of its lifetime, or when its directory asks for it (RFC 9773). Moments
 * are in milliseconds since 1970, by the wall clock.
 */
import type { Clock } from "../base/clock.ts";
import { renewalId } from "./chain.ts";
import { jsonObject, type Directory } from "./directory.ts";
import { AcmeFailure } from "./failure.ts";
import { isJsonObject, textIn } from "./json_members.ts";
import type { StoredCertificate } from "./stored_certificates.ts";

export interface Lifetime {
  readonly notBefore: number;
  readonly notAfter: number;
  /** When this process has obtained it; null: a former one has. */
  readonly obtainedAt: number | null;
}

/** `askedFor`: a moment in the directory's window; null: there is none. */
export function renewalTime({ notBefore, notAfter, obtainedAt }: Lifetime, askedFor: number | null): number {
  const lifetime = notAfter - notBefore;
  if (askedFor !== null) {
    // A directory that asks for the renewal of each certificate as it issues it gets a pause.
    const earliest = obtainedAt === null ? -Infinity : obtainedAt + Math.min(SHORTEST_USE_MS, lifetime / 6);
    return Math.min(Math.max(askedFor, earliest), notAfter - lifetime / 6);
  }
  const twoThirds = notBefore + (lifetime * 2) / 3;
  // Directories date certificates back by up to an hour: of a short one two thirds may be over when it arrives.
  if (obtainedAt === null || twoThirds > obtainedAt || obtainedAt >= notAfter) return twoThirds;
  return obtainedAt + ((notAfter - obtainedAt) * 2) / 3;
}

const SHORTEST_USE_MS = 3_600_000;

/** What a directory has said about one certificate. */
interface Known {
  readonly window: { readonly start: number; readonly end: number } | null;
  /** A moment in the window. */
  readonly askedFor: number | null;
  /** When to ask again, by the monotonic clock. */
  readonly againAt: number;
}

/** When each certificate is renewed, with what its directory says about it. */
export class RenewalTimes {
  readonly #clock: Pick<Clock, "now">;
  readonly #random: () => number;
  readonly #known = new WeakMap<StoredCertificate, Known>();

  constructor(clock: Pick<Clock, "now">, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  of(certificate: StoredCertificate): number {
    const { notBefore, notAfter } = certificate.chain;
    const { obtainedAt } = certificate;
    return renewalTime({ notBefore, notAfter, obtainedAt }, this.#known.get(certificate)?.askedFor ?? null);
  }

  /** Whether its directory is to be asked about it. */
  isOld(certificate: StoredCertificate): boolean {
    return this.#clock.now() >= (this.#known.get(certificate)?.againAt ?? -Infinity);
  }

  /**
   * What is known stays where the directory does not answer. RFC 9773 §4.2: a moment by chance, so that not all renew
   * at the same time; it stays as long as the window does.
   */
  async ask(certificate: StoredCertificate, open: () => Promise<Directory>): Promise<void> {
    const former = this.#known.get(certificate) ?? NOTHING;
    this.#known.set(certificate, { ...former, againAt: this.#clock.now() + AGAIN_MS });
    const directory = await open();
    const id = renewalId(certificate.chain.leaf);
    if (id === null || !directory.hasRenewalInfo) return;
    const base = directory.urlOf("renewalInfo").replace(/\/$/, "");
    const { body, retryAfterMs } = await directory.get(`${base}/${id}`);
    const window = windowIn(body);
    const isSame = former.window?.start === window.start && former.window.end === window.end;
    const askedFor = isSame ? former.askedFor : window.start + (window.end - window.start) * this.#random();
    // RFC 9773 §4.3.2.
    const againMs = Math.min(Math.max(retryAfterMs ?? AGAIN_MS, SHORTEST_INTERVAL_MS), LONGEST_INTERVAL_MS);
    this.#known.set(certificate, { window, askedFor, againAt: this.#clock.now() + againMs });
  }
}

const NOTHING: Known = { window: null, askedFor: null, againAt: 0 };
/** RFC 9773 §4.3.3: without an answer, some hours. */
const AGAIN_MS = 6 * 3_600_000;
const SHORTEST_INTERVAL_MS = 60_000;
const LONGEST_INTERVAL_MS = 86_400_000;

function windowIn(body: Buffer): { readonly start: number; readonly end: number } {
  const { suggestedWindow } = jsonObject(body);
  const moment = (name: string) =>
    isJsonObject(suggestedWindow) ? Date.parse(textIn(suggestedWindow, name) ?? "") : NaN;
  const start = moment("start");
  const end = moment("end");
  // NaN is neither.
  if (!(start < end)) throw new AcmeFailure("the directory's window of renewal is malformed");
  return { start, end };
}

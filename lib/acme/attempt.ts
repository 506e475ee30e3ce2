/**
 * One attempt to get a certificate for all hosts; where the directory refuses some, for the others without them.
 */
import type { Log } from "../base/log.ts";
import type { AcmeAccount } from "./account.ts";
import { renewalId } from "./chain.ts";
import { AcmeFailure } from "./failure.ts";
import { orderCertificate, type OrderContext } from "./order.ts";
import { hostKey } from "./proof.ts";
import { storedCertificate, type StoredCertificate } from "./stored_certificates.ts";

interface AttemptContext extends Omit<OrderContext, "signer"> {
  readonly account: AcmeAccount;
  readonly log: Log;
  /** The certificate in use; null: there is none of this directory. */
  readonly current: StoredCertificate | null;
  /** Whether one of the hosts has no certificate, or one that is due. */
  readonly needs: (hosts: readonly string[]) => boolean;
  /** Called for each order that has ended. */
  readonly count: (outcome: "succeeded" | "failed") => void;
}

export interface AttemptResult {
  /** Null: there is none. */
  readonly certificate: StoredCertificate | null;
  /** The hosts that it is not for, each with the reason. */
  readonly failed: ReadonlyMap<string, string>;
  /** Why there is nothing for the other hosts either; null: nothing stands against them. */
  readonly failure: AcmeFailure | null;
}

/** Rejects with an `AcmeFailure` where not even an order could be tried, or with the signal's reason. */
export async function attempt(context: AttemptContext): Promise<AttemptResult> {
  const { settings, directory, account, current, clock, signal, needs, count } = context;
  const profile = profileOf(context);
  const signer = await account.signer(directory, settings);
  let replaces = current !== null && directory.hasRenewalInfo ? renewalId(current.chain.leaf) : null;
  let { hosts } = settings;
  const failed = new Map<string, string>();
  for (let orders = 1; ; orders++) {
    try {
      const { chain, key } = await orderCertificate({ hosts, profile, replaces }, { ...context, signer });
      count("succeeded");
      return { certificate: storedCertificate(chain, key, settings.directory, clock.wall()), failed, failure: null };
    } catch (error) {
      if (signal.aborted || !(error instanceof AcmeFailure)) throw error;
      count("failed");
      // The account may be gone, or deactivated: the next attempt looks it up, and says so.
      if (error.type === "accountDoesNotExist" || error.type === "unauthorized") account.forget();
      const refused = refusedHosts(error, hosts);
      const isReplaced = error.type === "alreadyReplaced" && replaces !== null;
      if (orders === MAX_ORDERS || !(isReplaced || refused.size > 0))
        return { certificate: null, failed, failure: error };
      if (isReplaced) replaces = null;
      for (const [host, reason] of refused) failed.set(host, reason);
      hosts = hosts.filter((host) => !failed.has(host));
      if (!needs(hosts)) return { certificate: null, failed, failure: null };
    }
  }
}

/** A directory may name the hosts that it refuses one after the other. */
const MAX_ORDERS = 5;

/** Null: none is asked for. */
function profileOf({ settings, directory, log }: AttemptContext): string | null {
  const { profile } = settings;
  if (profile === null || directory.lists(profile)) return profile;
  log.warn("ACME: the directory does not list the profile, which is left out", {
    directory: settings.directory,
    profile,
  });
  return null;
}

/** Those of the hosts that a failure is about: by its subproblems or, where it has none, by the names in its text. */
function refusedHosts(failure: AcmeFailure, hosts: readonly string[]): ReadonlyMap<string, string> {
  const refused = new Map<string, string>();
  if (failure.isPassing) return refused;
  const named = new Map(Array.from(failure.hosts, ([host, reason]) => [hostKey(host), reason]));
  if (named.size === 0 && REFUSALS.has(failure.type ?? ""))
    for (const word of failure.message.split(/[^\w.:-]+/))
      named.set(hostKey(word.replace(/[.:]+$/, "")), failure.message);
  for (const host of hosts) {
    const reason = named.get(hostKey(host));
    if (reason !== undefined) refused.set(host, reason);
  }
  return refused;
}

/** Types of problems that are about identifiers (RFC 8555 §6.7). */
const REFUSALS: ReadonlySet<string> = new Set([
  "rejectedIdentifier",
  "unsupportedIdentifier",
  "caa",
  "dns",
  "malformed",
]);

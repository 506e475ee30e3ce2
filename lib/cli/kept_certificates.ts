/**
 * Keeps the certificates of `global.acme` while the gateway runs: gives what keeps them its settings and files, and
 * what it orders to all threads.
 */
import { keepCertificates } from "../acme/keeper.ts";
import type { AcmeFiles, AcmeSettings, CertificateKeeper, ChallengeAnswers } from "../acme/contracts.ts";
import { ignore } from "../base/errors.ts";
import type { Config } from "../config/model.ts";
import type { GatewayInternals } from "../gateway/internals.ts";
import type { IssuedCertificates } from "../server/issued_certificates.ts";
import type { ShareCertificates } from "./shared_certificates.ts";

type Acme = NonNullable<Config["global"]["acme"]>;

export class KeptCertificates {
  readonly #internals: GatewayInternals;
  readonly #files: AcmeFiles;
  readonly #issued: IssuedCertificates;
  readonly #share: ShareCertificates | null;
  /** Null: the configuration in force does not have `global.acme`, or nothing has begun. */
  #keeper: CertificateKeeper | null = null;
  #state: "new" | "started" | "closed" = "new";
  /** Resolves once the one before does nothing any more. */
  #ended: Promise<void> = Promise.resolve();
  /** Those that have been logged as waiting for a certificate. */
  #awaited = "";

  /** `files`: below STATE_DIR. `share`: null: this gateway orders for itself. Nothing is asked before `start`. */
  constructor(internals: GatewayInternals, files: AcmeFiles, share: ShareCertificates | null) {
    const { features, runtime } = internals;
    this.#internals = internals;
    this.#files = files;
    this.#share = share;
    this.#issued = features.serverTls.issuedIn(runtime);
    internals.certificates = this;
  }

  /** Once the ports are open, which is where challenges come. */
  start(): void {
    if (this.#state !== "new") return;
    this.#state = "started";
    this.follow();
  }

  /** To be called when another configuration is in force, or the same again. */
  follow(): void {
    const { acme } = this.#internals.configuration.snapshot.global;
    if (this.#state !== "started") return;
    if (acme === undefined) return this.#forget();
    const settings = acmeSettings(acme);
    if (this.#keeper === null) return this.#open(settings);
    this.#keeper.configure(settings);
    this.#logAwaited();
  }

  /** See `CertificateKeeper`. Rejects in words where there are no certificates. */
  async rollover(): Promise<void> {
    if (this.#keeper === null) throw new Error("the configuration in force does not have global.acme");
    await this.#keeper.rollover();
  }

  async close(): Promise<void> {
    this.#state = "closed";
    await this.#keeper?.close();
    await this.#ended;
  }

  #open(settings: AcmeSettings): void {
    const { clock, configuration, log } = this.#internals;
    const issued = this.#issued;
    const answers: ChallengeAnswers = {
      async present(challenges) {
        for (const challenge of challenges) issued.present(challenge);
        await Promise.all(challenges.map((each) => configuration.followers?.setChallenge(each, "open")));
      },
      async remove(challenges) {
        for (const challenge of challenges) issued.remove(challenge);
        await Promise.all(challenges.map((each) => configuration.followers?.setChallenge(each, "over")));
      },
    };
    const own = { files: this.#files, answers, clock, log };
    const fleet = this.#share?.(own) ?? null;
    const keeper = keepCertificates(settings, {
      ...own,
      ...(fleet && { fleet, files: fleet.files, answers: fleet.answers }),
      present(certificates) {
        issued.use(certificates);
        configuration.followers?.useCertificates(certificates);
      },
      proxy: () => configuration.snapshot.egressProxy,
    });
    this.#keeper = keeper;
    issued.state = () => keeper.state;
    // Of two at a time each would write what the other has.
    void this.#ended.then(() => {
      if (this.#keeper !== keeper || this.#state !== "started") return;
      keeper.start();
      this.#logAwaited();
    });
  }

  #forget(): void {
    // What it has stored stays for another configuration.
    const keeper = this.#keeper;
    // With the one before it, which may not have ended yet.
    if (keeper !== null) this.#ended = Promise.all([this.#ended, keeper.close()]).then(ignore);
    this.#keeper = null;
    this.#issued.state = null;
    this.#awaited = "";
  }

  /** The start does not wait for them. */
  #logAwaited(): void {
    const { directory, hosts } = this.#keeper!.state;
    const awaited = hosts.flatMap(({ host, notAfter }) => (notAfter === null ? [host] : []));
    if (awaited.length > 0 && awaited.join() !== this.#awaited)
      this.#internals.log.info("ACME: certificates are waited for; until then TLS for these hosts ends with an alert", {
        hosts: awaited,
        directory,
      });
    this.#awaited = awaited.join();
  }
}

export function acmeSettings({
  directory,
  email,
  hosts,
  ca,
  challenge,
  eab,
  profile,
  hostsAllowed,
}: Acme): AcmeSettings {
  return {
    directory,
    email: email ?? null,
    hosts,
    ca: ca?.content ?? null,
    challenge,
    eab: eab === undefined ? null : { kid: eab.kid, hmacKey: Buffer.from(eab.hmacKey, "base64url") },
    profile: profile ?? null,
    hostsAllowed,
  };
}
